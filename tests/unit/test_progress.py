"""A line that is alive on a terminal, and nothing elsewhere."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from lakehouse_ingest.cli.progress_line import Progress, progress

LANDED: dict[str, Any] = {
    "landed": {"a": 1_000, "b": 234},
    "dead": {"broken_json": 2},
    "filtered": 5,
    "duration_s": 0.8,
}


class Heard:
    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda **_: self.told.append(name)


def test_it_counts_and_passes_on() -> None:
    heard = Heard()
    shown = Progress(heard, "plant-7")
    assert "starting" in shown.line().plain
    shown.batch_landed(**LANDED)
    shown.batch_landed(**LANDED)
    shown.schema_changed(table="a", changes=[])
    assert heard.told == ["batch_landed", "batch_landed", "schema_changed"]
    said = shown.line().plain
    assert said.startswith(
        "plant-7: 2,468 landed, 4 dead letters, 10 filtered in 2 batches; the last took 0.8 s, 0 s ago"
    )
    shown.retrying(wait_s=8.0)
    assert shown.line().plain.endswith("; trying again in 8 s")


def test_it_is_drawn_on_a_terminal_only() -> None:
    for terminal in (True, False):
        screen, heard = StringIO(), Heard()
        watch: Any = SimpleNamespace(events=heard)
        with progress(watch, "plant-7", Console(file=screen, force_terminal=terminal, width=120)):
            watch.events.batch_landed(**LANDED)
        assert ("plant-7: 1,234 landed" in screen.getvalue()) is terminal
        assert heard.told == ["batch_landed"]
