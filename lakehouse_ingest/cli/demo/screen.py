"""Few lines while the demo runs: what happened when, and how far the counts are."""

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.cli.demo.plant import Plant
from lakehouse_ingest.cli.demo.proof import Batch
from lakehouse_ingest.environment.terminal import Terminal

LINE_S = 5.0  # how often a line is written where there is no terminal


@dataclass
class Counts:
    """What has happened so far, for whoever looks on."""

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
            f"produced {self.produced:,}  landed {self.landed.total():,}  dead {self.dead:,}"
            f"  filtered {self.filtered:,}" + ("" if fresh is None else f"  after {fresh:.1f} s")
        )


class Screen:
    """Few lines with the time before each; between them the counts, alive on a terminal, now and then elsewhere."""

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

    def line(self) -> None:
        """The counts, where nobody sees them alive and if it is time for them."""
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


@dataclass
class Told:
    """Stands where the pipeline tells what happens: noted here, and on it goes to logs and telemetry as ever."""

    events: Any
    screen: Screen

    def batch_landed(self, **told: Any) -> None:
        counts = self.screen.counts
        counts.batches.append(Batch(told["received"], told["duration_s"], told["freshness_s"]))
        if first := [name for name in told["landed"] if name not in counts.landed]:
            self.screen.say(f"first rows are visible in {', '.join(sorted(first))}")
        counts.landed.update(told["landed"])
        counts.dead += sum(told["dead"].values())
        counts.filtered += told["filtered"]
        self.events.batch_landed(**told)

    def schema_changed(self, **told: Any) -> None:
        for change in told["changes"]:
            self.screen.say(f"{told['table']} has a new column: {change.removeprefix('+ ')}")
        self.events.schema_changed(**told)

    def retrying(self, **told: Any) -> None:
        self.screen.say(f"trying again in {told['wait_s']:.0f} s: {told['error']}")
        self.events.retrying(**told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)
