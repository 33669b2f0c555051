"""One micro-batch down the street, with every durable effect in its order:

every table's rows and the dead letters are staged, each a landing of its own under the same token; then all of
them are published; then comes the batch record; then the group offsets, which nothing ever reads back. A crash
between any two is settled by the next start from what the tables hold. A table that fails keeps none of the
others from landing; the batch is done again, and what has its place by then is left alone.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf
from pathlib import Path
from shutil import rmtree
from time import monotonic, time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import BadRecord, LakehouseError, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger import marks, offset_log
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.watch import Span, Watch, carried
from lakehouse_ingest.pipeline import split_by_table
from lakehouse_ingest.pipeline.split_by_table import Part, Parted
from lakehouse_ingest.records import FAULT, RECORD, ROUTE, Offsets, Range, Receipt, SourceIdentity, Token
from lakehouse_ingest.resume.already_landed import Held
from lakehouse_ingest.schema.columns import EVENT_TIME
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import accounting, dead_letters, transforms
from lakehouse_ingest.stages.accounting import DISCARDED, FILTERED, LANDED, TRIMMED, Tally
from lakehouse_ingest.stages.routing import only_route, route
from lakehouse_ingest.stages.sources import envelope
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import Lake, Place
from lakehouse_ingest.tables.append import stage
from lakehouse_ingest.tables.batch_log import BatchRecord, Landed
from lakehouse_ingest.tables.stream_tables import StreamTables
from lakehouse_ingest.tables.table_keeper import Landing, TableKeeper

MANY_FILES = 1_000  # of one landing: so many are made by partitions that are too small
WEIGHED_EVERY = 60.0  # seconds
ONE_PASS, IN_MEMORY = "one pass", "in memory"
LINKS = 32  # from a batch to spans in which its records were sent


# Of a snapshot's summary, in the order of `Staged`.
COUNTS = ("added-records", "added-data-files", "added-files-size", "changed-partition-count")


@dataclass(frozen=True)
class Work:
    """One batch on its way."""

    range: Range
    token: Token
    trace: str
    traced: bool = False  # somebody will see its span


@dataclass(frozen=True)
class Staged:
    """Rows of ours on a table, that nobody sees yet."""

    landing: Landing
    mark: Mark
    snapshot: int
    rows: int
    files: int
    size: int  # bytes of those files
    partitions: int  # that they are in


@dataclass(frozen=True)
class Written:
    """A part of the batch that was staged, and what became of its records."""

    part: Part
    staged: Staged
    tally: Tally


@dataclass
class Street:
    """What one start of one stream has at hand; called with each batch."""

    name: str
    token: Token  # with the batch's number replaced
    stream: StreamSettings
    lake: Lake
    watch: Watch
    source: SourceIdentity
    settings_hash: str
    checkpoint: Path  # of all its queries; scratch
    start: Offsets  # of the query that runs
    record: BatchRecord
    dead: Landing
    tables: StreamTables
    held: Held
    still_the_same: Callable[[], None]  # refuses what was read when the topics are others by now
    acknowledge: Callable[[Offsets], None]
    tidy: Callable[[Place], Place]  # expires old snapshots when they are many
    threads: ThreadPoolExecutor
    transform: Transform | None = None
    newest: float | None = None  # the broker's time of the newest record of the last batch
    queries: int = 0  # that ran before this one
    batches: int = 0  # that have landed, of all of them
    landed_to: Offsets = field(default_factory=dict)  # the end of the last of them
    _before: int = 0  # that had, when this query began
    weighed: dict[str, float] = field(default_factory=dict)  # when the size of a table's metadata was last looked at

    @property
    def shape(self) -> str:
        """How a batch goes, by the settings: in the one pass that writes, or looked at first."""
        return (
            ONE_PASS if only_route(self.stream) and self.stream.tables[0].columns and not self.transform else IN_MEMORY
        )

    def run(self, rows: DataFrame, number: int) -> Range:
        """Lands one batch; returns its range once everything of it is durable."""
        started_at = dt.datetime.now(dt.UTC)
        keeper = self._only_one()
        token = replace(self.token, batch=self._before + number)
        with self.watch.batch(self.name, token.batch, ONE_PASS if keeper else IN_MEMORY) as span:
            reached(FailPoint.OFFSETS_LOGGED)
            work = Work(self._following(self._range(number)), token, span.trace_id or "", span.recorded)
            span.set(epoch=self.token.epoch, offsets=len(work.range))
            records, before = self.held.without(envelope(rows, self.source), work.range)
            with self._parted(records, keeper, work) as parted:
                tally, receipts, note = self._land(parted, work)
            reached(FailPoint.LANDED)
            kept = tally.discarding() if self.stream.on_error == "ignore" else tally
            landed = Landed(
                work.token, work.range, started_at, Tally.sum([kept, before]), tally.dead, receipts, work.trace, note
            )
            with self.watch.stage("record", self.name):
                self.record.add(landed)
            reached(FailPoint.RECORDED)
            self.acknowledge(self.record.complete)
            self._show(span, landed)
            self._tell(landed)
            self._weigh([receipt.table for receipt in receipts])
        self.batches, self.landed_to = token.batch + 1, work.range.end
        return work.range

    def begin_again(self, size: int) -> None:
        """With the next query of this start, which goes on behind what has landed, in batches of another size."""
        rmtree(self.offset_log.parent, ignore_errors=True)
        self.start, self._before, self.queries = self.landed_to, self.batches, self.queries + 1
        self.record.size = size

    @property
    def may_grow(self) -> bool:
        """Whether batches are smaller than they could be, and one of this size has landed."""
        return self.record.size < self.stream.max_records and self.batches > self._before

    @property
    def offset_log(self) -> Path:
        """Spark's, of the query that runs."""
        return self.checkpoint / str(self.queries) / "offsets"

    def _span(self, name: str, table: str | None = None, /, **attributes: object) -> Span:
        return self.watch.span(name, self.name, table, **attributes)

    def _show(self, span: Span, landed: Landed) -> None:
        tally = landed.tally
        count = {"messaging.batch.message_count": tally.received}
        span.set(received=tally.received, landed=tally.total(LANDED), dead=sum(landed.reasons.values()), **count)
        for sent_in in sorted(tally.traces)[:LINKS]:
            span.link(sent_in, begun_by="producer")

    def _range(self, number: int) -> Range:
        before = offset_log.entry(self.offset_log, number - 1) if number else None
        return marks.batch_range(offset_log.entry(self.offset_log, number), before, self.start)

    def _following(self, batch: Range) -> Range:
        """The range, where it begins no lower than the batch before it has ended: what has landed is not read again."""
        if back := [at for at, start in batch.start.items() if start < self.landed_to.get(at, start)]:
            raise TryAgain(f"the batch begins before the end of the one that landed last, in {back[0]}")
        return batch

    def _only_one(self) -> TableKeeper | None:
        """The table of a stream whose records all go there, and need no look before they are written.

        What somebody else's function makes of them is compared with what it was given.
        """
        only = None if self.transform else only_route(self.stream)
        found = self.tables.at(only) if only else None
        return found if isinstance(found, TableKeeper) and found.settled else None

    @contextmanager
    def _parted(self, records: DataFrame, keeper: TableKeeper | None, work: Work) -> Iterator[Parted]:
        if keeper:
            self.tables.register()
            yield split_by_table.whole(records, keeper, len(work.range), self._span)
            return
        with self._span("route", lazy=True):
            routed = route(records, self.stream, self.tables.format.field)
            if not only_route(self.stream):
                # Each table's rows side by side: to read one of many tables is to read its part only.
                routed = routed.sortWithinPartitions(ROUTE)
        reached(FailPoint.PARSING)
        routed = routed.persist()  # looked at more than once: from memory, not from the broker
        try:
            with self.watch.stage("plan", self.name):
                parted = split_by_table.sort(
                    routed,
                    work.range,
                    self.stream,
                    self.tables,
                    self._each,
                    self._span,
                    self.transform,
                    traces=work.traced,
                )
            yield parted
        finally:
            routed.unpersist()

    # -- the landings -------------------------------------------------------------------------------------

    def _land(self, parted: Parted, work: Work) -> tuple[Tally, list[Receipt], str]:
        read = parted.looked is None  # with the pass that writes
        written, failures = self._each(lambda part: self._write(part, work, read=read), parted.parts)
        failures = [*parted.failures, *failures]
        tallies, staged = [each.tally for each in written], [each.staged for each in written]
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
            tallies += [tally for tally, _ in letters]
            staged += [letter for _, letter in letters if letter]
            failures += failed
            for _, letter in letters:
                _check_letters(letter, Tally.sum(tallies))
        if self.transform and parted.looked:
            if failures:  # what came out can't be counted, so nothing of it may be seen
                raise failures[0]
            transforms.check(
                parted.looked, Tally.sum(tallies), sum(s.rows for s in staged if s.landing is not self.dead)
            )
        self.still_the_same()
        receipts, failed = self._each(self._publish, [each for each in staged if each.rows])
        if failures := [*failures, *failed]:
            raise failures[0]
        tally = Tally.sum(tallies)
        if parted.looked:
            tally = replace(tally, bytes=parted.looked.bytes, traces=parted.looked.traces)
        return tally, receipts, _note(tally, parted, written)

    def _write(self, part: Part, work: Work, *, read: bool) -> Written:
        newest = F.when(F.col(FAULT).isNull(), F.col(EVENT_TIME)) if self.watch.measures else None
        observed, tally = accounting.counted(
            part.rows, work.range, accounting.by_fault(), newest, traces=read and work.traced
        )
        sound = observed.where(F.col(FAULT).isNull()).drop(RECORD, FAULT)
        staged = self._stage(part.landing, sound, part.size, work, (*(["read"] if read else []), "decode", "shape"))
        return Written(part, staged, tally())

    def _write_letters(
        self, faulty: Sequence[DataFrame], astray: Sequence[DataFrame], names: frozenset[str], work: Work
    ) -> tuple[Tally, Staged | None]:
        """A second action, only when faults were seen; gives the counts of the records that no table has counted.

        `names` of known fields may be shown."""
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
            letters = dead_letters.letters(rows, self.token.pipeline)
            reached(FailPoint.WRITING_LETTERS)
            staged = self._stage(self.dead, letters, len(work.range), work, ("decode", "shape"))
        self.watch.dead(self.name, samples(), names)
        return tally(), staged

    def _stage(self, landing: Landing, rows: DataFrame, size: int, work: Work, runs: Sequence[str]) -> Staged:
        """`runs`: what else happens to the rows while they are written."""
        place = landing.place
        mark = self._mark(place, work)
        with self.watch.stage("write", self.name, place.table, runs=(*runs, "write")) as span:
            reached(FailPoint.WRITING)
            target = self.lake.target(place, work.token)
            stage(rows, target.name, target.wap, marks.to_summary(mark, place.carried), landing.files, size)
            found = self.lake.staged(place, str(work.token))
            if found is None:
                raise TryAgain(f"Spark reported a commit to {place.table} that the catalog does not show")
            counts = (int(found.summary.get(what, 0)) for what in COUNTS)
            staged = Staged(landing, mark, found.id, *counts)
            span.set(rows=staged.rows, files=staged.files, size=staged.size, snapshot=staged.snapshot)
        reached(FailPoint.STAGED)
        if staged.files > MANY_FILES:
            self.watch.events.warned(
                "many_files",
                table=place.table,
                files=staged.files,
                rows=staged.rows,
                advice="`partition_by` has a value for nearly each row: bucket(16, column) has few",
            )
        return staged

    def _publish(self, staged: Staged) -> Receipt:
        landing = staged.landing
        with self.watch.commit(landing.place.table, self.name) as span:
            reached(FailPoint.PUBLISHING)
            place = self.lake.publish(landing.place, staged.snapshot, staged.mark)
            span.set(snapshot=place.main)
            reached(FailPoint.PUBLISHED)
        with self._span("verify", place.table, rows=staged.rows, snapshot=place.main):
            _check_shown(place, staged.mark)
        receipt = Receipt(place.table, place.main, staged.rows, staged.files, place.schema, staged.size)
        # Looked up anew, main may be another pipeline's commit by now.
        landing.place = place = self.tidy(place)
        self.watch.table(
            place.table,
            rows=place.rows,
            files=place.files,
            size=place.size,
            snapshots=place.snapshots,
            partitions=staged.partitions,
            snapshot=place.main,
        )
        return receipt

    def _weigh(self, tables: Iterable[str]) -> None:
        """Costs a look at the catalog and one at the store for each, so not with every batch."""
        if not self.watch.measures:
            return
        now = monotonic()
        due = [table for table in tables if now - self.weighed.get(table, -inf) >= WEIGHED_EVERY]
        self.weighed |= dict.fromkeys(due, now)
        _, failures = self._each(self._weigh_one, due)
        if failures:
            raise failures[0]

    def _weigh_one(self, table: str) -> None:
        try:
            self.watch.gauge("lakehouse.table.metadata", self.lake.metadata_size(table), table=table)
        except LakehouseError as failure:
            self.watch.events.warned("metadata_not_measured", table=table, error=str(failure))

    def _mark(self, place: Place, work: Work) -> Mark:
        before: Mapping[tuple[str, int], int] = place.mark.complete if place.mark else {}
        return Mark(
            work.token,
            self.source,
            work.range.start,
            # What was found there beyond stays beyond, whichever batches come before it.
            marks.highest([place.held, work.range.end, self.held.beyond_in(place.table)]),
            # Batches follow one another: all before this one is done in every table.
            marks.highest([before, work.range.start]),
            self.settings_hash,
            work.trace,
        )

    def _each(self, do: Callable[[Any], Any], items: Iterable[Any]) -> tuple[list[Any], list[BaseException]]:
        """In threads of their own, even a single one: `stop()` interrupts an append on the batch's own thread."""
        futures = [self.threads.submit(carried(do), item) for item in items]
        failures = [future.exception() for future in futures]
        done = [future.result() for future, failure in zip(futures, failures, strict=True) if failure is None]
        return done, [failure for failure in failures if failure is not None]

    def _tell(self, landed: Landed) -> None:
        tally = landed.tally
        self.newest = tally.newest_ms / 1000 if tally.newest_ms else None
        self.watch.events.batch_landed(
            stream=self.name,
            batch=landed.token.batch,
            received=tally.received,
            duration_s=(dt.datetime.now(dt.UTC) - landed.started_at).total_seconds(),
            landed={each.table: each.rows for each in landed.receipts if each.table != self.dead.place.table},
            files={receipt.table: receipt.files for receipt in landed.receipts},
            written={receipt.table: receipt.size for receipt in landed.receipts},
            dead=tally.dead,
            trimmed=tally.total(TRIMMED),
            filtered=tally.total(FILTERED),
            discarded=landed.reasons if tally.total(DISCARDED) else {},
            freshness_s=max(0.0, time() - tally.oldest_ms / 1000) if tally.oldest_ms else None,
            event_age_s=time() - tally.event_ms / 1000 if tally.event_ms is not None else None,
            size=tally.bytes,
            note=landed.note,
        )


