"""One batch, with its durable effects in this order:

1. Create and change tables.
2. Write the rows of every table, and the dead-letter records, where no reader sees them. All carry the same token.
3. Publish all of them.
4. Expire old snapshots.
5. Write the batch log.
6. Publish the group offsets, which nothing of ours reads.

After a crash between any two steps, the next start continues from what the tables hold. If one table fails, the others
are published all the same. The batch is then repeated, without the rows that have already landed.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from shutil import rmtree
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import BadRecord, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger import marks, offset_log
from lakehouse_ingest.ledger.batch_range import batch_range
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.watch import Span, Watch, carried
from lakehouse_ingest.pipeline import split_by_table
from lakehouse_ingest.pipeline.reporting import BatchReports
from lakehouse_ingest.pipeline.split_by_table import SplitBatch, TablePart
from lakehouse_ingest.records import FAULT, RECORD, ROUTE, Offsets, Range, Receipt, Token
from lakehouse_ingest.resume.start import Opened
from lakehouse_ingest.schema.columns import EVENT_TIME
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import accounting, dead_letters, transforms
from lakehouse_ingest.stages.accounting import FILTERED, LANDED, Tally
from lakehouse_ingest.stages.routing import only_route, route
from lakehouse_ingest.stages.sources import envelope
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import Position
from lakehouse_ingest.tables.batch_log import BatchLog, LandedBatch
from lakehouse_ingest.tables.effects import Effects, Landing, Unpublished
from lakehouse_ingest.tables.stream_tables import StreamTables
from lakehouse_ingest.tables.table_keeper import TableKeeper

ONE_PASS, IN_MEMORY = "one pass", "in memory"


@dataclass(frozen=True)
class Work:
    """What identifies a batch while it runs."""

    range: Range
    token: Token
    trace: str
    traced: bool = False  # its span is recorded


@dataclass(frozen=True)
class WrittenPart:
    """A written part of the batch, with the outcomes of its records."""

    part: TablePart
    rows: Unpublished
    tally: Tally


@dataclass(frozen=True)
class WrittenBatch:
    """Everything of a batch that is written and not yet published."""

    rows: Sequence[Unpublished]
    tally: Tally
    failures: Sequence[BaseException]  # the errors of tables that could not be written
    note: str


@dataclass
class BatchRunner:
    """Runs the batches of one start of one stream, one after the other."""

    opened: Opened
    stream: StreamSettings
    effects: Effects
    watch: Watch
    reports: BatchReports
    refuse_recreated: Callable[[], None]  # raises if a topic was recreated
    threads: ThreadPoolExecutor
    transform: Transform | None = None
    start: Offsets = field(default_factory=dict)  # where the running query began
    queries: int = 0  # queries of this start that ran before this one
    batches: int = 0  # committed batches of all queries of this start
    landed_to: Offsets = field(default_factory=dict)  # the end of the last of these batches
    _before: int = 0  # how many of them were committed before this query began

    def __post_init__(self) -> None:
        self.start = self.opened.start

    @property
    def name(self) -> str:
        return self.stream.known_as

    @property
    def record(self) -> BatchLog:
        return self.opened.record

    @property
    def tables(self) -> StreamTables:
        return self.opened.tables

    @property
    def shape(self) -> str:
        """How a batch runs: in the one pass that writes, or kept in memory and looked at first."""
        return (
            ONE_PASS if only_route(self.stream) and self.stream.tables[0].columns and not self.transform else IN_MEMORY
        )

    def run(self, rows: DataFrame, number: int) -> Range:
        """Run one batch. Returns its range once everything of it is durable."""
        started_at = dt.datetime.now(dt.UTC)
        keeper = self._only_one()
        token = replace(self.opened.token, batch=self._before + number)
        with self.watch.batch(self.name, token.batch, ONE_PASS if keeper else IN_MEMORY) as span:
            reached(FailPoint.OFFSETS_LOGGED)
            work = Work(self._following(self._range(number)), token, span.trace_id or "", span.recorded)
            span.set(epoch=token.epoch, offsets=len(work.range))
            records, before = self.opened.held.without(envelope(rows, self.opened.source), work.range)
            with self._split(records, keeper, work) as parted:  # also creates and changes tables
                outcome = self._write(parted, work)
                self.refuse_recreated()
                receipts = self._publish(outcome)  # also expires old snapshots
            reached(FailPoint.LANDED)
            kept = outcome.tally.discarding() if self.stream.on_error == "ignore" else outcome.tally
            tally, reasons = Tally.sum([kept, before]), outcome.tally.dead
            landed = LandedBatch(token, work.range, started_at, tally, reasons, receipts, work.trace, outcome.note)
            with self.watch.stage("record", self.name):
                self.record.add(landed)
            reached(FailPoint.RECORDED)
            self.effects.acknowledge(self.record.complete)
            self.reports.landed(landed, span)
            self._measure(receipts)
        self.batches, self.landed_to = token.batch + 1, work.range.end
        return work.range

    # -- from batch to batch ------------------------------------------------------------------------------

    def begin_again(self, size: int) -> None:
        """Get ready for the next query, which goes on after the last committed batch with another batch size."""
        rmtree(self.offset_log.parent, ignore_errors=True)
        self.start, self._before, self.queries = self.landed_to, self.batches, self.queries + 1
        self.record.size = size

    @property
    def may_grow(self) -> bool:
        """True if batches are smaller than `max_records`, and one of this size is committed."""
        return self.record.size < self.stream.max_records and self.batches > self._before

    @property
    def offset_log(self) -> Path:
        """Spark's offset log of the running query."""
        return self.opened.checkpoint / str(self.queries) / "offsets"

    def _range(self, number: int) -> Range:
        before = offset_log.entry(self.offset_log, number - 1) if number else None
        return batch_range(offset_log.entry(self.offset_log, number), before, self.start)

    def _following(self, batch: Range) -> Range:
        """The range. Raises if it begins before the end of the last batch: Spark would read committed records again."""
        if back := [at for at, start in batch.start.items() if start < self.landed_to.get(at, start)]:
            raise TryAgain(f"Spark began a batch before the end of the last committed one, in {back[0]}")
        return batch

    # -- which rows go where ------------------------------------------------------------------------------

    def _only_one(self) -> TableKeeper | None:
        """The only table of a stream, if its records can be written without a look at them first.

        A transform always needs that look: its output is compared with its input.
        """
        only = None if self.transform else only_route(self.stream)
        found = self.tables.at(only) if only else None
        return found if isinstance(found, TableKeeper) and found.settled else None

    @contextmanager
    def _split(self, records: DataFrame, keeper: TableKeeper | None, work: Work) -> Iterator[SplitBatch]:
        if keeper:
            self.tables.register()
            yield split_by_table.whole(records, keeper, len(work.range), self._span)
            return
        with self._span("route", lazy=True):
            routed = route(records, self.stream, self.tables.format.field)
            if not only_route(self.stream):
                # Sorted by table, so that writing one of many tables reads only its own part.
                routed = routed.sortWithinPartitions(ROUTE)
        reached(FailPoint.PARSING)
        routed = routed.persist()  # read more than once, and only the first time from the broker
        try:
            with self.watch.stage("plan", self.name):
                looked = split_by_table.look(
                    routed, work.range, self.stream, self.tables, self._span, traces=work.traced
                )
                ready = split_by_table.make_ready(looked.groups, self.tables, self._each)
                parted = split_by_table.split(looked, ready, self.stream, self.tables, self._span, self.transform)
            yield parted
        finally:
            routed.unpersist()

    # -- write, without readers seeing it -----------------------------------------------------------------

    def _write(self, parted: SplitBatch, work: Work) -> WrittenBatch:
        read = parted.looked is None  # then the pass that writes also reads the records
        written, failures = self._each(lambda part: self._write_part(part, work, read=read), parted.parts)
        failures = [*parted.failures, *failures]
        rows, tallies = [each.rows for each in written], [each.tally for each in written]
        if parted.looked:
            tallies.append(parted.looked.only(FILTERED))
        faulty = [each.part.rows.select(RECORD, FAULT) for each in written if each.tally.dead]
        if faulty or parted.astray:
            if self.stream.on_error == "raise":
                raise _bad(_all([*faulty, *parted.astray]))
            names = frozenset[str]().union(*(part.names for part in parted.parts))
            letters, failed = self._each(
                lambda astray: self._write_letters(faulty, astray, names, work), [parted.astray]
            )
            failures += failed
            for tally, unpublished in letters:
                tallies.append(tally)
                _check_letters(unpublished, Tally.sum(tallies))
                rows += [unpublished] if unpublished else []
        if self.transform and parted.looked:
            if failures:  # the transform's output cannot be counted in full, so nothing may be published
                raise failures[0]
            events = sum(each.rows for each in rows if each.landing is not self.opened.dead)
            transforms.check(parted.looked, Tally.sum(tallies), events)
        tally = Tally.sum(tallies)
        if parted.looked:
            tally = replace(tally, bytes=parted.looked.bytes, traces=parted.looked.traces)
        return WrittenBatch(rows, tally, failures, _note(tally, parted, written))

    def _write_part(self, part: TablePart, work: Work, *, read: bool) -> WrittenPart:
        newest = F.when(F.col(FAULT).isNull(), F.col(EVENT_TIME)) if self.watch.measures else None
        observed, tally = accounting.counted(
            part.rows, work.range, accounting.by_fault(), newest, traces=read and work.traced
        )
        sound = observed.where(F.col(FAULT).isNull()).drop(RECORD, FAULT)
        runs = (*(["read"] if read else []), "decode", "shape")
        return WrittenPart(part, self._write_rows(part.landing, sound, part.size, work, runs), tally())

    def _write_letters(
        self, faulty: Sequence[DataFrame], astray: Sequence[DataFrame], names: frozenset[str], work: Work
    ) -> tuple[Tally, Unpublished | None]:
        """Write the dead-letter records, in a Spark action of its own. Returns the counts of records without a table.

        `names` are the fields that samples on the health page may show.
        """
        if self.stream.on_error == "ignore":
            outcome = accounting.by_fault()
            return accounting.count(_all(astray), work.range, outcome) if astray else Tally(), None
        frames = [*faulty]
        tally: Callable[[], Tally] = Tally
        if astray:
            observed, tally = accounting.counted(_all(astray), work.range, accounting.by_fault())
            frames.append(observed)
        with self._span("dead_letters"):
            rows = _all(frames)
            samples: Callable[[], Mapping[str, Any]] = dict
            if self.watch.served:
                rows, samples = dead_letters.sampled(rows)
            letters = dead_letters.letters(rows, self.opened.token.pipeline)
            reached(FailPoint.WRITING_LETTERS)
            written = self._write_rows(self.opened.dead, letters, len(work.range), work, ("decode", "shape"))
        self.watch.dead(self.name, samples(), names)
        return tally(), written

    def _write_rows(self, landing: Landing, rows: DataFrame, size: int, work: Work, runs: Sequence[str]) -> Unpublished:
        """Write rows to one table. `runs` names the stages that Spark runs during the write."""
        with self.watch.stage("write", self.name, landing.place.table, runs=(*runs, "write")) as span:
            reached(FailPoint.WRITING)
            written = self.effects.write(landing, rows, size, self._mark(landing.place, work))
            span.set(rows=written.rows, files=written.files, size=written.size, snapshot=written.snapshot)
        reached(FailPoint.STAGED)
        self.reports.written(written)
        return written

    def _mark(self, place: Position, work: Work) -> Mark:
        before: Mapping[tuple[str, int], int] = place.mark.complete if place.mark else {}
        return Mark(
            work.token,
            self.opened.source,
            work.range.start,
            # An interrupted batch may have left rows beyond this batch's range. The mark must keep covering them.
            marks.highest([place.held, work.range.end, self.opened.held.beyond_in(place.table)]),
            # Batches run one after the other, so every table is done with all offsets before this batch.
            marks.highest([before, work.range.start]),
            self.opened.settings_hash,
            work.trace,
        )

    # -- publish ------------------------------------------------------------------------------------------

    def _publish(self, outcome: WrittenBatch) -> list[Receipt]:
        receipts, failed = self._each(self._publish_rows, [each for each in outcome.rows if each.rows])
        if failures := [*outcome.failures, *failed]:
            raise failures[0]
        return receipts

    def _publish_rows(self, rows: Unpublished) -> Receipt:
        landing = rows.landing
        with self.watch.commit(landing.place.table, self.name) as span:
            reached(FailPoint.PUBLISHING)
            place = self.effects.publish(rows)
            span.set(snapshot=place.main)
            reached(FailPoint.PUBLISHED)
        with self._span("verify", place.table, rows=rows.rows, snapshot=place.main):
            _check_shown(place, rows.mark)
        receipt = Receipt(place.table, place.main, rows.rows, rows.files, place.schema, rows.size)
        # The receipt was made before this: expiry reads the table again, and main may be another pipeline's by then.
        landing.place = self.effects.expire(place)
        self.reports.published(rows, landing.place)
        return receipt

    def _measure(self, receipts: Sequence[Receipt]) -> None:
        _, failures = self._each(self.reports.measure, self.reports.due(receipt.table for receipt in receipts))
        if failures:
            raise failures[0]

    # -- helpers ------------------------------------------------------------------------------------------

    def _span(self, name: str, table: str | None = None, /, **attributes: object) -> Span:
        return self.watch.span(name, self.name, table, **attributes)

    def _each(self, do: Callable[[Any], Any], items: Iterable[Any]) -> tuple[list[Any], list[BaseException]]:
        """Do something for each item, in the pool even for a single one: `stop()` interrupts the batch's own thread."""
        futures = [self.threads.submit(carried(do), item) for item in items]
        failures = [future.exception() for future in futures]
        done = [future.result() for future, failure in zip(futures, failures, strict=True) if failure is None]
        return done, [failure for failure in failures if failure is not None]


