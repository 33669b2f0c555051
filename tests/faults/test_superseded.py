"""Rule 16: a process that a newer start has replaced changes nothing of a table, by whichever way both publish.

On the real catalog, and without Spark: the older process is the effects that a start has, and the newer one has only
begun. Whatever it does, the older one finds out by being refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import pytest

from lakehouse_ingest.errors import Superseded
from lakehouse_ingest.tables import Add, Column, Partition, PipelineTables, Position, Registered, TableSpec, TableState
from lakehouse_ingest.tables.effects import ChangesTables
from tests.services.doors import connection_to

pytestmark = [pytest.mark.live, pytest.mark.faults]

NAMESPACE = "ns_superseded"
CHANGES: dict[str, Callable[[ChangesTables, Position], object]] = {
    "adds a column": lambda effects, place: effects.change(place, [Add("", Column("more", "string"))]),
    "lays a table out": lambda effects, place: effects.lay_out(place, (Partition("n"),)),
    "sets a property": lambda effects, place: effects.set_properties(place, {"told.by": "who was replaced"}),
    "registers a table": lambda effects, place: effects.register(place, {"ns.other": Registered("uuid")}),
}
WAYS = ["branch", "direct"]
_number = count(1)


@dataclass
class Starts:
    """An older and a newer start of one pipeline at one table."""

    uri: str
    name: str

    def of(self, way: str) -> tuple[ChangesTables, Position]:
        lake = PipelineTables(connection_to(self.uri), "plant", way)
        lake.ensure_namespace(NAMESPACE)
        lake.create(TableSpec(self.name, (Column("n", "long"),)))
        place, _ = lake.claim(self.name, ())
        return lake, place

    def seen(self) -> TableState:
        found = PipelineTables(connection_to(self.uri), "reader").find(self.name)
        assert found
        return found


@pytest.fixture
def starts(rest_uri: str) -> Starts:
    return Starts(rest_uri, f"{NAMESPACE}.t_{next(_number)}")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
class TestChangeOfATable:
    @pytest.mark.parametrize(("way", "then"), [*product(WAYS, repeat=2)])
    def test_by_a_process_that_was_replaced_is_refused(
        self, starts: Starts, change: Callable[..., Any], way: str, then: str
    ) -> None:
        older, place = starts.of(way)
        starts.of(then)
        before = starts.seen()
        for _ in range(2):
            with pytest.raises(Superseded, match="epoch 2"):
                change(older, place)
        assert starts.seen() == before

    @pytest.mark.parametrize("way", WAYS)
    def test_by_the_start_that_has_the_table_is_made(
        self, starts: Starts, change: Callable[..., Any], way: str
    ) -> None:
        effects, place = starts.of(way)
        before = starts.seen()
        change(effects, place)
        after = starts.seen()
        assert after.metadata_location != before.metadata_location
        assert after.refs == before.refs
