"""The commit loop: what it tries again, what ends it, and how it finds out that a lost answer took effect."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import CommitTableResponse, Table

from catalog import (
    BranchesRefused,
    BranchExists,
    CatalogClient,
    Column,
    Conflict,
    OutcomeUnknown,
    RequestRefused,
    TableSpec,
    TableState,
    Unreachable,
    create_table,
    ensure_namespace,
    load,
    open_branch,
)
from catalog.commits import (
    MAIN,
    ProposedCommit,
    append_onto_main,
    commit_loop,
    properties_update,
    ref_is_at,
    set_branch,
)
from catalog.retries import LookAgain, look_until_settled, retrying
from tests.services.sqlite_catalog import sqlite_catalog

NAME = "ns.t"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[CatalogClient]:
    there = sqlite_catalog(tmp_path)
    lake = CatalogClient(there)
    ensure_namespace(lake, "ns")
    create_table(lake, TableSpec(NAME, (Column("n", "long"),)))
    yield lake
    there.close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


def property_set(_table: Table, state: TableState) -> ProposedCommit | None:
    return None if "a" in state.properties else ProposedCommit((), properties_update({"a": "b"}))


def appended(table: Table, state: TableState) -> ProposedCommit:
    """Sets main to a new snapshot, though of no rows."""
    append = append_onto_main(table, (), {})
    return ProposedCommit(
        (ref_is_at(MAIN, state.main),), (*append.updates, set_branch(MAIN, append.snapshot)), append.snapshot
    )


def on_main(state: TableState, ours: Collection[int]) -> bool:
    return state.main in ours


def failing(
    lake: CatalogClient, monkeypatch: pytest.MonkeyPatch, *failures: Exception, heard: bool = False
) -> list[Exception]:
    """The first commits fail like this, whether they took effect or not."""
    commit: Callable[..., CommitTableResponse] = lake.pyiceberg.commit_table
    left = list(failures)

    def fail(*words: object) -> CommitTableResponse:
        if not left:
            return commit(*words)
        if heard:
            commit(*words)
        raise left.pop(0)

    monkeypatch.setattr(lake.pyiceberg, "commit_table", fail)
    return left


class TestCommitLoop:
    def test_sends_nothing_if_nothing_is_left_to_do(self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
        commit_loop(lake, NAME, "testing", property_set)
        failing(lake, monkeypatch, RequestRefused("it must not be sent"))
        assert commit_loop(lake, NAME, "testing", property_set).properties["a"] == "b"

    @pytest.mark.parametrize("failure", [Conflict("main has moved"), OutcomeUnknown("no answer")])
    def test_tries_again_after_a_refusal_and_after_a_lost_request(
        self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        left = failing(lake, monkeypatch, failure, failure)
        state = commit_loop(lake, NAME, "testing", appended, on_main)
        assert not left
        assert [each.id for each in state.ancestors()] == [state.main]

    @pytest.mark.parametrize("failure", [Conflict("main has moved"), OutcomeUnknown("no answer")])
    def test_does_nothing_twice_if_the_failed_commit_took_effect(
        self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        """Also after a refusal: a proxy that repeats a request passes on the refusal of the second one."""
        failing(lake, monkeypatch, failure, heard=True)
        state = commit_loop(lake, NAME, "testing", appended, on_main)
        assert [each.id for each in load(lake, NAME).ancestors()] == [state.main]

    def test_raises_the_last_failure_after_all_tries(
        self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        last = OutcomeUnknown("the last")
        told: list[tuple[int, str]] = []
        left = failing(lake, monkeypatch, Conflict("the first"), OutcomeUnknown("the second"), last)
        with pytest.raises(OutcomeUnknown) as found:
            commit_loop(
                lake,
                NAME,
                "testing",
                appended,
                on_main,
                tries=3,
                refused=lambda *each: told.append((each[0], str(each[1]))),
            )
        assert found.value is last
        assert not left
        assert told == [(1, "the first"), (2, "the second")]

    @pytest.mark.parametrize("failure", [Conflict("not ours any more"), Unreachable("no store"), ValueError("wrong")])
    def test_ends_with_what_the_attempt_raises(self, lake: CatalogClient, failure: Exception) -> None:
        tried: list[int] = []

        def attempt(_table: Table, _state: TableState) -> ProposedCommit:
            tried.append(1)
            raise failure

        with pytest.raises(type(failure)) as found:
            commit_loop(lake, NAME, "testing", attempt)
        assert (found.value, len(tried)) == (failure, 1)

    def test_tries_again_if_the_attempt_says_so(self, lake: CatalogClient) -> None:
        moved = [LookAgain(Conflict("the files are gone, for main has moved"))]

        def attempt(table: Table, state: TableState) -> ProposedCommit:
            if moved:
                raise moved.pop()
            return appended(table, state)

        assert commit_loop(lake, NAME, "testing", attempt, on_main).main

    def test_ends_with_what_the_listener_raises(self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
        left = failing(lake, monkeypatch, Conflict("the first"), Conflict("the second"))

        def enough(_attempt: int, failure: Exception) -> None:
            raise failure

        with pytest.raises(Conflict, match="the first"):
            commit_loop(lake, NAME, "testing", appended, on_main, refused=enough)
        assert len(left) == 1

    def test_names_a_refusal_as_the_proposal_does(self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(lake, monkeypatch, RequestRefused("only main"), RequestRefused("only main"))
        with pytest.raises(BranchesRefused, match="only main"):
            commit_loop(
                lake,
                NAME,
                "testing",
                lambda *_: ProposedCommit((), properties_update({"a": "b"}), refusal=BranchesRefused),
            )
        with pytest.raises(RequestRefused) as found:
            commit_loop(lake, NAME, "testing", property_set)
        assert type(found.value) is RequestRefused


class TestRetrying:
    def test_calls_again_after_these_failures_only(self) -> None:
        failures: list[Exception] = [Unreachable("one"), Conflict("two"), ValueError("three")]

        def fails() -> None:
            raise failures.pop(0)

        with pytest.raises(ValueError, match="three"):
            retrying((Unreachable, Conflict))(fails)

    def test_waits_longer_each_time_but_never_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[float] = []
        monkeypatch.setattr("tenacity.nap.time.sleep", waits.append)

        def fails() -> None:
            raise LookAgain(Conflict("the same as before"))

        with pytest.raises(Conflict, match="the same as before"):
            look_until_settled(fails, 8)
        assert len(waits) == 7
        for wait, longest in zip(waits, (0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0), strict=True):
            assert longest / 2 <= wait <= longest


class TestOpenBranch:
    @pytest.mark.parametrize("heard", [True, False])
    def test_leaves_a_lost_answer_to_its_caller(
        self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch, *, heard: bool
    ) -> None:
        """Whether a branch of this name is ours, nobody can tell."""
        commit_loop(lake, NAME, "testing", appended, on_main)
        left = failing(lake, monkeypatch, OutcomeUnknown("no answer"), Conflict("never sent"), heard=heard)
        with pytest.raises(OutcomeUnknown, match="no answer"):
            open_branch(lake, NAME, "ours")
        assert len(left) == 1

    def test_does_not_know_whose_branch_appears_after_a_refusal(
        self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit_loop(lake, NAME, "testing", appended, on_main)
        failing(lake, monkeypatch, Conflict("refused"), heard=True)
        with pytest.raises(OutcomeUnknown, match="refused; now the branch exists"):
            open_branch(lake, NAME, "ours")

    def test_tries_again_after_a_refusal(self, lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
        state = commit_loop(lake, NAME, "testing", appended, on_main)
        failing(lake, monkeypatch, Conflict("main has moved"))
        assert open_branch(lake, NAME, "ours").refs == {"main": state.main, "ours": state.main}
        with pytest.raises(BranchExists):
            open_branch(lake, NAME, "ours")
