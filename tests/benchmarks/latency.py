"""How long an event takes from its producer to a reader that comes through the catalog.

The reader looks every few milliseconds whether the catalog has a new version of the table, loads it by REST, and learns
from the mark of the snapshot up to which offset the table holds each partition. What it sees then first is visible
then. So that nobody has to believe the marks, each version must have as many rows as its mark says.
"""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from lakehouse_ingest.environment.embedded.catalog import OWN
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import MARK
from tests.benchmarks.feeder import A_SECOND
from tests.benchmarks.figures import Sample, cpu_at, percentile
from tests.benchmarks.ours import BASE, Ours, Tables
from tests.benchmarks.process_tree import ProcessTree
from tests.benchmarks.race import Ground
from tests.benchmarks.results import MEGABYTE, ROOT, LatencyResult
from tests.benchmarks.systems import Started, Surroundings, event
from tests.benchmarks.topics import PARTITIONS

TABLE = "events"
DEFAULT = "5s"  # of `every`
LOOK = 0.01
SAMPLE, SELDOM = 0.2, 25  # seconds; samples
WARM_S = 10  # the first seconds at this rate, in which Java still compiles; they do not count
BEFORE = 6_000  # events that are there at first, so that table and workers are there too
PATIENCE = 120.0


@dataclass(frozen=True)
class Seen:
    """A version of the table, as the reader saw it first."""

    at: float  # seconds since 1970
    held: dict[int, int]  # by partition: the offset after the last one
    rows: int
    files: int


class Reader:
    """Looks at the table while a system runs. The catalog's own file says when it is worth asking the catalog."""

    def __init__(self, here: Surroundings, started: Started) -> None:
        self.seen: list[Seen] = []
        self.samples: list[Sample] = []
        self.tree = ProcessTree(started.pid)
        self._here, self._started, self._location = here, started, ""
        self._tables = Tables(here)
        self._versions = sqlite3.connect(f"file:{here.warehouse / OWN / 'catalog.db'}?mode=ro", uri=True)

    @property
    def rows(self) -> int:
        return self.seen[-1].rows if self.seen else 0

    def watch(self, until: Callable[[], bool], patience: float) -> None:
        deadline = time.monotonic() + patience
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.rows:,} rows were visible after {patience:.0f} s")
            self._look()
            if not self.samples or time.time() - self.samples[-1].at >= SAMPLE:
                self.samples.append(Sample(time.time(), self.tree.cpu(), self.rows))
                if len(self.samples) % SELDOM == 0:
                    self._started.rows()  # raises if it has ended
            time.sleep(LOOK)

    def _look(self) -> None:
        found = self._versions.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            (self._here.namespace, TABLE),
        ).fetchone()
        if found and found[0] != self._location:
            self._location = found[0]
            seen = seen_in(self._tables.summary(TABLE), time.time())
            if seen and seen.rows > self.rows:
                self.seen.append(seen)

    def close(self) -> None:
        self._started.stop()
        self._versions.close()


def seen_in(summary: Mapping[str, str], at: float) -> Seen | None:
    """What the summary of a snapshot says. None where it has no mark: the table is empty."""
    mark = next((marks.decode(text) for key, text in summary.items() if key.startswith(MARK)), None)
    if mark is None or "total-records" not in summary:
        return None
    held = {partition: offset for (_, partition), offset in mark.next.items()}
    seen = Seen(at, held, int(summary["total-records"]), int(summary["total-data-files"]))
    if sum(held.values()) != seen.rows:
        raise RuntimeError(f"the mark says {sum(held.values())} rows, the table has {seen.rows}")
    return seen


def delays(
    seen: Sequence[Seen], times: Sequence[float], first: int, each: int, skipped: int
) -> Iterator[tuple[float, int]]:
    """Seconds from producer to reader, each with how many events took so long.

    `times` is when each tick was sent, `each` how many events it had, beginning with number `first`. The first
    `skipped` ticks don't count.
    """
    begin = first + skipped * each
    for before, now in zip([replace(seen[0], held={}), *seen], seen, strict=False):
        for partition, end in now.held.items():
            # Numbers of this partition are partition, partition + P, partition + 2 P, …
            start = max(before.held.get(partition, 0), -(-(begin - partition) // PARTITIONS))
            offset = start
            while offset < end:
                tick = (offset * PARTITIONS + partition - first) // each
                following = -(-(first + (tick + 1) * each - partition) // PARTITIONS)
                upto = min(end, max(following, offset + 1))
                yield now.at - times[tick], upto - offset
                offset = upto


def measured(ground: Ground, rate: int, every: str, seconds: int) -> LatencyResult:
    """`every` is the commit interval; empty: the default."""
    label = f"latency_{rate}_{every or 'default'}"
    system = Ours(label, stream=f'every = "{every}"' if every else "", table=BASE.table)
    topic, count = ground.topics.filled(label, event, BEFORE), BEFORE + rate * (WARM_S + seconds)
    with ground.place(label, topic) as here:
        with closing(Reader(here, system.start(here, count))) as reader:
            reader.watch(lambda: reader.rows >= BEFORE, PATIENCE)
            times = _fed(reader, here, rate, WARM_S + seconds)
            reader.watch(lambda: reader.rows >= count, PATIENCE)
        Tables(here).check(count)
    return _result(rate, every or DEFAULT, reader, times)


def _fed(reader: Reader, here: Surroundings, rate: int, seconds: int) -> list[float]:
    """When the producer sent each of its ticks."""
    file = here.folder / "times.json"
    words = (here.brokers, here.topic, BEFORE, rate, seconds, file)
    command = [sys.executable, "-m", "tests.benchmarks.feeder", *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT) as feeding:
        try:
            reader.watch(lambda: feeding.poll() is not None, seconds + PATIENCE)
        finally:
            feeding.kill()
    if feeding.returncode:
        raise RuntimeError(f"the producer ended with {feeding.returncode}")
    times: list[float] = json.loads(file.read_text(encoding="utf-8"))
    return times


def _result(rate: int, every: str, reader: Reader, times: Sequence[float]) -> LatencyResult:
    skipped = WARM_S * A_SECOND
    found = [*delays(reader.seen, times, BEFORE, rate // A_SECOND, skipped)]
    begin, end = times[skipped], times[-1]
    counted = [each for each in reader.seen if begin <= each.at <= end]
    return LatencyResult(
        rate=rate,
        every=every,
        seconds=round(end - begin, 1),
        events=sum(count for _, count in found),
        p50=round(percentile(found, 50), 3),
        p95=round(percentile(found, 95), 3),
        p99=round(percentile(found, 99), 3),
        cpu=round((cpu_at(reader.samples, end) - cpu_at(reader.samples, begin)) / (end - begin), 3),
        peak_mb=round(reader.tree.peak / MEGABYTE),
        commits=len(counted),
        files=counted[-1].files - counted[0].files if counted else 0,
    )
