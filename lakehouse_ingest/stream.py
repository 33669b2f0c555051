"""One stream: it begins from the tables, lets Spark take what is there, and begins again when plumbing broke.

There is one way to recover, and it is the way of every start: read what the tables hold, take the next epoch,
start Spark at exactly those offsets with a new checkpoint.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from threading import Event, Lock
from time import monotonic
from typing import ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest import (
    conventions,
    dead_letters,
    formats,
    ledger,
    pacing,
    routing,
    shares,
    sources,
    spark_errors,
    starting,
)
from lakehouse_ingest.batch import Street
from lakehouse_ingest.batch_record import BatchRecord, record_spec
from lakehouse_ingest.callback import Callback
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, Superseded, TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.health import State
from lakehouse_ingest.held import Held, Holder
from lakehouse_ingest.ledger import Mark, SourceIdentity
from lakehouse_ingest.looking import Progress
from lakehouse_ingest.maintenance.expire import expire
from lakehouse_ingest.observing import Span, Watch
from lakehouse_ingest.questions import SourceNow
from lakehouse_ingest.records import Offsets, Token
from lakehouse_ingest.session import forget_catalogs
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.sources import Source
from lakehouse_ingest.sources.beginnings import beginning, refuse_unkept, refuse_unread
from lakehouse_ingest.stream_tables import StreamTables, foretold
from lakehouse_ingest.table_keeper import Landing
from lakehouse_ingest.tables import (
    Column,
    Connection,
    Lake,
    Partition,
    Place,
    Registered,
    TableSpec,
    newest_generation,
)
from lakehouse_ingest.transforms import Transform
from lakehouse_ingest.writers.iceberg import FileOptions

LONGEST_WAIT_S = 60.0
LOOK_S = 0.1  # how often the stream's thread looks whether to stop
TOPICS_S = 10.0  # how often it looks whether its topics are still the same, and for more that match the pattern
BEAT_S = 1.0  # how often it is seen whether Spark's query is alive, where anybody asks for it
AT_ONCE = 8  # tables that are opened or written at the same time


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
    landed: int = 0  # batches
    at: Offsets = field(default_factory=dict)  # all below has landed; empty before the first start
    newest: float | None = None  # the broker's time of the newest record that has landed here
    progress: Progress | None = None
    _gate: Lock = field(default_factory=Lock)
    _closing: Event = field(default_factory=Event)
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
        forget_catalogs(self.spark)
        # A pool for each stream: one with much to do must not keep another waiting. The query inherits it.
        pool = ("spark.scheduler.pool", self.identity)
        self.spark.sparkContext.setLocalProperty(*pool)
        # A start that ends before its query runs has no stop.
        with ExitStack() as ending, ExitStack() as begun:
            span = begun.enter_context(self._begun())
            threads = ending.enter_context(
                ThreadPoolExecutor(AT_ONCE, f"writer {self.name}", self.spark.sparkContext.setLocalProperty, pool)
            )
            with self.watch.span("source.connect", self.name):
                identity = source.identity()
            with self.watch.span("sink.connect", self.name):
                street = self._street(self._connected(), source, identity, threads)
            goal = source.ends() if self.drain else None
            span.set(epoch=street.token.epoch, tables=len(street.tables.registered), shape=street.shape)
            self.watch.log.info(
                "started",
                stream=self.name,
                epoch=street.token.epoch,
                topics=list(self.stream.topics),
                tables=len(street.tables.registered),
                shape=street.shape,
            )
            self._stands = monotonic()
            try:
                grown = self._stream_through(street, source, goal, begun, ending)
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
        return grown

    def _begun(self) -> AbstractContextManager[Span]:
        reads = conventions.reading(self.settings.source.kind, self.stream.topics, self.identity)
        return self.watch.start(self.name, reads)

    def _connected(self) -> Lake:
        self._lake = self._lake or Lake(
            self.connection,
            self.identity,
            self.settings.catalog.publish,
            lambda table, attempt, error: self.watch.events.commit_retried(table=table, attempt=attempt, error=error),
            settled=lambda table: self.watch.events.commit_reconciled(table=table),
            create=self.settings.catalog.create,
        )
        return self._lake

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
        namespace = self.settings.catalog.namespace
        record_name = f"{namespace}.{self.settings.ledger.batch_table}"
        dead_name = f"{namespace}.{self.settings.dead_letters.table}"
        named = [f"{namespace}.{entry.table}" for entry in self.stream.tables if "{" not in entry.table]
        if len({*named, record_name, dead_name}) < len(named) + 2:
            raise SettingsRefused("the dead letters, the batch record and the events need a table each")
        routing.check(self.stream, self.spark)
        lake.ensure_namespace(namespace)
        own = FileOptions()
        lake.create(record_spec(record_name, own))
        lake.create(_dead_spec(dead_name, own))
        # A start that was killed between its claim and its registering is known there, and nothing else.
        told = lake.registered(record_name) if lake.knows(record_name) else {}
        known = {} if told else self._known(lake, [record_name, dead_name])
        # Whether one that we have landed in was dropped, is asked below. Of the topics that a pattern finds anybody may
        # have made one: without a table it has dead letters, and ends nothing.
        sure = self._foretold(() if self.stream.topic_pattern else self.topics)
        lake.need(*(name for name in sure if name not in (told or known)))
        lake.begin_within(0)  # until it is known which generation it is, every mark counts
        # Before anything is claimed: a start that is refused must not end the one that runs.
        self._compare(lake, record_name)
        epoch, record_place = lake.claim(record_name, [*{dead_name, *named, *known}])
        reached(FailPoint.CLAIMED)
        registered = lake.registered(record_name) or known
        places = lake.open_all([*{dead_name, *named, *registered}], epoch, threads)
        reached(FailPoint.OPENED)
        heads = lake.heads(record_name)
        starting.same_tables(registered, heads, places)
        # Those that somebody has said are to be taken as they are.
        taken = {
            name: replace(each, uuid=places[name].uuid)
            for name, each in registered.items()
            if not each.uuid and name in places
        }
        registered |= taken
        lake.register(record_name, {**known, **taken, dead_name: Registered(places[dead_name].uuid)})
        registered.pop(dead_name, None)
        # The dead letters are opened by each start, and most have never had any of ours: with their history whole, that
        # no mark is there says so.
        letters = places[dead_name]
        ours = {*registered, *([] if letters.whole and dead_name not in taken else [dead_name])}
        # Asked for only now: until it was shut out, an earlier writer may have gone on.
        now = SourceNow(identity, *source.bounds())
        refuse_unkept(self.settings.source, now.high)
        everywhere = [*places.values()]
        lake.begin_within(generation := newest_generation((record_place, *everywhere)))
        record_place = record_place.within(generation)
        # Where nothing lands, the starts' own commits become many.
        places = {name: self._expired(lake, place.within(generation)) for name, place in places.items()}
        done = starting.complete(record_place, [*places.values()])
        start, stands = self._where_to_begin(source, now, done, record_place, places, dead_name)
        marks = [place.mark for place in (record_place, *places.values()) if place.mark]
        token = Token(self.identity, generation, epoch, -1)
        meant = starting.meaning(self.settings, self.stream)
        topics = identity.known_as(ledger.ids_of(marks))
        mark = Mark(token, topics, stands, stands, stands, starting.hash_of(meant))
        record = BatchRecord(
            lake,
            record_place,
            mark,
            starting.as_text(meant),
            self.settings.ledger.batch_every,
            lambda place: self._expired(lake, place),
            heads,
        )
        tables = StreamTables(
            lake,
            self.stream,
            formats.chosen(self.stream.format),
            namespace,
            record_name,
            (record_name, dead_name),
            epoch,
            registered,
            places,
            lambda of, changes: self.watch.events.schema_changed(table=of, changes=changes),
        )
        record.started(token)
        holders = [
            Holder(place.table, place.main or 0, self.identity if place.table == dead_name else None)
            # Older generations' marks as well: what is to be read again may stand there already.
            for place in starting.uncertain(everywhere, done, ours)
        ]
        checkpoint = self._checkpoint(epoch)
        return self.street(
            name=self.name,
            token=token,
            stream=self.stream,
            lake=lake,
            watch=self.watch,
            source=topics,
            settings_hash=mark.settings,
            offset_log=checkpoint / "offsets",
            start=start,
            record=record,
            dead=Landing(places[dead_name], own),
            tables=tables,
            held=Held.beyond(start, holders, {topic: topics.log(topic) for topic in self.stream.topics}, self.spark),
            still_the_same=lambda: _refuse_others(source, identity),
            acknowledge=self._acknowledge(source),
            tidy=lambda place: self._expired(lake, place),
            threads=threads,
            transform=self.transform,
        )

    def _where_to_begin(
        self,
        source: Source,
        now: SourceNow,
        done: Offsets,
        record: Place,
        places: Mapping[str, Place],
        dead: str,
    ) -> tuple[Offsets, Offsets]:
        """The map to read from; and the one to leave in the ledger, which knows of more than is read now."""
        tables = [*places.values()]
        low, high = now.unknown(done, self.settings.source.partitions)
        # A topic that has come since the pipeline began is read from its first record, like a new partition.
        later = bool(done and self.stream.topic_pattern and self.settings.source.start == "latest")
        new = low if later else beginning(self.settings.source, low, high, source.since, done)
        start = starting.begin(record, tables, now, new)
        shared = [place for name, place in places.items() if name != dead]
        start = {**start, **shares.taken_over(self.identity, record, shared, now, done, self.settings.source)}
        # A topic that is left out goes on where it stood, should it come back; one that a pattern finds no more was
        # deleted.
        rested = {} if self.stream.topic_pattern else done
        return start, {**rested, **shares.left(record, tables, now, done), **start}

    def _foretold(self, topics: Sequence[str]) -> list[str]:
        return [f"{self.settings.catalog.namespace}.{name}" for name in foretold(self.stream, topics)]

    def _known(self, lake: Lake, own: Sequence[str]) -> dict[str, Registered]:
        """Where the batch record does not know us, it may have been lost: then the tables are asked one by one."""
        found = lake.known_in(self.settings.catalog.namespace)
        found.refuse_unread(self.identity, {*own, *self._foretold(self.topics)})
        if found.unread:
            first, *_ = found.unread.values()
            names = [*found.unread]
            self.watch.events.warned("tables_passed_over", stream=self.name, tables=names, error=str(first))
        record, *_ = own
        return {name: each for name, each in found.tables.items() if name != record}

    def _compare(self, lake: Lake, record_name: str) -> None:
        record = lake.find(record_name)
        assert record
        before = lake.seen(record).carried.get(f"{ledger.SETTINGS}{self.identity}")
        for change in starting.compare(
            before, starting.meaning(self.settings, self.stream), accepted=self.accept_changes
        ):
            self.watch.events.warned("settings_changed", stream=self.name, change=change)

    def _batch(
        self, street: Street, source: Source, goal: Offsets | None, failures: list[BaseException]
    ) -> Callable[[DataFrame, int], None]:
        def batch(rows: DataFrame, number: int) -> None:
            # Whoever stops the query holds the gate until this has returned: to wait for it would be to wait for
            # each other. What is not landed now is read again by the next start.
            while not self._gate.acquire(timeout=LOOK_S):
                if self._closing.is_set():
                    return
            try:
                if self._has_enough:
                    return
                began = monotonic()
                landed = street.run(rows, number)
                self.at, self.newest = landed.end, street.newest or self.newest
                self.landed += 1
                if goal is None and not self._has_enough:
                    pacing.wait_until_due(self.stream, began, landed.end, lambda: self._ends(source), self._closing)
            except BaseException as failure:
                failures.append(failure)
                raise
            finally:
                self._gate.release()

        return batch

    def _stream_through(
        self, street: Street, source: Source, goal: Offsets | None, begun: ExitStack, ending: ExitStack
    ) -> bool:
        """Returns when there is nothing more to do, or when there are more topics: whether there are."""
        failures: list[BaseException] = []
        more_topics = False
        self._closing.clear()
        with self.watch.span("source.read", self.name):
            frame = source.stream(self.spark, street.start, self.stream.max_records, self.identity)
            if goal is not None and _reached(goal, street.start):
                return False
            batch = Callback(self.spark, self._batch(street, source, goal, failures))
            query = (
                frame.writeStream.foreachBatch(batch)
                .option("checkpointLocation", str(street.offset_log.parent))
                .queryName(f"{self.identity} {street.token.epoch}")
                .start()
            )
        begun.close()
        looked = beaten = monotonic()
        self.at, self.progress, self._hinted = street.start, Progress(query), street.record.complete
        self.watch.tell(self.name, State.RUNNING)
        try:
            while query.isActive and not (self._has_enough or more_topics or self.stop.wait(LOOK_S)):
                if goal is not None and _reached(goal, street.record.complete):
                    break
                self._catch_up(street)
                if self.watch.looked_at and monotonic() - beaten >= BEAT_S:
                    beaten = monotonic()
                    if self.progress.has_moved():
                        self.watch.board.moved(self.name)
                if monotonic() - looked >= TOPICS_S:
                    more_topics, looked = self._finds_others(street, source) and goal is None, monotonic()
        finally:
            self._closing.set()
            if self.stop.is_set():
                self.watch.tell(self.name, State.STOPPING)
            ending.enter_context(self.watch.stop(self.name))
            # A batch that is under way ends first.
            with self.watch.span("source.close", self.name), self._gate:
                _end(query)
            batch.let_go()
        if failures:
            raise self._explained(failures[0])
        if (error := query.exception()) is not None:
            raise self._explained(error, spark_errors.causes(query))
        return more_topics

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

    def _checkpoint(self, epoch: int) -> Path:
        """Scratch: a checkpoint that is used again would silently override where we start."""
        folder = self.scratch / f"checkpoint-{self.identity}-{epoch}"
        rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as broken:
            raise spark_errors.of_scratch(broken.strerror or str(broken), self.scratch) from broken
        return folder

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

    def _expired(self, lake: Lake, place: Place) -> Place:
        keep = self.settings.ledger.keep_snapshots
        if place.snapshots < keep:
            return place
        reached(FailPoint.EXPIRING)
        try:
            with self.watch.span("expire", self.name, place.table):
                count = expire(self.spark, place.table, self.identity, place.epoch, keep)
        except (Py4JError, PySparkException) as failure:
            # What has landed has landed; tidying is tried again after the next landing.
            self.watch.events.warned("snapshots_not_expired", table=place.table, error=spark_errors.sentence(failure))
            return place
        self.watch.events.snapshots_expired(table=place.table, count=count)
        return lake.again(place)


def _dead_spec(name: str, files: FileOptions) -> TableSpec:
    columns = tuple(Column(each.name, each.iceberg, each.required) for each in dead_letters.COLUMNS)
    return TableSpec(name, columns, tuple(map(Partition.parse, dead_letters.PARTITIONS)), (), files.properties())


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
