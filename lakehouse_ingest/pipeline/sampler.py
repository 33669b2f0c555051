"""What is found out from time to time beside the batches: how far behind, at what cost, and what holds records back.

In a thread of its own: a broker that is slow to answer keeps no stream waiting. Where nobody asks for figures it looks
seldom, for nothing but transactions that hang: only the log tells of these.
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
SELDOM_S = 60.0  # where nobody asks
FIRST_S = 0.5  # until all streams have begun
SAMPLES = 64  # of the ends that were seen; the older, the fewer


# -- how far behind -----------------------------------------------------------------------------------------


@dataclass
class Behind:
    """How far a stream is behind: in offsets, and by when the ends were seen to be there."""

    _seen: list[tuple[float, Offsets]] = field(default_factory=list)  # in their order

    def see(self, moment: float, ends: Offsets) -> None:
        if self._seen and self._seen[-1][1] == ends:
            self._seen[-1] = (moment, ends)  # until then nothing more had come
            return
        self._seen.append((moment, ends))
        if len(self._seen) > SAMPLES:
            half = SAMPLES // 2
            self._seen = [*self._seen[:half:2], *self._seen[half:]]

    def lag(self, landed: Offsets) -> Mapping[TopicPartition, int]:
        ends = self._seen[-1][1] if self._seen else {}
        return {at: max(0, end - landed.get(at, 0)) for at, end in ends.items()}

    def seconds(self, now: float, landed: Offsets, newest: float | None) -> float:
        """For how long the oldest record that has not landed has been waiting, at most.

        All that was there at a moment has landed: so whatever waits has come since. Before the first such moment only
        the broker's time of the newest record that has landed tells: what waits came after it, by and large.
        """
        if not any(self.lag(landed).values()):
            return 0.0
        for moment, ends in reversed(self._seen):
            if all(end <= landed.get(at, 0) for at, end in ends.items()):
                return max(0.0, now - moment)
        return max(0.0, now - (newest if newest is not None else self._seen[0][0]))


# -- what the processes take --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    cpu_s: float
    memory: int  # bytes

    def __add__(self, other: "Used") -> "Used":
        return Used(self.cpu_s + other.cpu_s, self.memory + other.memory)


def used(pid: int) -> Used | None:
    """By a process until now; None where that can't be seen, or it has ended."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
        ticks = int(numbers[11]) + int(numbers[12])  # in itself, and in the kernel for it
    except (OSError, ValueError, IndexError):
        return _ourselves() if pid == os.getpid() else None
    return Used(ticks / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE"))


def _ourselves() -> Used:
    """Without /proc: the memory is the most that there was."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Used(own.ru_utime + own.ru_stime, own.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError, ValueError):  # it may end while it is looked at
            for child in map(int, task.read_text(encoding="utf-8").split()):
                yield child
                yield from descendants(child)


@dataclass
class Processes:
    """What ours have used since they were last asked."""

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
                # Of workers that have ended nothing is known any more: a sum may fall.
                watch.count(
                    "lakehouse.process.cpu", max(0.0, now.cpu_s - self._before.get(process, 0)), process=process
                )
                watch.gauge("lakehouse.process.memory", now.memory, process=process)
                self._before[process] = now.cpu_s


# -- Spark's own words --------------------------------------------------------------------------------------


@dataclass
class QueryProgress:
    """Of one query: what Spark says of its last trigger, which is also a sign that the query is alive."""

    query: StreamingQuery
    said: Mapping[str, Any] = field(default_factory=dict)
    _at: str = ""

    def has_moved(self) -> bool:
        """Whether there was a trigger since the last look, be it an idle one."""
        with suppress(Py4JError, OSError):  # one that has ended is for its stream to find
            # Spark's own object: pyspark's would be asked of the JVM field by field.
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


# -- from time to time --------------------------------------------------------------------------------------


class Sampled(Protocol):
    """What is asked of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def at(self) -> Offsets: ...  # all below has landed; empty before its first start
    @property
    def newest(self) -> float | None: ...  # the broker's time of the newest record that has landed
    @property
    def progress(self) -> QueryProgress | None: ...


@dataclass
class Looks:
    watch: Watch
    settings: SourceSettings
    streams: Sequence[Sampled]
    jvm: int | None
    clock: Callable[[], float] = monotonic
    _behind: dict[str, Behind] = field(default_factory=dict)
    _open: dict[str, OpenTransactions] = field(default_factory=dict)
    _sources: dict[str, tuple[Sequence[str], Source]] = field(default_factory=dict)  # of our own, by stream

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
        landed = stream.at  # before the ends: what lands meanwhile is not behind
        for (topic, number), offset in landed.items():
            self.watch.gauge("lakehouse.offset", offset, stream=stream.name, topic=topic, partition=number)
        moment = time()
        try:
            source = self._source(stream)
            _, high = source.bounds()  # before the ends: what is written meanwhile waits for no transaction
            ends = source.ends()
        except LakehouseError:
            return  # how far behind is not known while the broker is away; that it is, the stream finds
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
    """While the block runs."""
    end = Event()
    thread = Thread(target=_until, args=(end, looks), name="looks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)  # it may be waiting for a broker: what it would find then is of no use any more


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
    except Exception as failure:  # noqa: BLE001 - whatever there is to see, it ends no stream, and no looking
        watch.emit(LookFailed(error=failure, took_s=monotonic() - began))
