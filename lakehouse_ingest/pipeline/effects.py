"""The effects of a run, on real tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.events import CommitReconciled, CommitRetried, SnapshotsExpired, SnapshotsNotExpired
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.group_offsets import GroupOffsets
from lakehouse_ingest.pipeline.reporting import BatchReports
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import (
    Connection,
    Contract,
    Evolution,
    Partition,
    PipelineTables,
    Plan,
    Position,
    Registered,
    TableSpec,
    TableState,
    Turns,
)
from lakehouse_ingest.tables.append import stage
from lakehouse_ingest.tables.effects import Effects, Landing, Unpublished
from lakehouse_ingest.tables.expiry import expire
from lakehouse_ingest.tables.retention import Retention, is_due, retention_of

# Contract and column limits were already checked while planning, by field name, which the catalog does not know.
PLANNED = Contract(max_columns=None, max_depth=None)
# Keys of a snapshot's summary, in the order of the fields of `Unpublished`.
COUNTS = ("added-records", "added-data-files", "added-files-size", "changed-partition-count")


@dataclass
class ChangesTables:
    """Creates and changes tables through a catalog: the real one, or the dry run's."""

    lake: PipelineTables

    def create(self, spec: TableSpec) -> TableState:
        return self.lake.create(spec)

    def change(self, table: str, changes: Sequence[Evolution]) -> tuple[TableState, Plan]:
        return self.lake.follow(table, changes, PLANNED)

    def lay_out(self, table: str, partitions: Sequence[Partition]) -> tuple[TableState, list[str]]:
        return self.lake.lay_out(table, partitions)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self.lake.tell(table, properties)

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        return self.lake.claimed(first, others)

    def open(self, table: str, epoch: int) -> Position:
        return self.lake.open(table, epoch)

    def register(self, record: str, tables: Mapping[str, Registered]) -> None:
        self.lake.register(record, tables)


@dataclass
class LiveEffects(ChangesTables):
    """The effects of one start of one stream, on real tables."""

    spark: SparkSession
    pipeline: str
    retention: Callable[[str], Retention]  # by table name
    group_offsets: GroupOffsets
    watch: Watch
    stream: str

    def write(self, landing: Landing, rows: DataFrame, size: int, mark: Mark) -> Unpublished:
        place = landing.place
        target = self.lake.target(place, mark.token)
        stage(rows, target.name, target.wap, marks.to_summary(mark, place.carried), landing.files, size)
        found = self.lake.staged(place, str(mark.token))
        if found is None:
            raise TryAgain(f"Spark reported a commit to {place.table} that the catalog does not show")
        return Unpublished(landing, mark, found.id, *(int(found.summary.get(what, 0)) for what in COUNTS))

    def publish(self, written: Unpublished) -> Position:
        return self.lake.publish(written.landing.place, written.snapshot, written.mark)

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        return self.lake.append(place, rows, mark, extra)

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        if at_once:
            self.group_offsets.publish_last(complete)
        else:
            self.group_offsets.publish(complete)

    def expire(self, place: Position) -> Position:
        if not is_due(place.snapshots, place.expirable):
            return place
        reached(FailPoint.EXPIRING)
        try:
            with self.watch.span("expire", self.stream, place.table), self.lake.turn(place.table):
                place = self.lake.again(place)
                if not is_due(place.snapshots, place.expirable):
                    return place  # another stream of this process has just done it
                count = expire(self.spark, place.table, self.pipeline, place.epoch, self.retention(place.table))
        except (Py4JError, PySparkException) as failure:
            # The batch is committed, so this failure ends nothing. Expiry is tried again after the next batch.
            self.watch.emit(SnapshotsNotExpired(table=place.table, error=spark_errors.sentence(failure)))
            return place
        self.watch.emit(SnapshotsExpired(table=place.table, count=count))
        return self.lake.again(place)


class World(Protocol):
    """Creates what the streams of a pipeline work with: real, or for a dry run."""

    def lake(self, settings: Settings, pipeline: str) -> PipelineTables:
        """The tables as one stream sees them. All starts of the stream share it, because it knows the last epoch."""
        ...

    def effects(
        self, settings: Settings, stream: StreamSettings, lake: PipelineTables, source: Source, spark: SparkSession
    ) -> Effects:
        """The effects of one start."""
        ...

    def reports(self, settings: Settings, stream: StreamSettings, lake: PipelineTables) -> BatchReports: ...


@dataclass(frozen=True)
class RealWorld:
    """Works on the real catalog and source."""

    connection: Connection
    watch: Watch
    turns: Turns = field(default_factory=Turns)  # for tables that several streams of this process write to

    def lake(self, settings: Settings, pipeline: str) -> PipelineTables:
        emit = self.watch.emit
        return PipelineTables(
            self.connection,
            pipeline,
            settings.catalog.publish,
            lambda table, attempt, error: emit(CommitRetried(table=table, attempt=attempt, error=error)),
            settled=lambda table: emit(CommitReconciled(table=table)),
            create=settings.catalog.create,
            turns=self.turns,
            retention=retention_of(settings),
        )

    def effects(
        self, settings: Settings, stream: StreamSettings, lake: PipelineTables, source: Source, spark: SparkSession
    ) -> Effects:
        pipeline, name = settings.identity_of(stream), stream.known_as
        every, partitions = settings.ledger.batch_every, settings.source.partitions
        offsets = GroupOffsets(source, pipeline, stream.topics, partitions, every, self.watch, name)
        return LiveEffects(lake, spark, pipeline, retention_of(settings), offsets, self.watch, name)

    def reports(self, settings: Settings, stream: StreamSettings, lake: PipelineTables) -> BatchReports:
        letters = f"{settings.catalog.namespace}.{settings.dead_letters.table}"
        return BatchReports(stream.known_as, self.watch, letters, lake.metadata_size)
