"""Commits of rows whose answer gets lost: each takes effect once, whether the request was heard or not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import CommitTableResponse

from catalog import (
    Attempts,
    CatalogClient,
    Column,
    Conflict,
    Expected,
    FencePosition,
    OutcomeUnknown,
    TableSpec,
    append_onto,
    create_table,
    ensure_namespace,
    fence,
    land_rows,
    load,
    open_branch,
    rewrite_rows,
)
from tests.services.sqlite_catalog import sqlite_catalog

NAME, BRANCH = "ns.t", "ours"
ROWS = [{"n": 2}]
Do = Callable[[CatalogClient], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[CatalogClient]:
    """One row, and a branch at main's head."""
    there = sqlite_catalog(tmp_path)
    lake = CatalogClient(there)
    ensure_namespace(lake, "ns")
    create_table(lake, TableSpec(NAME, (Column("n", "long"),)))
    append_onto(lake, NAME, [{"n": 1}], lambda _: {})
    open_branch(lake, NAME, BRANCH)
    yield lake
    there.close()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


def rows_in(lake: CatalogClient) -> list[int]:
    found: list[int] = sorted(lake.table(NAME).scan().to_arrow()["n"].to_pylist())
    return found


def by_branch(lake: CatalogClient) -> None:
    state = load(lake, NAME)
    ours = Expected(state.uuid, FencePosition(BRANCH, state.refs[BRANCH]))
    land_rows(lake, NAME, ROWS, ours, lambda _: {}, Attempts())


def doubled(rows: pa.Table) -> tuple[pa.Table, int]:
    return pa.table({"n": pa.array([2 * each for each in rows["n"].to_pylist()], pa.int64())}), len(rows)


def rewrite(lake: CatalogClient) -> None:
    assert rewrite_rows(lake, NAME, "n", doubled, lambda _: {})[1] == 1


COMMITS: dict[str, tuple[Do, list[int]]] = {
    "append upon main": (lambda lake: append_onto(lake, NAME, ROWS, lambda _: {}), [1, 2]),
    "append by branch": (by_branch, [1, 2]),
    "fence": (lambda lake: fence(lake, NAME, lambda _: {}, {}), [1]),
    "rewrite": (rewrite, [2]),
}


class TestCommit:
    @pytest.mark.parametrize("failure", [Conflict("the refusal of a repeated request"), OutcomeUnknown("no answer")])
    @pytest.mark.parametrize("heard", [True, False], ids=["heard", "not heard"])
    @pytest.mark.parametrize(("do", "expected"), COMMITS.values(), ids=COMMITS)
    def test_takes_effect_once_though_every_second_answer_is_lost(
        self,
        lake: CatalogClient,
        monkeypatch: pytest.MonkeyPatch,
        do: Do,
        expected: list[int],
        *,
        heard: bool,
        failure: Exception,
    ) -> None:
        """Every second answer is lost."""
        commit: Callable[..., CommitTableResponse] = lake.pyiceberg.commit_table
        sent: list[int] = []

        def lose(*words: object) -> CommitTableResponse:
            sent.append(1)
            if len(sent) % 2 == 0:
                return commit(*words)
            if heard:
                commit(*words)
            raise failure

        before = len([*load(lake, NAME).ancestors()])
        monkeypatch.setattr(lake.pyiceberg, "commit_table", lose)
        do(lake)
        assert rows_in(lake) == expected
        assert len([*load(lake, NAME).ancestors()]) - before == 1
