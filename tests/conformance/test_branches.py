"""A writer's branch and its commits, on every catalog of `tests/services/catalogs.py`."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
import requests

from catalog import (
    Attempts,
    BranchesRefused,
    BranchGone,
    CatalogClient,
    Conflict,
    OutcomeUnknown,
    TableSpec,
    TableState,
    append_onto,
    create_table,
    drop_branches,
    land_rows,
    load,
    open_branch,
    set_properties,
)
from tests.conformance.commits import COLUMNS, Send, anyhow, begin, foreign_commit, held, ids_in, land, on_commit
from tests.services.catalogs import NAMESPACE, Can, Kind
from tests.services.landings import without_waiting


class TestBranch:
    def test_starts_at_mains_head_and_drops_the_stale_ones_with_it(self, lake: CatalogClient, filled: str) -> None:
        state = open_branch(lake, filled, "next", drop=["ours", "never_there"])
        assert state.refs == {"main": state.main, "next": state.main}

    def test_of_an_empty_table_leaves_main_unset_until_the_first_commit(
        self, kind: Kind, lake: CatalogClient, partitioned: str
    ) -> None:
        kind.needs(Can.BRANCH_FIRST)
        opened = open_branch(lake, partitioned, "ours")
        assert opened.main is None
        assert "ours" in opened.refs
        assert load(lake, partitioned).main is None
        state = land(lake, partitioned, 1, 2)
        assert state.main == state.refs["ours"]
        assert ids_in(lake, partitioned) == [1, 2]

    def test_of_an_empty_table_is_opened_while_another_writer_begins(
        self, kind: Kind, lake: CatalogClient, others: CatalogClient, partitioned: str
    ) -> None:
        """Main is unset for both, so that it has not moved does not tell; the numbers of their first snapshots do."""
        kind.needs(Can.BRANCH_FIRST)
        begun: list[TableState] = []

        def begin_meanwhile(send: Send) -> requests.Response:
            if not begun:
                begun.append(open_branch(others, partitioned, "theirs"))
            return send()

        with on_commit(lake, begin_meanwhile):
            assert open_branch(lake, partitioned, "ours").refs.keys() == {"theirs", "ours"}
        land(others, partitioned, 1, branch="theirs")
        foreign_commit(others, partitioned, 2)
        land(lake, partitioned, 3)
        assert ids_in(lake, partitioned) == [1, 2, 3]

    @pytest.mark.parametrize("rows", [(), (1,)])
    def test_is_had_by_one_of_those_who_open_it_at_once(
        self, kind: Kind, lake: CatalogClient, partitioned: str, rows: tuple[int, ...]
    ) -> None:
        if rows:
            foreign_commit(lake, partitioned, *rows)
        else:
            kind.needs(Can.BRANCH_FIRST)

        def attempt(_: int) -> bool:
            try:
                open_branch(lake, partitioned, "epoch_1")
            except (Conflict, OutcomeUnknown):
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(attempt, range(4))) == 1

    def test_is_kept_whatever_age_a_table_allows(self, lake: CatalogClient, filled: str) -> None:
        table = lake.pyiceberg.load_table(filled)
        assert table.metadata.refs["ours"].max_ref_age_ms == 2**63 - 1
        assert table.metadata.refs["main"].max_ref_age_ms is None
        land(lake, filled, 2)
        assert lake.pyiceberg.load_table(filled).metadata.refs["ours"].max_ref_age_ms == 2**63 - 1

    def test_takes_with_it_what_earlier_versions_noted_of_it(self, lake: CatalogClient, filled: str) -> None:
        set_properties(lake, filled, {"published.ours": "1", "published.theirs": "2"})
        found = open_branch(lake, filled, "newer", drop=["ours"]).properties
        assert [key for key in found if key.startswith("published.")] == ["published.theirs"]

    def test_that_is_dropped_fences_its_writer(self, lake: CatalogClient, filled: str) -> None:
        ours = held(lake, filled)
        open_branch(lake, filled, "newer", drop=["ours"])
        with pytest.raises(BranchGone):
            land_rows(lake, filled, [{"id": 2}], ours, lambda _: {}, Attempts())
        assert ids_in(lake, filled) == [1]

    def test_may_be_dropped_twice(self, lake: CatalogClient, filled: str) -> None:
        assert drop_branches(lake, filled, ["ours", "other"]).refs.keys() == {"main"}
        assert drop_branches(lake, filled, ["ours"]).refs.keys() == {"main"}
        with pytest.raises(ValueError, match="main"):
            drop_branches(lake, filled, ["main"])

    def test_that_the_catalog_does_not_take_is_refused(self, lake: CatalogClient, plain: str) -> None:
        def no(_: Send) -> requests.Response:
            answer = requests.Response()
            answer.status_code = 400
            answer._content = b'{"error": {"message": "only main", "type": "BadRequestException", "code": 400}}'
            return answer

        with on_commit(lake, no), pytest.raises(BranchesRefused, match="only main"):
            open_branch(lake, plain, "ours")


class TestCommit:
    def test_comes_through_among_neighbours_that_never_rest(
        self, monkeypatch: pytest.MonkeyPatch, lake: CatalogClient, others: CatalogClient, filled: str
    ) -> None:
        """Between our look at the table and our commit somebody else's comes, again and again, but not for ever.

        So it does however long we wait between two tries.
        """
        without_waiting(monkeypatch)
        row = lake.pyiceberg.load_table(filled).scan(limit=1).to_arrow()
        first = 5  # so often are they
        refused: list[int] = []
        for number in (2, 3):
            looks = count(1)

            def meanwhile(_: TableState, looks: Iterator[int] = looks) -> dict[str, str]:
                if next(looks) <= first:
                    others.pyiceberg.load_table(filled).append(row)
                return {}

            ours = held(lake, filled)
            land_rows(lake, filled, [{"id": number}], ours, meanwhile, Attempts(), lambda at, _: refused.append(at))
            assert refused == [*range(1, first + 1)]
            refused.clear()
        assert [each for each in ids_in(lake, filled) if each > 1] == [2, 3]

    def test_to_one_table_does_not_wait_for_another_table(self, kind: Kind, lake: CatalogClient) -> None:
        def run(number: int) -> list[int]:
            name = f"{NAMESPACE}.p{uuid.uuid4().hex[:8]}"
            create_table(lake, TableSpec(name, COLUMNS))
            begin(kind, lake, name)
            open_branch(lake, name, "ours")
            for batch in range(3):
                land(lake, name, number, batch)
            return ids_in(lake, name)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(4))) == [sorted([n] * 3 + [0, 1, 2]) for n in range(4)]


class TestHistory:
    def test_shows_where_it_was_pruned(self, kind: Kind, lake: CatalogClient, filled: str) -> None:
        kind.needs(Can.BRANCH_FIRST)
        land(lake, filled, 2)
        state = land(lake, filled, 3)
        # The first of them is the empty one that the branch was opened with: never part of main.
        walked = list(state.ancestors())
        assert [snapshot.summary["test.ids"] for snapshot in walked] == ["3", "2", "1"]
        assert state.history_complete()
        oldest = walked[-1]
        lake.pyiceberg.load_table(filled).maintenance.expire_snapshots().by_id(oldest.id).commit()
        pruned = load(lake, filled)
        assert [snapshot.id for snapshot in pruned.ancestors()] == [walked[0].id, walked[1].id]
        assert not pruned.history_complete()
        assert pruned.contains(walked[1].id) is True
        assert pruned.contains(oldest.id) is None


@pytest.fixture
def plain(lake: CatalogClient, partitioned: str) -> str:
    """A table with one row, and no ref but main."""
    append_onto(lake, partitioned, [{"id": 1, "site": "north"}], anyhow)
    return partitioned