def _check_shown(place: Position, mark: Mark) -> None:
    """Raise unless the table, as the catalog shows it after the commit, holds what the mark says.

    Otherwise the batch log would report rows that are not there.
    """
    if place.main is None or any(place.held.get(at, 0) < offset for at, offset in mark.held().items()):
        raise TryAgain(f"the catalog accepted a commit to {place.table} that the table does not show")


def _check_letters(letters: Unpublished | None, tally: Tally) -> None:
    """Raise if records are missing from the dead-letter table.

    Dead-letter records may be read a second time. If the topic was compacted in between, they are counted but gone.
    """
    if letters and letters.rows < (dead := sum(tally.dead.values())):
        raise TryAgain(
            f"{dead} records have a fault, but only {letters.rows} could be read again for the dead-letter table"
        )


def _all(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)


def _bad(rows: DataFrame) -> BadRecord:
    """The error for the first record with a fault. It goes to logs and pages, so it shows nothing of the content."""
    record, fault = F.col(RECORD), F.col(FAULT)
    first = (
        rows.where(fault.isNotNull())
        .select(record["topic"], record["partition"], record["offset"], fault["reason"], fault["told"])
        .toDF("topic", "partition", "offset", "reason", "told")
        .orderBy("topic", "partition", "offset")
        .first()
    )
    assert first
    why = f"{first.reason} ({first.told})" if first.told else first.reason
    return BadRecord(
        f"topic {first.topic} partition {first.partition} offset {first.offset} cannot become a row: {why}, so its"
        ' batch is not published; fix what sends it, or set `on_error` to "log"'
    )


def _note(tally: Tally, parted: SplitBatch, written: Sequence[WrittenPart]) -> str:
    """What a person should know about this batch. Usually empty."""
    # A task that Spark ran twice counts its records twice, but its files are committed once. The files are right.
    amiss = [
        f"{each.tally.total(LANDED)} counted for {each.part.landing.place.table}, {each.rows.rows} written"
        for each in written
        if each.rows.rows != each.tally.total(LANDED)
    ]
    if parted.looked and parted.looked.received != tally.received:
        amiss.append(f"{parted.looked.received} received, {tally.received} have an outcome")
    return "; ".join([*amiss, *parted.notes])
