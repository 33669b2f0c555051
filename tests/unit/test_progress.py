"""A line that is alive on a terminal, and nothing elsewhere."""

from io import StringIO

from rich.console import Console

from lakehouse_ingest.cli.progress_line import ProgressLine, progress
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.observe.events import BatchLanded, Retrying, SchemaChanged
from lakehouse_ingest.observe.watch import Event, Watch
from telemetry import OFF

LANDED = BatchLanded(
    stream="s",
    batch=1,
    received=1_241,
    landed={"a": 1_000, "b": 234},
    dead={"broken_json": 2},
    filtered=5,
    duration_s=0.8,
)


class TestProgressLine:
    def test_adds_up_batches_and_passes_events_on(self) -> None:
        heard: list[Event] = []
        shown = ProgressLine("plant-7")
        watch = Watch("plant-7", OFF)
        assert "starting" in shown.line().plain
        with watch.heard_by(shown), watch.heard_by(heard.append):
            watch.emit(LANDED)
            watch.emit(LANDED)
            watch.emit(SchemaChanged(table="a", changes=[]))
            assert [each.name for each in heard] == ["batch_landed", "batch_landed", "schema_changed"]
            said = shown.line().plain
            assert said.startswith(
                "plant-7: 2,468 landed, 4 dead letters, 10 filtered in 2 batches; the last took 0.8 s, 0 s ago"
            )
            watch.emit(Retrying(stream="s", attempt=1, wait_s=8.0, error=TryAgain("away")))
            assert shown.line().plain.endswith("; trying again in 8 s")

    def test_is_drawn_on_a_terminal_only(self) -> None:
        for terminal in (True, False):
            screen, heard = StringIO(), list[Event]()
            watch = Watch("plant-7", OFF)
            with (
                watch.heard_by(heard.append),
                progress(watch, "plant-7", Console(file=screen, force_terminal=terminal, width=120)),
            ):
                watch.emit(LANDED)
            assert ("plant-7: 1,234 landed" in screen.getvalue()) is terminal
            assert [each.name for each in heard] == ["batch_landed"]
