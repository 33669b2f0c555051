"""One start of one stream, from taking its epoch to the end of its last query."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from shutil import rmtree
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.errors import LakehouseError, TryAgain
from lakehouse_ingest.observe.events import Started
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Span
from lakehouse_ingest.pipeline import pacing
from lakehouse_ingest.pipeline.batch import BatchRunner
from lakehouse_ingest.pipeline.effects import Effects
from lakehouse_ingest.pipeline.foreach_batch import Callback
from lakehouse_ingest.pipeline.idle_fences import IdleFences
from lakehouse_ingest.pipeline.next_batch import next_end
from lakehouse_ingest.pipeline.query_progress import QueryProgress
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.records import Offsets, Range, Reason, SourceIdentity
from lakehouse_ingest.resume.start import Opening
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import PipelineTables, batch_size

if TYPE_CHECKING:
    from lakehouse_ingest.pipeline.stream import Stream

LOOK_S = 0.1  # how often the stream's thread checks whether to stop
TOPICS_S = 10.0  # how often it checks for recreated topics, and for new topics and partitions
BEAT_S = 1.0  # how often it checks whether Spark's query is alive, if the health page or metrics are on
AT_ONCE = 8  # tables that are opened or written at the same time


class Next(Enum):
    """What follows a query that ended without an error."""

    END = "nothing more to do"
    START = "there are topics or partitions that this start does not read"


class Recreated(TryAgain):
    """A topic was recreated during a start. The next start reports it as a blocker."""


@dataclass
class OneStart:
    """The state of one start."""

    of: "Stream"
    session: SparkSession  # used by this start only
    source: Source
    identity: SourceIdentity
    lake: PipelineTables
    budget: RetryBudget
    begun: ExitStack  # closed when the first query runs
    ending: ExitStack  # closed at the end of the start
    goal: Offsets | None = None  # the offsets at which to end, with `--until-latest`
    runner: BatchRunner | None = None
    looks: int = 0  # how often the broker has told the ends of the partitions
    _began_at: Offsets = field(default_factory=dict)  # what was complete when the query began
    _others: bool = False  # the source has partitions that this start does not read
    _gate: Lock = field(default_factory=Lock)  # held by a running batch, and by the thread that ends its query
    _closing: Event = field(default_factory=Event)

    def run(self, span: Span) -> bool:
        """Run to the end. Returns True if another start has to follow at once."""
        stream = self.of
        pool = ("spark.scheduler.pool", stream.identity)
        threads = self.ending.enter_context(
            ThreadPoolExecutor(AT_ONCE, f"writer {stream.name}", stream.spark.sparkContext.setLocalProperty, pool)
        )
        effects = stream.world.effects(stream.settings, stream.stream, self.lake, self.source, self.session)
        with stream.watch.span("sink.connect", stream.name):
            runner = self.runner = self.opened(effects, threads)
        # The checkpoint is useless once its query has ended. Delete it, or a long-running service fills the disk.
        self.ending.callback(rmtree, runner.opened.checkpoint, ignore_errors=True)
        self.goal = self.source.ends() if stream.options.until_latest else None
        self._report_start(runner, span)
        self.budget.is_up()
        try:
            then = self._query(runner)
        except Exception:
            # The next start begins after the completed batches, so nobody else would write their rows of the batch log.
            with suppress(LakehouseError, ConnectionError):
                runner.record.write()
            raise
        with stream.watch.span("sink.flush", stream.name):
            runner.record.write()
        effects.acknowledge(runner.record.complete, at_once=True)
        with stream.watch.span("sink.close", stream.name):
            threads.shutdown()
        return then is Next.START

    def opened(self, effects: Effects, threads: ThreadPoolExecutor) -> BatchRunner:
        """Take the epoch, and get ready for the first batch."""
        stream = self.of
        opening = Opening(
            stream.settings,
            stream.stream,
            self.lake,
            self.source,
            self.identity,
            stream.watch,
            stream.scratch,
            threads,
            stream.options.accept_changes,
            None if stream.options.until_latest or self.lake.has_claimed else stream.process,
            effects,
        )
        opened = opening.opened()
        return BatchRunner(
            opened,
            stream.stream,
            effects,
            self.source.reader(stream.identity, opened.token.epoch),
            stream.watch,
            stream.world.reports(stream.settings, stream.stream, self.lake),
            partial(refuse_recreated, self.source, self.identity),
            threads,
            lambda: self.session.sparkContext.defaultParallelism,  # a cluster's executors come and go
            stream.transform,
        )

    def _report_start(self, runner: BatchRunner, span: Span) -> None:
        stream, epoch, tables = self.of, runner.opened.token.epoch, len(runner.tables.registered)
        span.set(epoch=epoch, tables=tables)
        stream.watch.emit(
            Started(
                stream=stream.name,
                epoch=epoch,
                topics=stream.topics,
                tables=tables,
                bad={"discarded" if stream.stream.on_error == "ignore" else "dead": [*Reason]},
            )
        )

    # -- the query ----------------------------------------------------------------------------------------

    def _query(self, runner: BatchRunner) -> Next:
        """Run Spark's query until it should end, or has ended by itself."""
        stream = self.of
        then, failures = Next.END, list[BaseException]()
        if self.goal is not None and _has_come_to(self.goal, runner.start):
            return Next.END
        with stream.watch.span("source.read", stream.name):
            stream.at = runner.start
            batch = Callback(self.session, self._batch(runner, failures))
            # Spark counts batches, and calls us for the next one when the last has returned. The offsets are ours: its
            # own data sources in Python need three more processes, and ask for offsets ten times a second.
            batches = self.session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            query = (
                batches.writeStream.foreachBatch(batch)
                .option("checkpointLocation", str(runner.opened.checkpoint))
                .queryName(f"{stream.identity} {runner.opened.token.epoch}")
                .start()
            )
        self.begun.close()
        progress = stream.progress = QueryProgress(query)
        self._began_at = runner.record.complete
        stream.watch.report(stream.name, State.RUNNING)
        try:
            then = self._attend(query, progress, runner)
        finally:
            self._closing.set()
            if stream.stop.is_set():
                stream.watch.report(stream.name, State.STOPPING)
            self.ending.enter_context(stream.watch.stop(stream.name))
            # A running batch holds the gate, so it ends first.
            with stream.watch.span("source.close", stream.name), self._gate:
                _end(query)
            batch.let_go()
        if failures:
            raise stream.explained(failures[0])
        if (error := query.exception()) is not None:
            raise stream.explained(error, spark_errors.causes(query))
        return then

    def _batch(self, runner: BatchRunner, failures: list[BaseException]) -> Callable[[DataFrame, int], None]:
        """What Spark calls for each batch. It does not look at the frame: our own tasks read the records."""
        stream, closing = self.of, self._closing
        due: Callable[[], object] = bool  # waits until the next batch is due

        def batch(_: DataFrame, number: int) -> None:
            nonlocal due
            try:
                due()
                offsets = self._next(runner, number)
                # The stopping thread holds the gate while it waits for this callback, so blocking here would deadlock.
                # The next start reads the records of a skipped batch again.
                while offsets is not None and not self._gate.acquire(timeout=LOOK_S):
                    offsets = None if closing.is_set() else offsets
                if offsets is None:
                    return
                try:
                    began, size = monotonic(), runner.record.size
                    self._run(runner, offsets)
                finally:
                    self._gate.release()
                # Batches that had become smaller follow each other at once, because more records may be waiting.
                waits = size >= stream.stream.max_records and self.goal is None
                wait = partial(pacing.wait_until_due, stream.stream, began, runner.landed_to, self._ends, closing)
                due = wait if waits else bool
            except BaseException as failure:
                failures.append(failure)
                raise

        return batch

    def _next(self, runner: BatchRunner, number: int) -> Range | None:
        """The offsets of the next batch, as soon as there is something to read. None if the query is to end."""
        # A query that is to end may call for more batches before it does. They are skipped, and nobody counts them.
        if number != runner.batches and not self._closing.is_set():
            raise TryAgain(f"Spark runs batch {number} of a query that has finished {runner.batches}; starting again")
        while not (self._closing.is_set() or self.of.has_enough):
            ends = self._ends()
            self._others = bool(ends.keys() - runner.start.keys())
            end = next_end(runner.landed_to, ends, runner.record.size)
            if end != runner.landed_to:
                return Range(runner.landed_to, end)
            self._closing.wait(LOOK_S)
        self._closing.wait()
        return None

    def _run(self, runner: BatchRunner, offsets: Range) -> None:
        stream = self.of
        if self._closing.is_set():
            return
        landed = runner.run(offsets)
        runner.record.size = batch_size.after_landing(runner.record.size, stream.stream.max_records)
        stream.at, stream.newest = runner.landed_to, runner.reports.newest or stream.newest
        stream.landed += 1
        stream.offsets += len(landed)

    def _ends(self) -> Offsets:
        ends = self.source.ends()
        self.looks += 1
        return ends

    # -- while a query runs -------------------------------------------------------------------------------

    def _attend(self, query: StreamingQuery, progress: QueryProgress, runner: BatchRunner) -> Next:
        """Wait until the query should end, or has ended by itself."""
        stream = self.of
        looked, beaten, looks = monotonic(), monotonic(), self.looks
        fences = IdleFences(runner.positions, runner.effects.move_up)
        while query.isActive and not (stream.has_enough or stream.stop.wait(LOOK_S)):
            if self.goal is not None and _has_come_to(self.goal, runner.record.complete):
                break
            if self._others and self.goal is None:
                return Next.START
            self._catch_up(runner, fences)
            if stream.watch.looked_at and monotonic() - beaten >= BEAT_S:
                beaten = monotonic()
                # Spark has just answered. If the broker has answered as well, the stream is alive.
                if progress.has_moved() or self.looks != looks:
                    looks = self.looks
                    stream.watch.board.moved(stream.name)
            if monotonic() - looked >= TOPICS_S:
                looked = monotonic()
                if self._finds_others(runner) and self.goal is None:
                    return Next.START
        return Next.END

    def _catch_up(self, runner: BatchRunner, fences: IdleFences) -> None:
        """Write what the last batch left for later, because no further batch may come to write it."""
        record = runner.record
        has_read = record.overdue or record.complete != self._began_at
        if (has_read or fences.may_look) and self._gate.acquire(blocking=False):
            try:
                if record.overdue:
                    record.write()
                if has_read:
                    runner.effects.acknowledge(record.complete)
                fences.look()
            finally:
                self._gate.release()

    def _finds_others(self, runner: BatchRunner) -> bool:
        """True if there are new topics to read.

        Raises if a topic was recreated, which would otherwise go unnoticed when it has as many records as before.
        """
        stream = self.of
        pattern = stream.stream.topic_pattern
        try:
            runner.refuse_recreated()
            return bool(pattern and not set(stream.topics).issuperset(self.source.matching(pattern)))
        except Recreated:
            raise
        except TryAgain:
            return False  # if the broker does not answer, the next batch reports it


def refuse_recreated(source: Source, identity: SourceIdentity) -> None:
    """Raise if a topic was recreated. Called before each publication, and from time to time.

    Spark knows topics only by name. If a recreated topic is already longer than the old one was, Spark would read it
    from the old one's end.
    """
    if (now := source.identity()) != identity:
        others = [topic for topic, topic_id in identity.topics.items() if now.topics.get(topic) != topic_id]
        raise Recreated(f"{', '.join(others) or now.cluster} was recreated while it was read")


def _has_come_to(goal: Offsets, complete: Offsets) -> bool:
    return all(complete.get(at, 0) >= offset for at, offset in goal.items())


def _end(query: StreamingQuery) -> None:
    with suppress(StreamingQueryException):  # the caller reads it from query.exception()
        query.stop()
