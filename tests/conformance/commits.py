"""What the suites of commits do to a table, and who stands between them and a catalog."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
import requests

from catalog import (
    Attempts,
    CatalogClient,
    Column,
    Expected,
    FencePosition,
    TableState,
    land_rows,
    load,
)
from tests.services.catalogs import Can, Kind
from tests.services.landings import expire_history

COLUMNS = (Column("id", "long"), Column("site", "string"))


Send = Callable[[], requests.Response]


def begin(kind: Kind, lake: CatalogClient, name: str) -> None:
    """Where a branch needs some snapshot to stand on, an empty one."""
    if Can.BRANCH_FIRST in kind.cannot:
        foreign_commit(lake, name)


def land(lake: CatalogClient, name: str, *ids: int, branch: str = "ours") -> TableState:
    rows = [{"id": number, "site": "north" if number % 2 else "south"} for number in ids]
    return land_rows(
        lake, name, rows, held(lake, name, branch), lambda _: {"test.ids": ",".join(map(str, ids))}, Attempts()
    )


def held(lake: CatalogClient, name: str, branch: str = "ours") -> Expected:
    """The writer's fence as it is now."""
    state = load(lake, name)
    return Expected(state.uuid, FencePosition(branch, state.refs[branch]))


def foreign_commit(lake: CatalogClient, name: str, *ids: int) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "site": pa.array(["foreign"] * len(ids), pa.string())}))


def ids_in(lake: CatalogClient, name: str) -> list[int]:
    return sorted(lake.pyiceberg.load_table(name).scan().to_arrow()["id"].to_pylist())


def anyhow(_: TableState) -> dict[str, str]:
    return {"test.by": "us"}


@contextmanager
def on_commit(lake: CatalogClient, act: Callable[[Send], requests.Response]) -> Iterator[None]:
    """Stand between us and the catalog for commits; `act` decides when and whether they are sent."""
    session: Any = getattr(lake.pyiceberg, "_session", None)
    if session is None:
        pytest.skip("nobody can stand between us and a catalog that speaks no REST")
    real = session.request

    def request(method: str, url: str, **kwargs: Any) -> requests.Response:
        if method == "POST" and "/tables/" in url:
            return act(lambda: real(method, url, **kwargs))
        return real(method, url, **kwargs)  # type: ignore[no-any-return]

    session.request = request
    try:
        yield
    finally:
        session.request = real


def compact(lake: CatalogClient, name: str) -> None:
    table = lake.pyiceberg.load_table(name)
    table.overwrite(table.scan().to_arrow())


def expire(lake: CatalogClient, name: str) -> None:
    """All that no ref leads to directly: main's way back ends at its head."""
    expire_history(lake.pyiceberg.load_table(name))
    assert not load(lake, name).history_complete()
