"""A start opens its street: it claims the pipeline, reads what the tables hold, and goes on behind that in the log.

The order is the promise. Settings are compared before anything is claimed: a start that is refused must not end the
one that runs. Marks are read, and the source is asked, once older starts are shut out: until then they may go on.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from pyspark.sql import SparkSession

from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.marks import Head, Mark
from lakehouse_ingest.observe.events import BatchesReduced, SchemaChanged, SettingsChanged, TablesPassedOver
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.records import Offsets, SourceIdentity, Token
from lakehouse_ingest.resume import replicas, setting_changes, shared_partitions, start_offsets
from lakehouse_ingest.resume.already_landed import AlreadyLanded, HoldingSnapshot
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.new_topics import beginning, refuse_unkept
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import dead_letters, formats, routing
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import (
    Column,
    Partition,
    PipelineTables,
    Position,
    Registered,
    TableSpec,
    batch_size,
    newest_generation,
)
from lakehouse_ingest.tables.batch_log import BatchLog, record_spec
from lakehouse_ingest.tables.effects import Effects, Landing
from lakehouse_ingest.tables.stream_tables import StreamTables, foretold

REDUCED = (
    "an earlier start ended before a batch of this pipeline had landed, so batches begin small and grow with each that"
    " lands; if that goes on, see why starts end"
)


@dataclass(frozen=True)
class Claimed:
    """What is there once no older start can land anything any more."""

    epoch: int
    record: Position
    places: Mapping[str, Position]  # on the tables that are there, the dead letters among them
    registered: dict[str, Registered]  # without the dead letters
    heads: Mapping[str, Head]
    ours: Collection[str]  # tables that rows of ours may be in, where no mark says how far
    replaces_replica: bool  # the start before was ended by this one, whatever it was about to land


@dataclass(frozen=True)
class Opened:
    """What a start knows, and has in its hands, before its first batch."""

    token: Token  # of the start; each batch replaces the batch's number
    source: SourceIdentity
    settings_hash: str
    checkpoint: Path  # of all its queries; scratch
    start: Offsets  # of its first query
    record: BatchLog
    dead: Landing
    tables: StreamTables
    held: AlreadyLanded


@dataclass(frozen=True)
class Opening:
    """One start of one stream, until its street is open."""

    settings: Settings
    stream: StreamSettings
    lake: PipelineTables
    source: Source
    identity: SourceIdentity
    spark: SparkSession
    watch: Watch
    scratch: Path
    threads: ThreadPoolExecutor
    accept_changes: bool
    noted_as: replicas.Process | None  # for later starts to know us by; a start that ends by itself is none to wait for
    effects: Effects

    def opened(self) -> Opened:
        routing.check(self.stream, self.spark)
        claim = self._claim(self._prepared())
        # Asked for only now: until it was shut out, an earlier writer may have gone on.
        now = SourceNow(self.identity, *self.source.bounds(), self.source.ends())
        refuse_unkept(self.settings.source, now.high)
        everywhere = [*claim.places.values()]
        self.lake.begin_within(generation := newest_generation((claim.record, *everywhere)))
        record_place = claim.record.within(generation)
        # Where nothing lands, the starts' own commits become many.
        places = {name: self.effects.expire(place.within(generation)) for name, place in claim.places.items()}
        done = start_offsets.complete(record_place, [*places.values()])
        start, stands = self._where_to_begin(now, done, record_place, places, claim.heads)
        topics = self.identity.known_as(
            marks.ids_of([each.mark for each in (record_place, *places.values()) if each.mark])
        )
        token = Token(self._pipeline, generation, claim.epoch, -1)
        meant = setting_changes.meaning(self.settings, self.stream)
        mark = Mark(token, topics, stands, stands, stands, setting_changes.hash_of(meant))
        every = self.settings.ledger.batch_every
        size = self._size(record_place, replaces_replica=claim.replaces_replica)
        waiting = sum(max(0, end - start.get(at, end)) for at, end in now.ends.items())
        text = setting_changes.as_text(meant)
        record = BatchLog(self.effects, record_place, mark, text, every, claim.heads, size, waiting)
        tables = self._tables(claim, places)
        record.started(token)
        # Older generations' marks as well: what is to be read again may stand there already.
        holders = self._holders(start_offsets.uncertain(everywhere, done, claim.ours), claim.heads)
        return Opened(
            token=token,
            source=topics,
            settings_hash=mark.settings,
            checkpoint=self._checkpoint(claim.epoch),
            start=start,
            record=record,
            dead=Landing(places[self._dead], FileOptions()),
            tables=tables,
            held=AlreadyLanded.beyond(
                start, holders, {topic: topics.log(topic) for topic in self.stream.topics}, self.spark
            ),
        )

    # -- whose tables they are ----------------------------------------------------------------------------

    @property
    def _pipeline(self) -> str:
        return self.settings.identity_of(self.stream)

    @property
    def _record(self) -> str:
        return self._named(self.settings.ledger.batch_table)

    @property
    def _dead(self) -> str:
        return self._named(self.settings.dead_letters.table)

    @property
    def _events(self) -> list[str]:
        """Tables of the settings' own names; others are named by the records."""
        return [self._named(entry.table) for entry in self.stream.tables if "{" not in entry.table]

    def _named(self, table: str) -> str:
        return f"{self.settings.catalog.namespace}.{table}"

    def _foretold(self, topics: Sequence[str]) -> list[str]:
        return [self._named(name) for name in foretold(self.stream, topics)]

    def _prepared(self) -> dict[str, Registered]:
        """Make what every pipeline has; the tables that are ours already, where the batch record does not tell."""
        if len({*self._events, self._record, self._dead}) < len(self._events) + 2:
            raise SettingsRefused("the dead letters, the batch record and the events need a table each")
        self.lake.ensure_namespace(self.settings.catalog.namespace)
        self.effects.create(record_spec(self._record, FileOptions()))
        self.effects.create(_dead_spec(self._dead, FileOptions()))
        # A start that was killed between its claim and its registering is known there, and nothing else.
        told = self.lake.registered(self._record) if self.lake.knows(self._record) else {}
        known = {} if told else self._found()
        # Whether one that we have landed in was dropped, is asked below. Of the topics that a pattern finds anybody may
        # have made one: without a table it has dead letters, and ends nothing.
        sure = self._foretold(() if self.stream.topic_pattern else self.stream.topics)
        self.lake.need(*(name for name in sure if name not in (told or known)))
        return known

    def _found(self) -> dict[str, Registered]:
        """Where the batch record does not know us, it may have been lost: then the tables are asked one by one."""
        found = self.lake.known_in(self.settings.catalog.namespace)
        found.refuse_unread(self._pipeline, {self._record, self._dead, *self._foretold(self.stream.topics)})
        if found.unread:
            first, *_ = found.unread.values()
            names = [*found.unread]
            self.watch.emit(TablesPassedOver(stream=self.stream.known_as, tables=names, error=str(first)))
        return {name: each for name, each in found.tables.items() if name != self._record}

    def _claim(self, known: dict[str, Registered]) -> Claimed:
        """Take the next epoch, and our place on each table with it: that shuts older starts out."""
        self.lake.begin_within(0)  # until it is known which generation it is, every mark counts
        self._compare()
        own = {self._dead, *self._events}
        record_place, record = self.effects.claim(self._record, [*{*own, *known}])
        reached(FailPoint.CLAIMED)
        replaces = False
        if self.noted_as:
            replaces = replicas.replaces_replica(replicas.starts(self._pipeline, record.properties), self.noted_as)
            self.effects.set_properties(self._record, replicas.noted(self._pipeline, record_place.epoch, self.noted_as))
        registered, heads = self.lake.registered_in(record) or known, self.lake.heads_in(record)
        there = [name for name, state in self.lake.find_all({*own, *registered}, self.threads).items() if state]
        opened = self.threads.map(lambda name: self.effects.open(name, record_place.epoch), there)
        places = dict(zip(there, opened, strict=True))
        reached(FailPoint.OPENED)
        start_offsets.same_tables(registered, heads, places)
        # Those that somebody has said are to be taken as they are.
        taken = {
            name: replace(each, uuid=places[name].uuid)
            for name, each in registered.items()
            if not each.uuid and name in places
        }
        letters = places[self._dead]
        self.effects.register(self._record, {**known, **taken, self._dead: Registered(letters.uuid)})
        events = {name: each for name, each in {**registered, **taken}.items() if name != self._dead}
        # The dead letters are opened by each start, and most have never had any of ours: with their history whole, that
        # no mark is there says so.
        ours = {*events, *([] if letters.whole and self._dead not in taken else [self._dead])}
        return Claimed(record_place.epoch, record_place, places, events, heads, ours, replaces)

    def _compare(self) -> None:
        record = self.lake.find(self._record)
        assert record
        before = self.lake.seen(record).carried.get(f"{keys.SETTINGS}{self._pipeline}")
        now = setting_changes.meaning(self.settings, self.stream)
        for change in setting_changes.compare(before, now, accepted=self.accept_changes):
            self.watch.emit(SettingsChanged(stream=self.stream.known_as, change=change))

    # -- where it goes on ---------------------------------------------------------------------------------

    def _where_to_begin(
        self, now: SourceNow, done: Offsets, record: Position, places: Mapping[str, Position], heads: Mapping[str, Head]
    ) -> tuple[Offsets, Offsets]:
        """The map to read from; and the one to leave in the ledger, which knows of more than is read now."""
        settings, tables = self.settings.source, [*places.values()]
        low, high = now.unknown(done, settings.partitions)
        # A topic that has come since the pipeline began is read from its first record, like a new partition.
        later = bool(done and self.stream.topic_pattern and settings.start == "latest")
        new = low if later else beginning(settings, low, high, self.source.since, done, now.ends)
        apart = shared_partitions.stated(self._pipeline, record, settings)
        start = start_offsets.begin(record, tables, now, new, heads, apart)
        shared = [place for name, place in places.items() if name != self._dead]
        start = {**start, **shared_partitions.taken_over(self._pipeline, record, shared, now, done, settings)}
        # A topic that is left out goes on where it stood, should it come back; one that a pattern finds no more was
        # deleted.
        rested = {} if self.stream.topic_pattern else done
        return start, {**rested, **shared_partitions.left(record, tables, now, done), **start}

    def _size(self, record: Position, *, replaces_replica: bool) -> int:
        """How many records the first batch may take."""
        most = self.stream.max_records
        size = batch_size.of_start(record, self._pipeline, most, replaces_replica=replaces_replica)
        if size < most:
            self.watch.emit(BatchesReduced(stream=self.stream.known_as, max_records=size, advice=REDUCED))
        return size

    def _holders(self, uncertain: Sequence[Position], heads: Mapping[str, Head]) -> list[HoldingSnapshot]:
        return [
            HoldingSnapshot(
                place.table,
                place.main or 0,
                self._pipeline if place.table == self._dead else None,
                has_ours=place.mark is not None or place.table in heads,
            )
            for place in uncertain
        ]

    def _tables(self, claim: Claimed, places: Mapping[str, Position]) -> StreamTables:
        return StreamTables(
            self.lake,
            self.effects,
            self.stream,
            formats.chosen(self.stream.format),
            self.settings.catalog.namespace,
            self._record,
            (self._record, self._dead),
            claim.epoch,
            claim.registered,
            places,
            lambda of, changes: self.watch.emit(SchemaChanged(table=of, changes=changes)),
            lambda names: self.lake.find_all(names, self.threads),
        )

    def _checkpoint(self, epoch: int) -> Path:
        """Scratch: a checkpoint that is used again would silently override where we start."""
        folder = self.scratch / f"checkpoint-{self._pipeline}-{epoch}"
        rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as broken:
            raise spark_errors.of_scratch(broken.strerror or str(broken), self.scratch) from broken
        return folder


def _dead_spec(name: str, files: FileOptions) -> TableSpec:
    columns = tuple(
        Column(each.name, each.iceberg, each.required, dead_letters.MEANINGS[each.name])
        for each in dead_letters.COLUMNS
    )
    return TableSpec(name, columns, tuple(map(Partition.parse, dead_letters.PARTITIONS)), (), files.properties())
