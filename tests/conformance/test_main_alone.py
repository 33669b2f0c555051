"""Commits where main is the only ref, on every catalog of `tests/services/catalogs.py`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from catalog import (
    CatalogClient,
    Conflict,
    OutcomeUnknown,
    TableState,
    append_onto,
    fence,
    load,
)
from catalog.commits import MAIN, append_onto_main, commit, ref_is_at, set_branch, written_files
from catalog.conversions import state_of
from tests.conformance.commits import Send, anyhow, foreign_commit, ids_in, on_commit
from tests.services.catalogs import GIVEN, WITHOUT_GATE

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")


@pytest.fixture
def plain(lake: CatalogClient, partitioned: str) -> str:
    """A table with one row, and no ref but main."""
    append_onto(lake, partitioned, [{"id": 1, "site": "north"}], anyhow)
    return partitioned


def counting(lake: CatalogClient, sent: list[int], *, lost: int = 0) -> Any:
    """Counts the commits; the first so many take effect, and nobody is told."""

    def act(send: Send) -> requests.Response:
        sent.append(1)
        answer = send()
        if len(sent) <= lost:
            raise requests.ConnectionError("Connection aborted.")
        return answer

    return on_commit(lake, act)


class TestFence:
    @pytest.mark.parametrize("rows", [0, 1])
    def test_moves_main_and_nothing_else(self, lake: CatalogClient, partitioned: str, rows: int) -> None:
        """One commit, with a property. One that requires main as it was is refused, even if there was none yet."""
        if rows:
            foreign_commit(lake, partitioned, 1)
        built, sent = lake.table(partitioned), list[int]()
        late = append_onto_main(built, written_files(built, [{"id": 2}]), {})
        with counting(lake, sent):
            state = fence(lake, partitioned, anyhow, {"test.epoch": "7"})
        assert len(sent) == 1
        assert state.properties["test.epoch"] == "7"
        assert next(state.ancestors()).summary["test.by"] == "us"
        before = state_of(built).main
        assert next(state.ancestors()).parent == before
        assert state.history_complete()
        assert ids_in(lake, partitioned) == [1][:rows]
        with pytest.raises(Conflict):
            commit(
                lake, built, "appending", (ref_is_at(MAIN, before),), (*late.updates, set_branch(MAIN, late.snapshot))
            )
        assert ids_in(lake, partitioned) == [1][:rows]

    def test_gives_a_number_to_one_of_those_who_take_it_at_once(self, lake: CatalogClient, partitioned: str) -> None:
        class Taken(Exception): ...

        def attempt(_: int) -> bool:
            def decide(state: TableState) -> dict[str, str]:
                if "test.epoch" in state.properties:
                    raise Taken
                return {}

            try:
                fence(lake, partitioned, decide, {"test.epoch": "1"})
            except Taken:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(attempt, range(4))) == 1
        assert len(load(lake, partitioned).snapshots) == 1


class TestAppend:
    def test_shows_who_moved_main_in_between_before_it_is_tried_again(self, lake: CatalogClient, plain: str) -> None:
        """Or else a writer could commit upon the fence that was to keep it out."""
        shown: list[int | None] = []

        class Replaced(Exception): ...

        def decide(state: TableState) -> dict[str, str]:
            shown.append(state.main)
            if "test.epoch" in state.properties:
                raise Replaced
            fence(lake, plain, anyhow, {"test.epoch": "2"})
            return {}

        with pytest.raises(Replaced):
            append_onto(lake, plain, [{"id": 2}], decide)
        assert len(shown) == 2
        assert ids_in(lake, plain) == [1]

    @pytest.mark.parametrize("lost", [1, 2])
    def test_is_there_once_though_its_answer_is_lost(self, lake: CatalogClient, plain: str, lost: int) -> None:
        with counting(lake, [], lost=lost):
            append_onto(lake, plain, [{"id": 2}], anyhow)
        with counting(lake, [], lost=lost):
            state = fence(lake, plain, anyhow, {})
        assert ids_in(lake, plain) == [1, 2]
        assert len(list(state.ancestors())) == 3

    def test_is_there_once_though_it_arrives_late(self, lake: CatalogClient, plain: str) -> None:
        """The first request is heard only after the second look has found nothing of it."""
        late: list[Send] = []

        def decide(_: TableState) -> dict[str, str]:
            if late:
                assert late[0]().status_code == 200
            return {}

        def held(send: Send) -> requests.Response:
            if not late:
                late.append(send)
                raise requests.ReadTimeout("slow")
            return send()

        with on_commit(lake, held):
            append_onto(lake, plain, [{"id": 2}], decide)
        assert ids_in(lake, plain) == [1, 2]

    def test_has_an_unknown_outcome_if_the_history_that_could_tell_is_gone(
        self, lake: CatalogClient, plain: str, others: CatalogClient
    ) -> None:
        """An attempt went unanswered, and then somebody moved main and expired what was before."""

        def lost_and_expired(_: Send) -> requests.Response:
            foreign_commit(others, plain, 100)
            older = [each for each in load(others, plain).snapshots if each != load(others, plain).main]
            others.pyiceberg.load_table(plain).maintenance.expire_snapshots().by_ids(older).commit()
            raise requests.ConnectionError("Connection aborted.")

        with on_commit(lake, lost_and_expired), pytest.raises(OutcomeUnknown, match="expired"):
            append_onto(lake, plain, [{"id": 2}], anyhow)
