"""A start: it claims the pipeline, reads what the tables hold, and finds the offsets at which to go on.

The order matters. Settings are compared before anything is claimed, because a start that is refused must not end the
one that runs. Marks are read and the source is asked only when older starts are fenced: until then they may still
commit.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

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
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import (
    Column,
    Partition,
    PipelineTables,
    Position,
    Registered,
    TableSpec,
    TableState,
    batch_size,
    newest_generation,
)
from lakehouse_ingest.tables.batch_log import BatchLog, record_spec
from lakehouse_ingest.tables.effects import Landing, TableEffects
from lakehouse_ingest.tables.stream_tables import StreamTables, foretold

REDUCED = (
    "an earlier start ended before it committed a batch, so batches begin small and grow with each commit; if that goes"
    " on, find out why starts end"
)


@dataclass(frozen=True)
class Claimed:
    """What a start knows as soon as no older start can commit any more."""

    epoch: int
    record: Position
    places: Mapping[str, Position]  # on all tables that exist, including the dead-letter table
    registered: dict[str, Registered]  # without the dead-letter table
    heads: Mapping[str, Head]
    ours: Collection[str]  # tables that may hold rows of ours even if they have no mark
    replaces_replica: bool  # the start before was fenced by this one, so it is no sign of too large batches


@dataclass(frozen=True)
class Opened:
    """What a start hands to its first batch."""

    token: Token  # of the start; each batch sets its own number in it
    source: SourceIdentity
    settings_hash: str
    checkpoint: Path  # scratch, for the query of this start
    start: Offsets  # where it begins
    record: BatchLog
    dead: Landing
    tables: StreamTables
    held: AlreadyLanded


@dataclass(frozen=True)
class Opening:
    """One start of one stream, until its first batch can begin."""

    settings: Settings
    stream: StreamSettings
    lake: PipelineTables
    source: Source
    identity: SourceIdentity
    watch: Watch
    scratch: Path
    threads: ThreadPoolExecutor
    accept_changes: bool
    noted_as: replicas.Process | None  # later starts recognise us by it; None if this start ends by itself
    effects: TableEffects

    def opened(self) -> Opened:
        claim = self._claim(self._prepared())
        # Not earlier: until it was fenced, an earlier start may have gone on.
        now = SourceNow(self.identity, *self.source.bounds(), self.source.ends())
        refuse_unkept(self.settings.source, now.high)
        everywhere = [*claim.places.values()]
        self.lake.begin_within(generation := newest_generation((claim.record, *everywhere)))
        record_place = claim.record.within(generation)
        # Each start makes commits of its own. If no batch follows, nothing else expires them.
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
        tables = self._tables(claim, places, record)
        record.started(token)
        # Marks of older generations count here as well: what we read again may be in those tables already.
        holders = self._holders(start_offsets.uncertain(everywhere, done, claim.ours), claim.heads)
        return Opened(
            token=token,
            source=topics,
            settings_hash=mark.settings,
            checkpoint=self._checkpoint(claim.epoch),
            start=start,
            record=record,
            dead=Landing(places[self._dead], self.lake.files(self._dead)),
            tables=tables,
            held=AlreadyLanded.beyond(
                start, holders, {topic: topics.log(topic) for topic in self.stream.topics}, self.lake
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
        """The tables that the settings name. Names with a template depend on the records."""
        return [self._named(entry.table) for entry in self.stream.tables if "{" not in entry.table]

    def _named(self, table: str) -> str:
        return f"{self.settings.catalog.namespace}.{table}"

    def _expected(self, topics: Sequence[str]) -> list[str]:
        return [self._named(name) for name in foretold(self.stream, topics)]

    def _prepared(self) -> dict[str, Registered]:
        """Create the tables that every pipeline has. Returns our tables if the batch log has lost them."""
        if len({*self._events, self._record, self._dead}) < len(self._events) + 2:
            raise SettingsRefused(
                "two of the tables for records, dead letters and the batch log have the same name; change"
                " `streams.tables`, `dead_letters.table` or `ledger.batch_table`"
            )
        self.lake.ensure_namespace(self.settings.catalog.namespace)
        self.effects.tables.create(record_spec(self._record, FileOptions()))
        self.effects.tables.create(_dead_spec(self._dead, FileOptions()))
        # If a start was killed between its claim and its registering, the batch log knows it, but not its tables.
        registered = self.lake.registered(self._record) if self.lake.knows(self._record) else {}
        known = {} if registered else self._found()
        # `_claim` finds out whether a known table was dropped. Topics that a pattern finds need no table: anyone may
        # have created one of them, so without a table its records are dead-lettered, and nothing stops.
        sure = self._expected(() if self.stream.topic_pattern else self.stream.topics)
        self.lake.need(*(name for name in sure if name not in (registered or known)))
        return known

    def _found(self) -> dict[str, Registered]:
        """Our tables, asked one by one. The batch log does not know us, so it may have been lost."""
        found = self.lake.known_in(self.settings.catalog.namespace)
        found.refuse_unread(self._pipeline, {self._record, self._dead, *self._expected(self.stream.topics)})
        if found.unread:
            first, *_ = found.unread.values()
            names = [*found.unread]
            self.watch.emit(TablesPassedOver(stream=self.stream.known_as, tables=names, error=str(first)))
        return {name: each for name, each in found.tables.items() if name != self._record}

    def _claim(self, known: dict[str, Registered]) -> Claimed:
        """Take the next epoch, and open each table with it. That fences older starts."""
        self.lake.begin_within(0)  # every mark counts until we know the generation
        notes = self.effects.prove(self._compare())
        own = {self._dead, *self._events}
        record_place, record = self.effects.tables.claim(self._record, [*{*own, *known}])
        reached(FailPoint.CLAIMED)
        replaces = False
        if self.noted_as:
            replaces = replicas.replaces_replica(replicas.starts(self._pipeline, record.properties), self.noted_as)
            notes = {**notes, **replicas.noted(self._pipeline, record_place.epoch, self.noted_as)}
        if notes:
            self.effects.tables.set_properties(record_place, notes)
        registered, heads = self.lake.registered_in(record) or known, self.lake.heads_in(record)
        there = [name for name, state in self.lake.find_all({*own, *registered}, self.threads).items() if state]
        opened = self.threads.map(lambda name: self.effects.tables.open(name, record_place.epoch), there)
        places = dict(zip(there, opened, strict=True))
        reached(FailPoint.OPENED)
        start_offsets.same_tables(registered, heads, places)
        # Tables that a person has decided to accept as they are.
        taken = {
            name: replace(each, uuid=places[name].uuid)
            for name, each in registered.items()
            if not each.uuid and name in places
        }
        letters = places[self._dead]
        self.effects.tables.register(record_place, {**known, **taken, self._dead: Registered(letters.uuid)})
        events = {name: each for name, each in {**registered, **taken}.items() if name != self._dead}
        # Every start opens the dead-letter table, and most starts have never written to it. If its history is whole, a
        # missing mark proves that it has no rows of ours.
        ours = {*events, *([] if letters.whole and self._dead not in taken else [self._dead])}
        return Claimed(record_place.epoch, record_place, places, events, heads, ours, replaces)

    def _compare(self) -> TableState:
        """Report or refuse changed settings. Returns the batch log, which has those of the last start."""
        record = self.lake.find(self._record)
        assert record
        before = self.lake.seen(record).carried.get(f"{keys.SETTINGS}{self._pipeline}")
        now = setting_changes.meaning(self.settings, self.stream)
        for change in setting_changes.compare(before, now, accepted=self.accept_changes):
            self.watch.emit(SettingsChanged(stream=self.stream.known_as, change=change))
        return record

    # -- where it goes on ---------------------------------------------------------------------------------

    def _where_to_begin(
        self, now: SourceNow, done: Offsets, record: Position, places: Mapping[str, Position], heads: Mapping[str, Head]
    ) -> tuple[Offsets, Offsets]:
        """The offsets to read from, and those for the ledger, which also keeps partitions that are not read now."""
        settings, tables = self.settings.source, [*places.values()]
        low, high = now.unknown(done, settings.partitions)
        # A topic that was created after the pipeline began is read from its first record, like a new partition.
        later = bool(done and self.stream.topic_pattern and settings.start == "latest")
        new = low if later else beginning(settings, low, high, self.source.since, done, now.ends)
        apart = shared_partitions.stated(self._pipeline, record, settings)
        start = start_offsets.begin(record, tables, now, new, heads, apart)
        shared = [place for name, place in places.items() if name != self._dead]
        start = {**start, **shared_partitions.taken_over(self._pipeline, record, shared, now, done, settings)}
        # A topic that the settings leave out goes on where it stood if it comes back. A topic that a pattern does not
        # find any more was deleted.
        rested = {} if self.stream.topic_pattern else done
        return start, {**rested, **shared_partitions.left(record, tables, now, done), **start}

    def _size(self, record: Position, *, replaces_replica: bool) -> int:
        """How many records the first batch may have."""
        most = self.stream.max_records
        size = batch_size.of_start(record, self._pipeline, most, replaces_replica=replaces_replica)
        if size < most:
            self.watch.emit(BatchesReduced(stream=self.stream.known_as, max_records=size, advice=REDUCED))
        return size

    def _holders(self, uncertain: Sequence[Position], heads: Mapping[str, Head]) -> list[HoldingSnapshot]:
        return [
            HoldingSnapshot(
                place.table,
                place.main,
                self._pipeline if place.table == self._dead else None,
                has_ours=place.mark is not None or place.table in heads,
            )
            for place in uncertain
            if place.main is not None
        ]

    def _tables(self, claim: Claimed, places: Mapping[str, Position], record: BatchLog) -> StreamTables:
        return StreamTables(
            self.lake,
            self.effects.tables,
            self.stream,
            self.settings.catalog.namespace,
            record,
            (self._record, self._dead),
            claim.epoch,
            claim.registered,
            places,
            lambda of, changes: self.watch.emit(SchemaChanged(table=of, changes=changes)),
            lambda names: self.lake.find_all(names, self.threads),
        )

    def _checkpoint(self, epoch: int) -> Path:
        """An empty folder. Spark would go on from an old checkpoint, and silently ignore where we start."""
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
