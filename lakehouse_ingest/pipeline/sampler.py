"""Measure from time to time, beside the batches: lag, CPU and memory, and open transactions that hold records back.

It runs in a thread of its own, so that a slow broker does not delay a stream. If no metrics and no page are asked for,
it looks seldom, and only for transactions that hang, which are reported in the log.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.environment.spark_internals import java_query
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.observe.events import LookFailed, TransactionHangs
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.sources.open_transactions import OpenTransactions, uncommitted

LOOK_S = 5.0
SELDOM_S = 60.0  # if nobody asks for figures
FIRST_S = 0.5  # until all streams have begun
SAMPLES = 64  # past ends to remember; older ones are thinned out


# -- lag ----------------------------------------------------------------------------------------------------


@dataclass
class Behind:
    """The lag of a stream, in records and in seconds."""

    _seen: list[tuple[float, Offsets]] = field(default_factory=list)  # moments and ends, oldest first

    def see(self, moment: float, ends: Offsets) -> None:
        if self._seen and self._seen[-1][1] == ends:
            self._seen[-1] = (moment, ends)  # nothing more had arrived by this moment
            return
        self._seen.append((moment, ends))
        if len(self._seen) > SAMPLES:
            half = SAMPLES // 2
            self._seen = [*self._seen[:half:2], *self._seen[half:]]

    def lag(self, landed: Offsets) -> Mapping[TopicPartition, int]:
        ends = self._seen[-1][1] if self._seen else {}
        return {at: max(0, end - landed.get(at, 0)) for at, end in ends.items()}

    def seconds(self, now: float, landed: Offsets, newest: float | None) -> float:
        """The longest time that any uncommitted record can have been waiting.

        If all records up to a past moment's ends are committed, every waiting record arrived after that moment. Before
        there is such a moment, use the broker's time of the newest committed record: most waiting records are newer.
        """
        if not any(self.lag(landed).values()):
            return 0.0
        for moment, ends in reversed(self._seen):
            if all(end <= landed.get(at, 0) for at, end in ends.items()):
                return max(0.0, now - moment)
        return max(0.0, now - (newest if newest is not None else self._seen[0][0]))


# -- CPU and memory -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    """What a process has used."""

    cpu_s: float
    memory: int  # bytes

    def __add__(self, other: "Used") -> "Used":
        return Used(self.cpu_s + other.cpu_s, self.memory + other.memory)


def used(pid: int) -> Used | None:
    """What a process has used until now. None if it has ended or cannot be seen."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
        ticks = int(numbers[11]) + int(numbers[12])  # user time and system time
    except (OSError, ValueError, IndexError):
        return _ourselves() if pid == os.getpid() else None
    return Used(ticks / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE"))


def _ourselves() -> Used:
    """The same for this process, without /proc. The memory is the peak, because nothing else is known."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Used(own.ru_utime + own.ru_stime, own.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError, ValueError):  # the process may end during the look
            for child in map(int, task.read_text(encoding="utf-8").split()):
                yield child
                yield from descendants(child)


@dataclass
class Processes:
    """The CPU and memory of our processes, since the last look."""

    jvm: int | None
    _before: dict[str, float] = field(default_factory=dict)

    def look(self, watch: Watch) -> None:
        found = {"driver": used(os.getpid())}
        if self.jvm is not None:
            found["jvm"] = used(self.jvm)
            workers = [each for pid in descendants(self.jvm) if (each := used(pid))]
            if workers:
                found["workers"] = sum(workers, Used(0, 0))
        for process, now in found.items():
            if now is not None:
                # Workers that have ended no longer count, so the sum may fall.
                watch.count(
                    "lakehouse.process.cpu", max(0.0, now.cpu_s - self._before.get(process, 0)), process=process
                )
                watch.gauge("lakehouse.process.memory", now.memory, process=process)
                self._before[process] = now.cpu_s


# -- Spark's progress ---------------------------------------------------------------------------------------


@dataclass
class QueryProgress:
    """Spark's report on the last trigger of a query. A new report also shows that the query is alive."""

    query: StreamingQuery
    said: Mapping[str, Any] = field(default_factory=dict)
    _at: str = ""

    def has_moved(self) -> bool:
        """True if there was a trigger since the last look, even an idle one."""
        with suppress(Py4JError, OSError):  # the stream itself finds out that its query has ended
            # Read Spark's own object as one JSON text: pyspark asks the JVM for each field.
            last = java_query(self.query).lastProgress()
            if last is not None and (at := str(last.timestamp())) != self._at:
                self._at, self.said = at, json.loads(last.json())
                return True
        return False

    def look(self, watch: Watch, stream: str) -> None:
        for name, instrument in (
            ("inputRowsPerSecond", "lakehouse.spark.input.rate"),
            ("processedRowsPerSecond", "lakehouse.spark.processed.rate"),
        ):
            if isinstance(rate := self.said.get(name), int | float):
                watch.gauge(instrument, rate, stream=stream)
        for phase, milliseconds in self.said.get("durationMs", {}).items():
            watch.gauge("lakehouse.spark.phase.duration", milliseconds / 1000, stream=stream, phase=phase)


# -- the sampler --------------------------------------------------------------------------------------------


class Sampled(Protocol):
    """What the sampler reads of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def at(self) -> Offsets: ...  # all offsets below are committed; empty before its first start
    @property
    def newest(self) -> float | None: ...  # the broker's time of the newest committed record
    @property
    def progress(self) -> QueryProgress | None: ...


@dataclass
class Looks:
    """Looks at all streams, and reports what it finds."""

    watch: Watch
    settings: SourceSettings
    streams: Sequence[Sampled]
    jvm: int | None
    clock: Callable[[], float] = monotonic
    _behind: dict[str, Behind] = field(default_factory=dict)
    _open: dict[str, OpenTransactions] = field(default_factory=dict)
    _sources: dict[str, tuple[Sequence[str], Source]] = field(default_factory=dict)  # its own, by stream

    def __post_init__(self) -> None:
        self._processes = Processes(self.jvm)

    def look(self) -> None:
        if self.watch.looked_at:
            self._processes.look(self.watch)
        for stream in self.streams:
            if stream.at:
                if (progress := stream.progress) and self.watch.looked_at:
                    progress.look(self.watch, stream.name)
                self._offsets(stream)

    def _offsets(self, stream: Sampled) -> None:
        behind = self._behind.setdefault(stream.name, Behind())
        landed = stream.at  # read before the ends, so that the lag is never reported too small
        for (topic, number), offset in landed.items():
            self.watch.gauge("lakehouse.offset", offset, stream=stream.name, topic=topic, partition=number)
        moment = time()
        try:
            source = self._source(stream)
            _, high = source.bounds()  # read before the ends, so that new records do not look held back
            ends = source.ends()
        except LakehouseError:
            return  # there is no lag to report while the broker does not answer; the stream reports the outage
        self.watch.uncommitted(stream.name, uncommitted(ends, high))
        for found in self._open.setdefault(stream.name, OpenTransactions()).see(self.clock(), ends, high):
            self.watch.emit(
                TransactionHangs(
                    stream=stream.name,
                    topic=found.topic,
                    partition=found.partition,
                    offset=found.stable,
                    error=found.sentence(self.settings.brokers),
                )
            )
        behind.see(moment, ends)
        self.watch.lag(stream.name, behind.lag(landed), behind.seconds(time(), landed, stream.newest))

    def _source(self, stream: Sampled) -> Source:
        topics, found = self._sources.get(stream.name, ((), None))
        if found is None or topics != stream.topics:
            topics = stream.topics
            found = sources.chosen(self.settings)(self.settings, topics)
            self._sources[stream.name] = (topics, found)
        return found


@contextmanager
def looking(looks: Looks) -> Iterator[None]:
    """Look from time to time until the block ends."""
    end = Event()
    thread = Thread(target=_until, args=(end, looks), name="looks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)  # not longer: it may be waiting for a broker, and nobody needs its figures now


def _until(end: Event, looks: Looks) -> None:
    while not end.wait(_pause(looks)):
        _safely(looks.look, looks.watch)


def _pause(looks: Looks) -> float:
    if not looks.watch.looked_at:
        return SELDOM_S
    return LOOK_S if all(stream.at for stream in looks.streams) else FIRST_S


def _safely(look: Callable[[], None], watch: Watch) -> None:
    began = monotonic()
    try:
        look()
    except Exception as failure:  # noqa: BLE001 - no failure here may end a stream, or the sampler
        watch.emit(LookFailed(error=failure, took_s=monotonic() - began))
