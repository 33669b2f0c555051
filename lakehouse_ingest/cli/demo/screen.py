"""Few lines while the demo runs: what happened when, and how far the counts are."""

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.cli.demo.plant import Plant
from lakehouse_ingest.cli.demo.proof import Batch
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.observe.events import BatchLanded, Retrying, SchemaChanged
from lakehouse_ingest.observe.figures import count, seconds
from lakehouse_ingest.observe.watch import Event

LINE_S = 5.0  # how often a line is written where there is no terminal


@dataclass
class Counts:
    """What has happened so far, to be shown while the demo runs."""

    producers: list[Plant] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    landed: Counter[str] = field(default_factory=Counter)  # by table
    dead: int = 0
    filtered: int = 0

    @property
    def produced(self) -> int:
        return sum(each.made.acknowledged for each in self.producers)

    @property
    def received(self) -> int:
        return sum(batch.received for batch in self.batches)

    def __str__(self) -> str:
        fresh = next((batch.freshness for batch in reversed(self.batches) if batch.freshness is not None), None)
        return (
            f"produced {count(self.produced)}  landed {count(self.landed.total())}  dead {count(self.dead)}"
            f"  filtered {count(self.filtered)}" + ("" if fresh is None else f"  after {seconds(fresh)}")
        )


class Screen:
    """Few lines with the time before each. Between them the counts: always on a terminal, now and then elsewhere."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        self.counts = Counts()
        self.seconds = 0.0  # of producing, for the bar; 0: no bar
        self.every = LINE_S
        self._began = self._last = monotonic()
        self._live: Live | None = None

    @property
    def elapsed(self) -> float:
        return monotonic() - self._began

    def begin(self) -> None:
        self._began = self._last = monotonic()

    def say(self, text: str) -> None:
        self.console.print(Text(f"{self.elapsed:5.1f} s  {text}"), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """As a listener to the pipeline."""
        match event:
            case BatchLanded():
                self._batch(event)
            case SchemaChanged():
                for change in event.changes:
                    self.say(f"{event.table} has a new column: {change.removeprefix('+ ')}")
            case Retrying():
                self.say(f"trying again in {seconds(event.wait_s)}: {event.error}")

    def _batch(self, event: BatchLanded) -> None:
        counts = self.counts
        counts.batches.append(Batch(event.received, event.duration_s, event.freshness_s))
        if first := [name for name in event.landed if name not in counts.landed]:
            self.say(f"first rows are visible in {', '.join(sorted(first))}")
        counts.landed.update(event.landed)
        counts.dead += event.dead_records
        counts.filtered += event.filtered

    def line(self) -> None:
        """Print the counts if no live display shows them and it is time to."""
        if self._live is None and monotonic() - self._last >= self.every:
            self._last = monotonic()
            self.say(str(self.counts))

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            began = monotonic()
            self._live = Live(
                console=self.console,
                get_renderable=lambda: self._alive(monotonic() - began),
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _alive(self, since: float) -> Table | Text:
        counts = Text(f"{self.elapsed:5.1f} s  {self.counts}", style="bold", no_wrap=True, overflow="ellipsis")
        if not self.seconds:
            return counts
        lines = Table.grid()
        lines.add_row(ProgressBar(self.seconds, min(since, self.seconds), width=79))
        lines.add_row(counts)
        return lines
