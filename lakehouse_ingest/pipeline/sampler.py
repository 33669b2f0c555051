"""Measure from time to time, beside the batches: lag, CPU and memory, and open transactions that hold records back.

It runs in a thread of its own, so that a slow broker does not delay a stream. If no metrics and no page are asked for,
it looks seldom, and only for transactions that hang, which are reported in the log.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic, time
from typing import Protocol

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.observe.events import LookFailed, TransactionHangs
from lakehouse_ingest.observe.processes import Processes
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.lag import Behind
from lakehouse_ingest.pipeline.query_progress import QueryProgress
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.sources.kafka.open_transactions import OpenTransactions, uncommitted

LOOK_S = 5.0
SELDOM_S = 60.0  # if nobody asks for figures
FIRST_S = 0.5  # until all streams have begun


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
        safely(looks.look, looks.watch)


def _pause(looks: Looks) -> float:
    if not looks.watch.looked_at:
        return SELDOM_S
    return LOOK_S if all(stream.at for stream in looks.streams) else FIRST_S


def safely(look: Callable[[], None], watch: Watch) -> None:
    """Look once. No failure of a look may end a stream, or the thread that looks."""
    began = monotonic()
    try:
        look()
    except Exception as failure:  # noqa: BLE001 - it is reported
        watch.emit(LookFailed(error=failure, took_s=monotonic() - began))
