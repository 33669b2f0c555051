"""What a batch costs while one thing grows.

The rows of a batch, the tables, Kafka partitions, open time partitions, columns, or the commits in the table.
Everything else stays as it is. The first batches of each run warm it up, and do not count.
"""

import datetime as dt
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bars import ALL_COMMITS, COMMITS
from tests.benchmarks.figures import Sample, cpu_at
from tests.benchmarks.ours import DECLARED, Ours
from tests.benchmarks.process_tree import ProcessTree
from tests.benchmarks.race import Ground
from tests.benchmarks.results import GrowthResult, Point
from tests.benchmarks.systems import BEGINS_MS, TIME, event
from tests.benchmarks.topics import PARTITIONS, Made

LOOK, SELDOM = 0.2, 25  # seconds; looks
WARMING, COUNTED = 3, 8  # batches
FEW = 3  # of the largest
PATIENCE = 240.0
COMMITS_MINUTES = 15.0
A_COMMIT = 100  # rows
WINDOW = 100  # batches
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Step:
    """One run: a stream, the topic that it reads, and how large its batches are."""

    x: int
    made: Made
    rows: int
    stream: str = ""
    table: str = f'table = "events"\n{DECLARED}'
    partitions: int = PARTITIONS
    warming: int = WARMING
    counted: int = COUNTED

    @property
    def batches(self) -> int:
        return self.warming + self.counted

    def is_done(self, batches: int) -> bool:
        return batches >= self.batches

    @property
    def count(self) -> int:
        return self.rows * self.batches


@dataclass(frozen=True)
class Batches:
    """When each batch of a run was complete, and how long it took; and what the tree had taken by then."""

    ends: Sequence[float]  # seconds since 1970
    took: Sequence[float]
    samples: Sequence[Sample]

    def point(self, x: float, first: int, last: int) -> Point:
        """Of the batches from `first` + 1 to `last`."""
        spent = cpu_at(self.samples, self.ends[last]) - cpu_at(self.samples, self.ends[first])
        seconds = sum(self.took[first + 1 : last + 1])
        return Point(x, round(spent / (last - first), 4), round(seconds / (last - first), 4))


def _small(number: int, _count: int) -> tuple[bytes, bytes]:
    return b"", b'{"%s":%d,"seq":%d}' % (TIME.encode(), BEGINS_MS, number)


def _typed(tables: int) -> Made:
    def made(number: int, _count: int) -> tuple[bytes, bytes]:
        kind = number // PARTITIONS % tables
        return b"", b'{"%s":%d,"seq":%d,"kind":"k%03d"}' % (TIME.encode(), BEGINS_MS, number, kind)

    return made


def _at_hours(hours: int) -> Made:
    def made(number: int, _count: int) -> tuple[bytes, bytes]:
        at = BEGINS_MS + number // PARTITIONS % hours * HOUR_MS
        return b"", b'{"%s":%d,"seq":%d,"text":"event %d"}' % (TIME.encode(), at, number, number)

    return made


def _wide(columns: int) -> Made:
    def made(number: int, _count: int) -> tuple[bytes, bytes]:
        rest = ",".join(f'"c{column}":{number % 1000 + column}.5' for column in range(2, columns))
        return b"", f'{{"{TIME}":{BEGINS_MS},"seq":{number},{rest}}}'.encode()

    return made


NUMBERED = (
    f'table = "events"\nevent_time = "{TIME}"\nevent_time_unit = "ms"\n'
    f'columns = [{{ name = "{TIME}", type = "long" }}, {{ name = "seq", type = "long" }}]'
)
BY_KIND = 'type_from = "field:kind"\nmax_tables = 300'
BY_HOUR = f'table = "events"\nevent_time = "{TIME}"\npartition_by = ["hour(event_time)"]'


