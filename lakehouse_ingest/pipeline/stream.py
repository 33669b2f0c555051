"""One stream: it begins from the tables, lets Spark take what is there, and begins again when plumbing broke.

There is one way to recover, and it is the way of every start: read what the tables hold, take the next epoch,
start Spark at exactly those offsets with a new checkpoint.
"""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Event, Lock
from time import monotonic
from typing import ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.environment.spark_session import session_of_its_own
from lakehouse_ingest.errors import LakehouseError, Superseded, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.observe import span_names
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Span, Watch
from lakehouse_ingest.pipeline import pacing
from lakehouse_ingest.pipeline.batch import Street
from lakehouse_ingest.pipeline.foreach_batch import Callback
from lakehouse_ingest.pipeline.sampler import Progress
from lakehouse_ingest.records import Offsets, Reason, SourceIdentity
from lakehouse_ingest.resume import replicas
from lakehouse_ingest.resume.beginnings import refuse_unread
from lakehouse_ingest.resume.start import Opening
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables import Connection, Lake, Place, Turns, batch_size
from lakehouse_ingest.tables.expiry import expire
from lakehouse_ingest.tables.retention import Retention, is_due

LONGEST_WAIT_S = 60.0
LOOK_S = 0.1  # how often the stream's thread looks whether to stop
TOPICS_S = 10.0  # how often it looks whether its topics are still the same, and for more that match the pattern
BEAT_S = 1.0  # how often it is seen whether Spark's query is alive, where anybody asks for it
AT_ONCE = 8  # tables that are opened or written at the same time


class Next(Enum):
    """What follows when a query has ended well."""

    END = "nothing more to do"
    QUERY = "the same start goes on, in larger batches"
    START = "there are topics or partitions that this start does not read"


