"""One batch, with its durable effects in this order:

1. Create and change tables, if the records bring something new.
2. Write the rows of every table, and the dead-letter records, to files that no snapshot has yet.
3. Commit the files, one request a table. All commits of a batch carry the same token.
4. Expire old snapshots.
5. Write the batch log.
6. Publish the group offsets, which nothing of ours reads.

After a crash between any two steps, the next start continues from what the tables hold. If one table fails, the others
are committed all the same. The batch is then repeated, without the rows that have already landed.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from catalog import DataFileReceipt
from lakehouse_ingest.errors import BadRecord, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.watch import Span, Watch, carried
from lakehouse_ingest.pipeline.effects import Effects
from lakehouse_ingest.pipeline.idle_fences import HasPlace
from lakehouse_ingest.pipeline.passes import Outcome, Passes, Ready
from lakehouse_ingest.pipeline.reporting import BatchReports, Written
from lakehouse_ingest.pipeline.task import Part, Work, first_of
from lakehouse_ingest.records import Offsets, Range, Receipt, Token
from lakehouse_ingest.resume.start import Opened
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.accounting import PER_TASK, one_in, samples, shares
from lakehouse_ingest.stages.routing import held_in
from lakehouse_ingest.stages.sources import Reader
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import Position
from lakehouse_ingest.tables.batch_log import BatchLog, LandedBatch
from lakehouse_ingest.tables.effects import Landing
from lakehouse_ingest.tables.stream_tables import StreamTables

SAMPLED = 10_000  # offsets of a large batch that are looked at first


@dataclass(frozen=True)
class BatchIdentity:
    """What identifies a batch while it runs."""

    range: Range
    token: Token
    trace: str


@dataclass
class BatchRunner:
    """Runs the batches of one start of one stream, one after the other."""

    opened: Opened
    stream: StreamSettings
    effects: Effects
    reader: Reader
    watch: Watch
    reports: BatchReports
    refuse_recreated: Callable[[], None]  # raises if a topic was recreated
    threads: ThreadPoolExecutor
    cores: Callable[[], int]  # how many tasks run at the same time
    transform: Transform | None = None
    batches: int = 0  # committed batches
    landed_to: Offsets = field(default_factory=dict)  # the end of the last of these batches

    def __post_init__(self) -> None:
        self.landed_to = self.opened.start

    @property
    def name(self) -> str:
        return self.stream.known_as

    @property
    def record(self) -> BatchLog:
        return self.opened.record

    @property
    def tables(self) -> StreamTables:
        return self.opened.tables

    def positions(self) -> list[HasPlace]:
        """Whatever knows our position on a table: the batch log, and the tables that get rows."""
        landings = [keeper.landing for keeper in self.tables.keepers.values() if keeper.landing]
        return [self.record, self.opened.dead, *landings]

    @property
    def start(self) -> Offsets:
        """Where this start began to read."""
        return self.opened.start

    def run(self, offsets: Range) -> Range:
        """Run one batch. Returns its range once everything of it is durable."""
        started_at = dt.datetime.now(dt.UTC)
        token = replace(self.opened.token, batch=self.batches)
        with self.watch.batch(self.name, token.batch) as span:
            batch = BatchIdentity(offsets, token, span.trace_id or "")
            span.set(epoch=token.epoch, offsets=len(batch.range))
            reached(FailPoint.OFFSETS_LOGGED)
            outcome = self._read(batch, traced=span.recorded)  # also creates and changes tables
            # A record whose table failed may have been taken for a dead letter, so there are none in this attempt.
            letters = () if outcome.failures else self._write_letters(outcome, batch)
            self.refuse_recreated()
            receipts = self._land(outcome, letters, batch)  # also expires old snapshots
            reached(FailPoint.LANDED)
            kept = outcome.tally.discarding() if self.stream.on_error == "ignore" else outcome.tally
            note, reasons = "; ".join(outcome.notes), outcome.tally.dead
            landed = LandedBatch(token, batch.range, started_at, kept, reasons, receipts, batch.trace, note)
            with self.watch.stage("record", self.name):
                self.record.add(landed)
            reached(FailPoint.RECORDED)
            self.effects.acknowledge(self.record.complete)
            self.reports.landed(landed, span)
            self._measure(receipts)
        self.batches, self.landed_to = token.batch + 1, {**self.landed_to, **offsets.end}
        return batch.range

    # -- read, and write files that no reader sees yet ----------------------------------------------------

    def _read(self, batch: BatchIdentity, *, traced: bool) -> Outcome:
        # As few tasks as there are cores: each writes files of its own.
        cores = self.cores()
        per_task = max(PER_TASK, -(-len(batch.range) // cores))
        tasks = shares(batch.range, self.opened.source, per_task, cores)
        every = [share for of_task in tasks for share in of_task]
        follows = any(not table.columns for table in self.stream.tables) and self.transform is None
        sampled = follows and len(batch.range) > 2 * PER_TASK  # a second pass over a smaller batch costs little
        looked_at = samples(batch.range, self.opened.source, SAMPLED, cores) if sampled else []
        work = Work(
            self.opened.token.pipeline,
            batch.token.epoch,
            batch.token.batch,
            self.stream,
            self.reader,
            {},
            None if self.stream.on_error == "ignore" else self.opened.dead.files,
            held=held_in(self.opened.held.held, every),
            one_in=one_in(len(batch.range)) if traced else 0,
            event_times=self.watch.measures,
            transform=self.transform,
        )
        self.tables.register()
        for keeper in self.tables.keepers.values():
            keeper.begin_batch()
        if self.opened.dead.is_stale:
            self.opened.dead.load(self.tables.lake.files(self.opened.dead.place.table))
        ready = Ready(self.tables, self._each, partial(self.watch.stage, "plan", self.name))
        with self._span("write", tasks=len(tasks)) as span:
            reached(FailPoint.WRITING)
            outcome = Passes(tasks, self.effects.write, ready, looked_at).outcome(work)
            span.set(**{f"{stage}_s": round(seconds, 6) for stage, seconds in outcome.seconds.items()})
        self.watch.stages(self.name, outcome.seconds)
        if self.stream.on_error == "raise":
            if outcome.failures:
                raise outcome.failures[0]
            _refuse_bad(outcome)
        return outcome

    def _write_letters(self, outcome: Outcome, batch: BatchIdentity) -> Sequence[DataFileReceipt]:
        """Write the dead-letter records that the tasks left to us: few of them, in one file."""
        if self.stream.on_error == "ignore" or not outcome.tally.dead:
            return ()
        parts = [part for of_way in outcome.parts.values() for part in of_way]
        files = [file for part in parts for file in part.letter_files]
        rows = [rows for part in parts for rows in part.letters]
        reached(FailPoint.WRITING_LETTERS)
        if rows:
            with self.watch.stage("dead_letters", self.name):
                files += self.effects.write_letters(
                    self.opened.dead, pa.Table.from_batches(rows).combine_chunks(), batch.token
                )
        _check_letters(files, outcome)
        names = frozenset[str]().union(*(keeper.names for keeper in self.tables.keepers.values()))
        self.watch.dead(self.name, dead_letters.newest(part.samples for part in parts), names)
        return files

    # -- commit -------------------------------------------------------------------------------------------

    def _land(self, outcome: Outcome, letters: Sequence[DataFileReceipt], batch: BatchIdentity) -> list[Receipt]:
        every: list[tuple[Landing, Sequence[DataFileReceipt]]] = [
            (keeper.landing, files)
            for route, keeper in self.tables.keepers.items()
            if keeper.landing and (files := outcome.files(route))
        ]
        if letters:
            every.append((self.opened.dead, letters))
        if every:
            reached(FailPoint.STAGED)
        receipts, failed = self._each(lambda one: self._land_files(one[0], one[1], batch), every)
        if failures := [*outcome.failures, *failed]:
            raise failures[0]
        return receipts

    def _land_files(self, landing: Landing, files: Sequence[DataFileReceipt], batch: BatchIdentity) -> Receipt:
        table = landing.place.table
        written = Written(
            table,
            sum(file.record_count for file in files),
            len(files),
            sum(file.size for file in files),
            len({file.partition for file in files}),
        )
        self.reports.written(written)
        mark = self._mark(landing.place, batch)
        with self.watch.commit(table, self.name) as span:
            reached(FailPoint.PUBLISHING)
            place = self.effects.land(landing, files, mark)
            span.set(snapshot=place.main, rows=written.rows, files=written.files, size=written.size)
            reached(FailPoint.PUBLISHED)
        with self._span("verify", table, rows=written.rows, snapshot=place.main):
            _check_shown(place, mark)
        receipt = Receipt(table, place.main, written.rows, written.files, place.schema, written.size)
        # The receipt was made before this: expiry reads the table again, and main may be another pipeline's by then.
        landing.place = self.effects.expire(place)
        self.reports.published(written, landing.place)
        return receipt

    def _mark(self, place: Position, batch: BatchIdentity) -> Mark:
        before: Mapping[tuple[str, int], int] = place.mark.complete if place.mark else {}
        return Mark(
            batch.token,
            self.opened.source,
            batch.range.start,
            # An interrupted batch may have left rows beyond this batch's range. The mark must keep covering them.
            marks.highest([place.held, batch.range.end, self.opened.held.beyond_in(place.table)]),
            # Batches run one after the other, so every table is done with all offsets before this batch.
            marks.highest([before, batch.range.start]),
            self.opened.settings_hash,
            batch.trace,
        )

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


def _check_letters(files: Sequence[DataFileReceipt], outcome: Outcome) -> None:
    dead, written = sum(outcome.tally.dead.values()), sum(file.record_count for file in files)
    if dead != written:
        raise TryAgain(f"{dead} records have a fault, but {written} were written for the dead-letter table")


def _refuse_bad(outcome: Outcome) -> None:
    """Raise for the first record with a fault. The error goes to logs and pages, so it shows nothing of the content."""
    found = first_of(part.first_fault for part in _parts(outcome))
    if found is None:
        return
    share, offset, fault = found
    why = f"{fault.reason} ({fault.told})" if fault.told else str(fault.reason)
    raise BadRecord(
        f"topic {share.topic} partition {share.partition} offset {offset} cannot become a row: {why}, so its batch is"
        ' not published; fix what sends it, or set `on_error` to "log"'
    )


def _parts(outcome: Outcome) -> list[Part]:
    return [part for of_way in outcome.parts.values() for part in of_way]