def _steps() -> Iterator[tuple[str, str, Sequence[Step]]]:
    yield (
        "rows a batch",
        "rows",
        [
            *(Step(rows, event, rows) for rows in (100, 1_000, 10_000, 100_000)),
            Step(1_000_000, event, 1_000_000, warming=1, counted=FEW),
        ],
    )
    yield (
        "tables",
        "tables, 20,000 rows a batch",
        [Step(tables, _typed(tables), 20_000, BY_KIND, 'table = "{type}"') for tables in (1, 20, 200)],
    )
    yield (
        "Kafka partitions",
        "partitions, 60,000 rows a batch",
        [Step(partitions, _small, 60_000, table=NUMBERED, partitions=partitions) for partitions in (6, 60, 600)],
    )
    yield (
        "open time partitions",
        "hours in a batch of 100,000 rows",
        [Step(hours, _at_hours(hours), 100_000, table=BY_HOUR) for hours in (1, 24, 100, 500)],
    )
    yield (
        "columns",
        "columns, 5,000 rows a batch",
        [
            Step(columns, _wide(columns), 5_000, table=f'table = "events"\nevent_time = "{TIME}"')
            for columns in (8, 50, 200, 500)
        ],
    )


def measured(ground: Ground, minutes: float = COMMITS_MINUTES) -> list[GrowthResult]:
    """`minutes`: how long commits are added, if there are not 10,000 of them before."""
    found = []
    for name, unit, steps in _steps():
        result = GrowthResult(name, unit)
        for step in steps:
            batches = run(ground, name, step, step.is_done, PATIENCE)
            result.points.append(batches.point(step.x, step.warming - 1, step.batches - 1))
            print(f"{name}, {step.x:,}: {result.points[-1]}", file=sys.stderr, flush=True)
        found.append(result)
    return [*found, _commits(ground, minutes)]


def _commits(ground: Ground, minutes: float) -> GrowthResult:
    step = Step(0, _small, A_COMMIT, table=NUMBERED, counted=ALL_COMMITS + WINDOW)
    ends = time.monotonic() + minutes * 60

    def enough(done: int) -> bool:
        return done > ALL_COMMITS + WINDOW or (done > WINDOW and time.monotonic() > ends)

    batches = run(ground, COMMITS, step, enough, minutes * 60 + PATIENCE)
    return GrowthResult(COMMITS, f"commits of {A_COMMIT} rows", windows(batches))


def windows(batches: Batches, size: int = WINDOW, every: int = 1_000) -> list[Point]:
    """The first hundred batches, then a hundred after each thousand, and the last hundred.

    Of the first hundred the first ones warm up, and do not count.
    """
    whole = len(batches.ends) - 1
    starts = sorted({0, *range(every, whole - size + 1, every), max(0, whole - size)})
    return [batches.point(start, start or WARMING, min(start + size, whole)) for start in starts]


class Landings:
    """The batches of a run, as its log names them."""

    def __init__(self, log: Path) -> None:
        self._log, self._read, self._rest = log, 0, b""
        self.ends: list[float] = []
        self.took: list[float] = []

    def look(self) -> int:
        """How many there are now."""
        with self._log.open("rb") as lines:
            lines.seek(self._read)
            more = lines.read()
        self._read += len(more)
        *whole, self._rest = (self._rest + more).split(b"\n")
        for line in whole:
            if b'"batch_landed"' in line:
                event = json.loads(line)
                self.ends.append(dt.datetime.fromisoformat(event["timestamp"]).timestamp())
                self.took.append(event["duration_s"])
        return len(self.ends)


def run(ground: Ground, label: str, step: Step, enough: Callable[[int], bool], patience: float) -> Batches:
    """One pipeline, until it has written enough batches."""
    name = f"growth-{label}-{step.x}".replace(" ", "-") if step.made is not event else f"plain-{step.count}"
    topic = ground.topics.filled(name, step.made, step.count, step.partitions)
    stream = f'every = "0s"\nmax_records = {step.rows}\n{step.stream}'
    system = Ours(f"growth {label}", stream=stream, table=step.table)
    with ground.place(f"growth_{label}_{step.x}", topic, step.partitions) as here:
        started = system.start(here, step.count)
        try:
            tree, samples, log = ProcessTree(started.pid), list[Sample](), Landings(here.folder / "log.txt")
            deadline = time.monotonic() + patience
            while not enough(log.look()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{label}, {step.x}: {len(log.ends)} batches after {patience:.0f} s")
                samples.append(Sample(time.time(), tree.cpu(), 0))
                if len(samples) % SELDOM == 0:
                    started.rows()  # raises if it has ended
                time.sleep(LOOK)
            samples.append(Sample(time.time(), tree.cpu(), 0))
        finally:
            started.stop()
    return Batches(log.ends, log.took, samples)
