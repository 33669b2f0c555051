"""What a Spark task does with its shares of a batch: it reads records, makes rows of them and writes files.

It works in Arrow from the first byte to the last, and it commits nothing. Its receipt says what became of every record.

A task knows the plans of the tables that exist. What these do not cover is news: a route without a plan, a field that
may get a column, a value that needs a wider type. The receipt describes the news, and nothing of that route is kept:
the driver changes the tables, and then the batch reads these routes again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import perf_counter
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from catalog import DataFileReceipt, FileCounter, FileNames, FileWriter, TableFiles
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.schema.columns import EVENT_TIME
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import dead_letters, routing
from lakehouse_ingest.stages.accounting import Count
from lakehouse_ingest.stages.dead_letters import Sample
from lakehouse_ingest.stages.formats import Format, chosen
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import Fault, Faults, Records, Share, Tree
from lakehouse_ingest.stages.routing import NOT_KEPT, Held, Route, Routed, Router, Way, without
from lakehouse_ingest.stages.rows import RowBuilder, Shaped
from lakehouse_ingest.stages.sources import Reader
from lakehouse_ingest.stages.tally import FILTERED, TRIMMED
from lakehouse_ingest.stages.transforms import Transform, Transformer, whole
from lakehouse_ingest.tables.errors import StoreAway, explained

LOOKED_AT = 5_000  # records of a new route that a task looks at; what the others add is news of the next pass
MOST_WAITING = 128 * 2**20  # bytes of rows that wait to be written, of all tables together
MOST_OPEN = 512  # files, likewise; a process may often have no more than 1,024
AT_ONCE = 16  # writers that delete their files
KEPT_LETTERS = 16 * 2**20  # bytes of dead letters that a task sends to the driver; of more, some become files


FaultAt = tuple[Share, int, Fault]  # with its offset


@dataclass(frozen=True)
class RouteWork:
    """How the records of one route become rows, and where the rows go."""

    plan: RoutePlan
    files: TableFiles
    first: frozenset[str] = frozenset()  # fields that news tells of, however many others there are


@dataclass(frozen=True)
class Work:
    """What all tasks of one pass over a batch need to know."""

    pipeline: str
    epoch: int
    batch: int
    stream: StreamSettings
    reader: Reader
    routes: Mapping[Route, RouteWork]
    letters: TableFiles | None  # the dead-letter table; None if its records are not kept
    refused: Mapping[Route, Fault] = field(default_factory=dict)  # routes without a table
    unasked: Fault | None = None  # for all other routes, once they may not be news any more
    only: frozenset[Way] | None = None  # the routes that are read again; None in the first pass: all
    held: Held = field(default_factory=dict)
    one_in: int = 0  # of so many records one header is looked at for a trace
    event_times: bool = False  # the newest one is reported
    transform: Transform | None = None
    imagined: bool = False  # a dry run: nothing is written
    looks: bool = False  # news is looked for, and no row is made


@dataclass
class Part:
    """What became of the records of one way, in one task."""

    counts: dict[Share, Count] = field(default_factory=dict)
    files: Sequence[DataFileReceipt] = ()
    letters: list[pa.RecordBatch] = field(default_factory=list)  # dead letters that the driver writes
    letters_size: int = 0  # bytes of these
    letter_files: list[DataFileReceipt] = field(default_factory=list)
    samples: dict[str, Sample] = field(default_factory=dict)
    first_fault: FaultAt | None = None
    news: SeenFields | None = None
    failure: LakehouseError | None = None  # its files could not be written, so nothing of it counts


@dataclass
class Receipt:
    """What one task did. With an error it did nothing that counts."""

    task: int
    received: dict[Share, Count] = field(default_factory=dict)
    parts: dict[Way, Part] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    error: LakehouseError | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The dead letters of all parts travel as one table.

        A table for each costs two milliseconds, and a sender may invent a route for every record.
        """
        batches = [batch for part in self.parts.values() for batch in part.letters]
        ends = [*accumulate(sum(batch.num_rows for batch in part.letters) for part in self.parts.values())]
        together = pa.Table.from_batches(batches, dead_letters.SCHEMA).combine_chunks()
        parts = {way: replace(part, letters=[]) for way, part in self.parts.items()}
        return {**vars(self), "parts": parts, "letters": (together, ends)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        together, ends = state.pop("letters")
        vars(self).update(state)
        for part, start, end in zip(self.parts.values(), [0, *ends], ends, strict=False):
            part.letters = together.slice(start, end - start).to_batches()


def do(work: Work, task: int, attempt: int, shares: Sequence[Share]) -> Receipt:
    """Read the shares. An outage, and what a person must fix, is in the receipt: Spark would keep only its text."""
    try:
        with explained(), _Task(work, FileNames(work.pipeline, work.epoch, work.batch, task, attempt)) as running:
            received = {share: Count(share, work.one_in) for share in shares}
            of = {(share.topic, share.partition): share for share in shares}
            for records in running.read(shares):
                share = of[records.topic, records.partition]
                received[share].read(records)
                running.take(share, received[share], records)
            return running.receipt(task, received)
    except LakehouseError as error:
        return Receipt(task, error=error)


# Spark calls these on a worker. They are here because a worker imports the module of what it calls, and has this one.
def attempt_number() -> int:
    """How often Spark has begun this task before."""
    context = TaskContext.get()
    return context.attemptNumber() if context else 0


def do_nothing(_: int) -> None:
    """To be called by a worker that is only to start."""


def first_of(faults: Iterable[FaultAt | None]) -> FaultAt | None:
    """The fault at the lowest offset of the first topic and partition, in whatever order they were read."""
    return min(filter(None, faults), key=lambda each: (each[0].topic, each[0].partition, each[1]), default=None)


class _Task:
    def __init__(self, work: Work, names: FileNames) -> None:
        self._work, self._names = work, names
        self._form: Format = chosen(work.stream.format)
        self._router = Router(work.stream, self._form)
        self._parts: dict[Way, Part] = {}
        self._builders: dict[Route, RowBuilder] = {}
        self._writers: dict[Route, FileWriter | FileCounter] = {}
        self._seconds: dict[str, float] = {}
        self._letters_size = 0  # of all ways

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Delete the files of a task that failed."""
        if failure and self._writers:
            with ThreadPoolExecutor(AT_ONCE) as threads:  # a store that hangs makes each of them wait
                threads.map(lambda writer: writer.abandon(), self._writers.values())

    def receipt(self, task: int, received: dict[Share, Count]) -> Receipt:
        """Close the files. The receipt says what became of all records."""
        for route, writer in [*self._writers.items()]:
            with self._writing(route):
                self._parts[route].files = writer.close()
        return Receipt(task, received, self._parts, self._seconds)

    def read(self, shares: Sequence[Share]) -> Iterator[Records]:
        chunks = self._work.reader.read_all(shares)
        while True:
            with self._stage("read"):
                records = next(chunks, None)
            if records is None:
                return
            yield records

    def take(self, share: Share, count: Count, records: Records) -> None:
        """Make rows of some records and write them, as far as they are no news."""
        kept, trimmed = without(records, self._work.held)
        only = self._work.only
        if trimmed:
            if only is None:
                count.add(TRIMMED, trimmed)
            else:
                count.elsewhere += trimmed  # the first pass counted them
            records = records.take(kept)
        with self._stage("route"):
            split = self._router.split(records)
        for routed in split:
            if only is None or routed.way in only:
                self._way(share, routed, records)
            else:
                count.elsewhere += len(routed.rows)
        self._make_room()

    def _way(self, share: Share, routed: Routed, records: Records) -> None:
        part = self._parts.setdefault(routed.way, Part())
        count = part.counts.setdefault(share, Count(share))
        count.received += len(routed.rows)
        if part.failure:
            return
        if routed.way == NOT_KEPT:
            count.add(FILTERED, len(routed.rows))
        elif routed.way is None:
            with self._stage("route"):
                faults = self._router.astray(records, routed.rows)
            self._dead(share, part, records, faults)
        else:
            own = records.take(routed.rows)
            if work := self._work.routes.get(routed.way):
                self._known(share, routed.way, work, part, own)
            elif fault := self._work.refused.get(routed.way, self._work.unasked):
                self._dead(share, part, own, routing.unreadable_or(self._form, own, fault))
            else:
                with self._stage("decode"):
                    self._look(part, own)

    def _known(self, share: Share, route: Route, work: RouteWork, part: Part, records: Records) -> None:
        """Make rows of the records of a table that exists."""
        if (builder := self._builders.get(route)) is None:
            builder = self._builders[route] = RowBuilder(work.plan, self._form)
        with self._stage("decode"):
            decoded = builder.decoded(records)
            if self._work.looks or (part.news is not None and not self._work.transform):
                self._add_news(work, part, builder.news(decoded))
                return
        filtered = 0
        if self._work.transform:
            with self._stage("transform"):
                decoded, filtered = Transformer(self._work.transform, work.plan.plan.columns).applied(decoded)
        with self._stage("shape"):
            made = builder.shaped(decoded)
            if self._work.transform:
                made = whole(made)
        if made.news:
            self._add_news(work, part, made.news)
            self._drop(route, part)
        if part.news is None:
            part.counts[share].add(FILTERED, filtered)
            with self._writing(route):
                self._land(share, route, work, part, made)
            self._dead(share, part, records, made.faults)

    @staticmethod
    def _add_news(work: RouteWork, part: Part, news: Mapping[int, Tree]) -> None:
        if news:
            part.news = part.news or SeenFields(work.first)
            for tree in news.values():
                part.news.add(tree)

    def _land(self, share: Share, route: Route, work: RouteWork, part: Part, made: Shaped) -> None:
        if not made.rows.num_rows:
            return
        if (writer := self._writers.get(route)) is None:
            writer = self._writers[route] = self._writer(work.files)
        writer.write(made.rows)
        reached(FailPoint.IN_TASK)
        times = made.rows[EVENT_TIME] if self._work.event_times else None
        part.counts[share].landed(pc.count_distinct(made.numbers).as_py(), made.rows.num_rows, times)

    def _make_room(self) -> None:
        """Hold what waits and what is open within bounds, however many tables the records have."""
        writers = {route: each for route, each in self._writers.items() if isinstance(each, FileWriter)}
        while sum(each.waiting for each in writers.values()) > MOST_WAITING:
            self._flush(writers, max(writers, key=lambda route: writers[route].waiting), last=False)
        while sum(each.open_files for each in writers.values()) > MOST_OPEN:
            self._flush(writers, max(writers, key=lambda route: writers[route].open_files), last=True)

    def _flush(self, writers: dict[Route, FileWriter], route: Route, *, last: bool) -> None:
        with self._writing(route):
            writers[route].flush(last=last)
        if route not in self._writers:
            del writers[route]  # it could not be written

    def _dead(self, share: Share, part: Part, records: Records, faults: Faults) -> None:
        if not faults:
            return
        part.counts[share].dead(faults.values())
        first = min(faults)
        part.first_fault = first_of([part.first_fault, (share, records.rows["offset"][first].as_py(), faults[first])])
        if self._work.letters is None:
            return
        with self._stage("write"):
            part.samples = dead_letters.newest([part.samples, dead_letters.samples(records, faults)])
            part.letters.append(dead_letters.letters(records, faults, self._work.pipeline))
            part.letters_size += part.letters[-1].nbytes
            self._letters_size += part.letters[-1].nbytes
            if self._letters_size > KEPT_LETTERS:
                self._write_most_letters(self._work.letters)

    def _write_most_letters(self, letters: TableFiles) -> None:
        """Write those of the way that has most: each way has files of its own, because it may be read again."""
        part = max(self._parts.values(), key=lambda each: each.letters_size)
        writer = self._writer(letters)
        writer.write(pa.Table.from_batches(part.letters))
        part.letter_files += writer.close()
        self._forget_letters(part)

    def _forget_letters(self, part: Part) -> None:
        self._letters_size -= part.letters_size
        part.letters, part.letters_size = [], 0

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Add up the seconds of a stage."""
        began = perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + perf_counter() - began

    @contextmanager
    def _writing(self, route: Route) -> Iterator[None]:
        """The stage. If the files of one table can't be written, those of the others are."""
        try:
            with self._stage("write"), explained():
                yield
        except StoreAway:
            raise  # or each of the other tables would wait for the store as long
        except LakehouseError as failure:
            part = self._parts[route]
            part.failure = failure
            self._drop(route, part)

    def _writer(self, files: TableFiles) -> FileWriter | FileCounter:
        return FileCounter(files, self._names) if self._work.imagined else FileWriter(files, self._names)

    def _look(self, part: Part, records: Records) -> None:
        """See which fields the records of a new route have."""
        part.news = part.news or SeenFields()
        for value in records.rows["value"].slice(0, max(0, LOOKED_AT - part.news.records)).to_pylist():
            if not isinstance(tree := self._form.tree(value), Fault):
                part.news.add(tree)

    def _drop(self, route: Route, part: Part) -> None:
        """Keep nothing of a route that is read again. Nobody has heard of its files yet, so they can be deleted."""
        if writer := self._writers.pop(route, None):
            writer.abandon()
        self._forget_letters(part)
