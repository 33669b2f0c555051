"""On a terminal, below the lines of the log, one that is alive: what has landed so far. Elsewhere nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.observe.watch import Watch

A_SECOND = 4  # how often it is drawn


@dataclass
class Progress:
    """Stands where the pipeline tells what happens; on it goes to logs and telemetry as ever."""

    events: Any
    name: str
    batches: int = 0
    landed: int = 0
    dead: int = 0
    filtered: int = 0
    took: float = 0.0
    ended: float | None = None
    waiting: str = "starting"

    def batch_landed(self, **told: Any) -> None:
        self.batches += 1
        self.landed += sum(told["landed"].values())
        self.dead += sum(told["dead"].values())
        self.filtered += told["filtered"]
        self.took, self.ended, self.waiting = told["duration_s"], monotonic(), ""
        self.events.batch_landed(**told)

    def retrying(self, **told: Any) -> None:
        self.waiting = f"trying again in {told['wait_s']:.0f} s"
        self.events.retrying(**told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)

    def line(self) -> Text:
        counts = f"{self.landed:,} landed, {self.dead:,} dead letters, {self.filtered:,} filtered"
        last = "" if self.ended is None else f"; the last took {self.took:.1f} s, {monotonic() - self.ended:.0f} s ago"
        said = f"{self.name}: {counts} in {self.batches:,} batches{last}{'; ' if self.waiting else ''}{self.waiting}"
        return Text(said, style="bold", no_wrap=True, overflow="ellipsis")


@contextmanager
def progress(watch: Watch, name: str, console: Console | None = None) -> Iterator[None]:
    console = console or Terminal(stderr=True)
    if not console.is_terminal:
        yield
        return
    told: Any = Progress(watch.events, name)
    watch.events = told
    # Whoever writes to stderr meanwhile writes above it.
    with Live(
        console=console,
        get_renderable=told.line,
        refresh_per_second=A_SECOND,
        transient=True,
        redirect_stdout=False,
    ):
        yield