def _check_shown(place: Place, mark: Mark) -> None:
    """Whether the table, as the catalog has shown it after the commit, holds what was to land: else it is not told."""
    if place.main is None or any(place.held.get(at, 0) < offset for at, offset in mark.held().items()):
        raise TryAgain(f"the catalog took a commit to {place.table} that the table does not show")


def _check_letters(letters: Staged | None, tally: Tally) -> None:
    """They are read once more than the others: what a topic has compacted in between is counted, and in no place."""
    if letters and letters.rows < (dead := sum(tally.dead.values())):
        raise TryAgain(f"{dead} records can't land, and {letters.rows} of them were still there for the dead letters")


def _all(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)


def _bad(rows: DataFrame) -> BadRecord:
    """The first of the records that can't land, in one sentence that goes to logs and pages: nothing of it is said."""
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
        f"topic {first.topic} partition {first.partition} offset {first.offset} can't land: {why}; nothing of its batch"
        ' has. Mend it, or set `on_error` to "log": then such records go to the dead letters'
    )


def _note(tally: Tally, parted: Parted, written: Sequence[Written]) -> str:
    """What a person should know of this batch; nothing as a rule."""
    # A task that ran twice counts twice; files count once. What is committed is what the files hold.
    amiss = [
        f"{each.tally.total(LANDED)} counted for {each.part.landing.place.table}, {each.staged.rows} written"
        for each in written
        if each.staged.rows != each.tally.total(LANDED)
    ]
    if parted.looked and parted.looked.received != tally.received:
        amiss.append(f"{parted.looked.received} received, {tally.received} have an outcome")
    return "; ".join([*amiss, *parted.notes])
