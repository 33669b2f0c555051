"""A last line on a terminal, below the lines of the log, with what has landed so far. Elsewhere nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.observe.events import BatchLanded, Retrying
from lakehouse_ingest.observe.figures import ago, count, seconds
from lakehouse_ingest.observe.watch import Event, Watch
from lakehouse_ingest.printable import many

A_SECOND = 4  # how often it is drawn


@dataclass
class ProgressLine:
    """A listener that adds up what has landed."""

    name: str
    batches: int = 0
    landed: int = 0
    dead: int = 0
    filtered: int = 0
    took: float = 0.0
    ended: float | None = None
    waiting: str = "starting"

    def __call__(self, event: Event) -> None:
        match event:
            case BatchLanded():
                self.batches += 1
                self.landed += event.landed_records
                self.dead += event.dead_records
                self.filtered += event.filtered
                self.took, self.ended, self.waiting = event.duration_s, monotonic(), ""
            case Retrying():
                self.waiting = f"trying again in {seconds(event.wait_s)}"

    def line(self) -> Text:
        counts = f"{count(self.landed)} landed, {many(self.dead, 'dead letter')}, {count(self.filtered)} filtered"
        last = ""
        if self.ended is not None:
            last = f"; the last took {seconds(self.took)}, {ago(monotonic() - self.ended)}"
        waiting = f"; {self.waiting}" if self.waiting else ""
        said = f"{self.name}: {counts} in {many(self.batches, 'batch', 'batches')}{last}{waiting}"
        return Text(said, style="bold", no_wrap=True, overflow="ellipsis")


@contextmanager
def progress(watch: Watch, name: str, console: Console | None = None) -> Iterator[None]:
    console = console or Terminal(stderr=True)
    if not console.is_terminal:
        yield
        return
    shown = ProgressLine(name)
    with (
        watch.heard_by(shown),
        # Other output to stderr appears above it.
        Live(
            console=console,
            get_renderable=shown.line,
            refresh_per_second=A_SECOND,
            transient=True,
            redirect_stdout=False,
        ),
    ):
        yield
