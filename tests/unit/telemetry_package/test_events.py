"""Events are values; each goes to all listeners, and leaves a line and its metrics. No pipeline is needed for it."""

from dataclasses import dataclass

import structlog
from structlog.testing import capture_logs

from telemetry import Event, Events, LogLines, Meter, Metrics
from telemetry.testing import recorded

AT = {"log_level": "warning", "event": "table_full"}


@dataclass(frozen=True, kw_only=True)
class TableFull(Event, name="table_full", level="warning"):
    table: str
    took_s: float
    why: BaseException | None = None

    def measure(self, to: Meter) -> None:
        to.count("lakehouse.snapshots.expired", 3, table=self.table)


class TestEvent:
    def test_writes_a_log_line_and_counts_a_metric(self) -> None:
        with recorded() as seen, capture_logs() as lines:
            events = Events(LogLines(structlog.get_logger()), Metrics(Meter(seen.telemetry, pipeline="plant-7")))
            events.emit(TableFull(table="a", took_s=1.23456))
            assert seen.total("lakehouse.snapshots.expired", pipeline="plant-7", table="a") == 3
        assert lines == [{**AT, "table": "a", "took_s": 1.235}]

    def test_shows_an_error_as_its_type_and_message(self) -> None:
        assert TableFull(table="a", took_s=1, why=OSError("no room")).line()["why"] == "OSError: no room"

    def test_reaches_the_listeners_in_order_while_they_are_registered(self) -> None:
        heard: list[str] = []
        events = Events(lambda _: heard.append("first"))
        with events.heard_by(lambda _: heard.append("second")):
            events.emit(TableFull(table="a", took_s=1))
        events.emit(TableFull(table="a", took_s=1))
        assert heard == ["first", "second", "first"]