@dataclass
class Stream:
    """One stream of a pipeline; `stop` may be set from any thread or signal handler."""

    street: ClassVar[type[Street]] = Street
    settings: Settings
    stream: StreamSettings  # with a pattern: and the topics that the last start has found
    spark: SparkSession
    connection: Connection
    watch: Watch
    scratch: Path
    drain: bool  # end when all that was there at the start has landed
    accept_changes: bool
    stop: Event
    max_batches: int | None = None  # end when so many have landed
    transform: Transform | None = None
    turns: Turns = field(default_factory=Turns)  # at the tables that other streams of this process write to as well
    landed: int = 0  # batches
    at: Offsets = field(default_factory=dict)  # all below has landed; empty before the first start
    newest: float | None = None  # the broker's time of the newest record that has landed here
    process: replicas.Process = field(default_factory=replicas.this_process)
    progress: Progress | None = None
    _gate: Lock = field(default_factory=Lock)
    _closing: Event = field(default_factory=Event)
    _own: SparkSession | None = None  # of the start that runs
    _lake: Lake | None = None  # the same for all starts of this process: it knows its last epoch
    _stands: float | None = None  # since when this start does
    _hinted: Offsets = field(default_factory=dict)  # what lag tools were told last

    @property
    def identity(self) -> str:
        """Its name in the ledger."""
        return self.settings.identity_of(self.stream)

    @property
    def name(self) -> str:
        """As people know it."""
        return self.stream.known_as

    @property
    def topics(self) -> Sequence[str]:
        return self.stream.topics

    @property
    def _session(self) -> SparkSession:
        return self._own or self.spark

    def run(self) -> None:
        """Returns when stopped, drained or done with its batches; raises what a person has to settle."""
        refuse_unread(self.settings.source, self._is_read)
        if self.settings.catalog.publish == "direct":
            self.watch.log.info("publishes_directly", stream=self.name)
        wait, attempt, since = self.settings.retry.first, 0, monotonic()
        while not (self.stop.is_set() or self._has_enough):
            before, self._stands = self.landed, None
            try:
                if not self._one_start():
                    return
            except Superseded as end:
                self.watch.events.superseded(end)
                raise
            except (TryAgain, Py4JError, PySparkException, ConnectionError) as error:
                failure = self._explained(error)
                if not isinstance(failure, TryAgain) or self._spark_is_gone():
                    raise failure from error
                if not attempt or self.landed > before or self._stood():
                    wait, attempt, since = self.settings.retry.first, 0, monotonic()
                elif self._stands is not None:
                    since += monotonic() - self._stands  # while it stood, nothing was away
                if monotonic() - since > self.settings.retry.limit:
                    raise TryAgain(f"given up after {self.settings.retry.limit:.0f} s: {failure}") from failure
                attempt += 1
                self.watch.events.retrying(stream=self.name, attempt=attempt, wait_s=wait, error=failure)
                self.watch.tell(self.name, State.WAITING, failure)
                self.stop.wait(wait)
                wait = min(wait * 2, LONGEST_WAIT_S)

    # -- one start ----------------------------------------------------------------------------------------

    def _one_start(self) -> bool:
        """Whether another one has to follow at once: there are topics that this one has not read."""
        self.watch.tell(self.name, State.STARTING)
        source = self._source()
        if source is None:
            return False
        # A pool for each stream: one with much to do must not keep another waiting. The query inherits it.
        pool = ("spark.scheduler.pool", self.identity)
        self.spark.sparkContext.setLocalProperty(*pool)
        # A start that ends before its query runs has no stop.
        with ExitStack() as ending, ExitStack() as begun:
            span = begun.enter_context(self._begun())
            self._own = ending.enter_context(session_of_its_own(self.spark))
            threads = ending.enter_context(
                ThreadPoolExecutor(AT_ONCE, f"writer {self.name}", self.spark.sparkContext.setLocalProperty, pool)
            )
            with self.watch.span("source.connect", self.name):
                identity = source.identity()
            if not self._lets_others_land(self._connected()):
                return False
            with self.watch.span("sink.connect", self.name):
                street = self._street(self._connected(), source, identity, threads)
            # With its query it has ended; a service would fill the disk with them.
            ending.callback(rmtree, street.checkpoint, ignore_errors=True)
            goal = source.ends() if self.drain else None
            span.set(epoch=street.token.epoch, tables=len(street.tables.registered), shape=street.shape)
            self.watch.events.started(
                stream=self.name,
                epoch=street.token.epoch,
                topics=self.topics,
                tables=len(street.tables.registered),
                shape=street.shape,
                bad={"discarded" if self.stream.on_error == "ignore" else "dead": [*Reason]},
            )
            self._stands = monotonic()
            try:
                more = self._stream_through(street, source, goal, begun, ending)
            except Exception:
                # The next start begins behind the batches that are done: their rows of the record would never come.
                with suppress(LakehouseError, ConnectionError):
                    street.record.write()
                raise
            with self.watch.span("sink.flush", self.name):
                street.record.write()
            with suppress(LakehouseError), self.watch.span("acknowledge", self.name):
                self._hint(source, street.record.complete)
            with self.watch.span("sink.close", self.name):
                threads.shutdown()
        return more is Next.START

    def _begun(self) -> AbstractContextManager[Span]:
        reads = span_names.reading(self.settings.source.kind, self.stream.topics, self.identity)
        return self.watch.start(self.name, reads)

    def _connected(self) -> Lake:
        self._lake = self._lake or Lake(
            self.connection,
            self.identity,
            self.settings.catalog.publish,
            lambda table, attempt, error: self.watch.events.commit_retried(table=table, attempt=attempt, error=error),
            settled=lambda table: self.watch.events.commit_reconciled(table=table),
            create=self.settings.catalog.create,
            turns=self.turns,
            retention=self._retention,
        )
        return self._lake

    def _lets_others_land(self, lake: Lake) -> bool:
        """Waits where replicas replace each other; False: it is to stop instead."""
        if self.drain or lake.has_claimed:
            return True
        record = f"{self.settings.catalog.namespace}.{self.settings.ledger.batch_table}"
        contest = replicas.contest(lake, record, self.identity, self.process)
        if contest is None:
            return True
        self.watch.events.warned("replicas_take_turns", stream=self.name, wait_s=contest.wait_s, error=contest.sentence)
        self.watch.board.tell(self.name, State.WAITING, contest.sentence)
        stopped = self.stop.wait(contest.wait_s)
        self.watch.tell(self.name, State.STARTING)
        return not stopped

    def _source(self) -> Source | None:
        """The topics as they are now, one of which a pattern waits for. None: it ends before there is one."""
        kind, pattern = sources.chosen(self.settings.source), self.stream.topic_pattern
        if not pattern:
            return kind(self.settings.source, self.stream.topics)
        everything, told = kind(self.settings.source, ()), False
        while not (found := everything.matching(pattern)):
            if not told:
                self.watch.log.info("no_topic_yet", stream=self.name, topic_pattern=pattern)
            told = True
            self.watch.board.tell(self.name, State.STARTING, f"no topic matches {pattern} yet")
            if self.drain or self.stop.wait(TOPICS_S):
                return None
        self.stream = self.stream.model_copy(update={"topics": tuple(found)})
        return kind(self.settings.source, found)

    def _street(self, lake: Lake, source: Source, identity: SourceIdentity, threads: ThreadPoolExecutor) -> Street:
        opening = Opening(
            self.settings,
            self.stream,
            lake,
            source,
            identity,
            self._session,
            self.watch,
            self.scratch,
            threads,
            self.accept_changes,
            None if self.drain or lake.has_claimed else self.process,
            lambda place: self._expired(lake, place),
        )
        opened = opening.opened()
        return self.street(
            name=self.name,
            token=opened.token,
            stream=self.stream,
            lake=lake,
            watch=self.watch,
            source=opened.source,
            settings_hash=opened.settings_hash,
            checkpoint=opened.checkpoint,
            start=opened.start,
            record=opened.record,
            dead=opened.dead,
            tables=opened.tables,
            held=opened.held,
            still_the_same=partial(_refuse_others, source, identity),
            acknowledge=self._acknowledge(source),
            tidy=opening.tidy,
            threads=threads,
            transform=self.transform,
        )

    def _batch(
        self, street: Street, source: Source, goal: Offsets | None, closing: Event, failures: list[BaseException]
    ) -> Callable[[DataFrame, int], None]:
        def batch(rows: DataFrame, number: int) -> None:
            # Whoever stops the query holds the gate until this has returned: to wait for it would be to wait for
            # each other. What is not landed now is read again by the next start.
            while not self._gate.acquire(timeout=LOOK_S):
                if closing.is_set():
                    return
            try:
                if self._has_enough or closing.is_set():
                    return
                began = monotonic()
                landed = street.run(rows, number)
                self.at, self.newest = landed.end, street.newest or self.newest
                self.landed += 1
                if goal is None and not self._has_enough:
                    pacing.wait_until_due(self.stream, began, landed.end, lambda: self._ends(source), closing)
            except BaseException as failure:
                failures.append(failure)
                raise
            finally:
                self._gate.release()

        return batch

    def _stream_through(
        self, street: Street, source: Source, goal: Offsets | None, begun: ExitStack, ending: ExitStack
    ) -> Next:
        """One query after the other, for Spark's size of a batch is a query's; the last one's reason to end."""
        while (then := self._query_through(street, source, goal, begun, ending)) is Next.QUERY:
            street.begin_again(batch_size.after_landing(street.record.size, self.stream.max_records))
        return then

    def _query_through(
        self, street: Street, source: Source, goal: Offsets | None, begun: ExitStack, ending: ExitStack
    ) -> Next:
        failures: list[BaseException] = []
        then = Next.END
        closing = self._closing = Event()  # of this query alone: a late batch must not take the next one's for its own
        with self.watch.span("source.read", self.name):
            frame = source.stream(self._session, street.start, street.record.size, self.identity)
            if goal is not None and _reached(goal, street.start):
                return Next.END
            self.at = street.start
            batch = Callback(self._session, self._batch(street, source, goal, closing, failures))
            query = (
                frame.writeStream.foreachBatch(batch)
                .option("checkpointLocation", str(street.offset_log.parent))
                .queryName(f"{self.identity} {street.token.epoch} {street.queries}")
                .start()
            )
        begun.close()
        self.progress, self._hinted = Progress(query), street.record.complete
        self.watch.tell(self.name, State.RUNNING)
        try:
            then = self._attended(query, self.progress, street, source, goal)
        finally:
            closing.set()
            if self.stop.is_set():
                self.watch.tell(self.name, State.STOPPING)
            if then is not Next.QUERY:
                ending.enter_context(self.watch.stop(self.name))
            # A batch that is under way ends first.
            with self.watch.span("source.close", self.name), self._gate:
                _end(query)
            batch.let_go()
        if failures:
            raise self._explained(failures[0])
        if (error := query.exception()) is not None:
            raise self._explained(error, spark_errors.causes(query))
        return then

    def _attended(
        self, query: StreamingQuery, progress: Progress, street: Street, source: Source, goal: Offsets | None
    ) -> Next:
        """Until it should end, or has ended by itself."""
        looked = beaten = monotonic()
        while query.isActive and not (self._has_enough or self.stop.wait(LOOK_S)):
            if goal is not None and _reached(goal, street.record.complete):
                break
            if street.may_grow:
                return Next.QUERY
            self._catch_up(street)
            if self.watch.looked_at and monotonic() - beaten >= BEAT_S:
                beaten = monotonic()
                if progress.has_moved():
                    self.watch.board.moved(self.name)
            if monotonic() - looked >= TOPICS_S:
                looked = monotonic()
                if self._finds_others(street, source) and goal is None:
                    return Next.START
        return Next.END

    def _ends(self, source: Source) -> Offsets:
        """While the next batch is not due yet, this is what shows that somebody is there."""
        self.watch.board.moved(self.name)
        return source.ends()

    def _finds_others(self, street: Street, source: Source) -> bool:
        """Whether there are topics that the pattern matches, or partitions, that this start has not read; refuses the
        topics that it reads when they were made anew. Where one has just as many records as before nothing would come,
        and nothing be said. A query that is told which partitions to read takes in no others by itself.
        """
        pattern, told = self.stream.topic_pattern, self.settings.source.partitions
        try:
            street.still_the_same()
            return bool(
                (pattern and not set(self.stream.topics).issuperset(source.matching(pattern)))
                or (told and source.ends().keys() - street.start.keys())
            )
        except _MadeAnew:
            raise
        except TryAgain:
            return False  # whether the broker is away is for the next batch to find

    @property
    def _has_enough(self) -> bool:
        return self.max_batches is not None and self.landed >= self.max_batches

    def _is_read(self, topic: str) -> bool:
        """Whether any stream of the pipeline may read it."""
        return any(
            re.fullmatch(each.topic_pattern, topic) if each.topic_pattern else topic in each.topics
            for each in self.settings.streams
        )

    def _explained(self, failure: BaseException, causes: str = "") -> LakehouseError:
        if isinstance(failure, LakehouseError):
            return failure
        said = f"{spark_errors.whole(failure)}\n{causes}"
        source = sources.chosen(self.settings.source)
        found = (
            source.explained(said, self.settings.source)
            or spark_errors.of_disk(said, self.scratch)
            or TryAgain(spark_errors.first_line(said))
        )
        found.__cause__ = failure
        return found

    def _catch_up(self, street: Street) -> None:
        """With what a last batch has left for later, when no other comes to take it along."""
        record = street.record
        if (record.overdue or record.complete != self._hinted) and self._gate.acquire(blocking=False):
            try:
                if record.overdue:
                    record.write()
                street.acknowledge(record.complete)
            finally:
                self._gate.release()

    def _spark_is_gone(self) -> bool:
        """Whether there is no Java process any more to try it with."""
        process = getattr(self.spark.sparkContext._gateway, "proc", None)  # noqa: SLF001 - nothing public tells
        return process is not None and process.poll() is not None

    def _stood(self) -> bool:
        """Whether this start had recovered, though nothing came that could have landed."""
        return self._stands is not None and monotonic() - self._stands > max(self.settings.retry.limit, LONGEST_WAIT_S)

    # -- small things -------------------------------------------------------------------------------------

    def _acknowledge(self, source: Source) -> Callable[[Offsets], None]:
        due = [0.0]

        def publish(offsets: Offsets) -> None:
            if monotonic() < due[0]:
                return
            try:
                with self.watch.span("acknowledge", self.name):
                    self._hint(source, offsets)
            except LakehouseError as failure:
                # Who may not commit for the group is not told so with every batch.
                due[0] = monotonic() + LONGEST_WAIT_S
                self.watch.events.warned("group_offsets_not_published", error=str(failure))
            else:
                due[0], self._hinted = monotonic() + self.settings.ledger.batch_every, offsets

        return publish

    def _hint(self, source: Source, offsets: Offsets) -> None:
        """Of what is read now: a topic that is left out may be there no more."""
        topics, stated = self.stream.topics, self.settings.source.partitions
        ours = {
            at: each
            for at, each in offsets.items()
            if at[0] in topics and (at[0] not in stated or at[1] in stated[at[0]])
        }
        source.publish(ours, self.identity)

    def _retention(self, table: str) -> Retention:
        keep, namespace = self.settings.ledger, self.settings.catalog.namespace
        # No query reads the batch record for long, and with many streams its metadata grow the fastest of all.
        is_record = table == f"{namespace}.{keep.batch_table}"
        return Retention(keep.keep_snapshots, 0.0 if is_record else keep.keep_for)

    def _expired(self, lake: Lake, place: Place) -> Place:
        if not is_due(place.snapshots, place.expirable):
            return place
        reached(FailPoint.EXPIRING)
        try:
            with self.watch.span("expire", self.name, place.table), lake.turn(place.table):
                place = lake.again(place)
                if not is_due(place.snapshots, place.expirable):
                    return place  # a sibling was here
                count = expire(self._session, place.table, self.identity, place.epoch, self._retention(place.table))
        except (Py4JError, PySparkException) as failure:
            # What has landed has landed; tidying is tried again after the next landing.
            self.watch.events.warned("snapshots_not_expired", table=place.table, error=spark_errors.sentence(failure))
            return place
        self.watch.events.snapshots_expired(table=place.table, count=count)
        return lake.again(place)


class _MadeAnew(TryAgain):
    """The next start asks what is to be done."""


def _refuse_others(source: Source, identity: SourceIdentity) -> None:
    """Before anything of a batch is seen, and now and then: Spark knows topics by name only.

    One that was made anew, and is longer already than the old one was, would be read from the old one's end.
    """
    if (now := source.identity()) != identity:
        others = [topic for topic, topic_id in identity.topics.items() if now.topics.get(topic) != topic_id]
        raise _MadeAnew(f"{', '.join(others) or now.cluster} was made anew while it was read")


def _reached(goal: Offsets, complete: Offsets) -> bool:
    return all(complete.get(at, 0) >= offset for at, offset in goal.items())


def _end(query: StreamingQuery) -> None:
    with suppress(StreamingQueryException):  # it is read once more, as query.exception()
        query.stop()
