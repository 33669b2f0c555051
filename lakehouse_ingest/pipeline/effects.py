"""All durable effects of a start and its batches, and those of a run on real tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog import DataFileReceipt, FileLayout, FileNames, FileWriter
from lakehouse_ingest.environment import spark_errors
from lakehouse_ingest.environment.spark_process import STOP_S
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.fail_points import FailPoint, reached
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.events import (
    CatalogHardToTry,
    CommitReconciled,
    CommitRetried,
    FenceNotMoved,
    SnapshotsExpired,
    SnapshotsNotExpired,
)
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.group_offsets import GroupOffsets
from lakehouse_ingest.pipeline.reporting import BatchReports
from lakehouse_ingest.pipeline.task import Receipt, Work, attempt_number, do, do_nothing
from lakehouse_ingest.records import Offsets, Token
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import Connection, PipelineTables, Position, TableState, Turns
from lakehouse_ingest.tables.effects import Landing, TableEffects
from lakehouse_ingest.tables.expiry import expire
from lakehouse_ingest.tables.publishing import BatchFiles
from lakehouse_ingest.tables.retention import Retention, is_due, retention_of

DRIVER = -1  # stands for the number of a task in the names of files that the driver writes


class Effects(TableEffects, Protocol):
    """A batch calls these in their order, after it has created and changed tables."""

    def write(self, work: Work, tasks: Sequence[Sequence[Share]]) -> Sequence[Receipt]:
        """Let tasks read their shares and write files that no snapshot has yet."""
        ...

    def write_letters(self, landing: Landing, rows: pa.Table, token: Token) -> Sequence[DataFileReceipt]:
        """Write dead-letter records to files, likewise."""
        ...

    def land(self, landing: Landing, files: Sequence[DataFileReceipt], mark: Mark) -> Position:
        """Commit files to a table. Returns our position on it as the commit left it."""
        ...

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        """Publish group offsets for lag tools, at most every few seconds unless `at_once`."""
        ...


@dataclass
class OnSpark:
    """Changes tables through a catalog, the real one or the dry run's, and runs tasks on Spark."""

    tables: PipelineTables
    spark: SparkSession

    def write(self, work: Work, tasks: Sequence[Sequence[Share]]) -> Sequence[Receipt]:
        """Run a task for each list of shares, in one Spark job without a shuffle."""
        numbered = list(enumerate(tasks))
        job = self.spark.sparkContext.parallelize(numbered, len(numbered))
        return job.map(lambda task: do(work, task[0], attempt_number(), task[1])).collect()


@dataclass
class LiveEffects(OnSpark):
    """The effects of one start of one stream, on real tables."""

    pipeline: str
    retention: Callable[[str], Retention]  # by table name
    group_offsets: GroupOffsets
    watch: Watch
    stream: str

    def write_letters(self, landing: Landing, rows: pa.Table, token: Token) -> Sequence[DataFileReceipt]:
        writer = FileWriter(landing.files, FileNames(token.pipeline, token.epoch, token.batch, DRIVER, 0))
        writer.write(rows)
        return writer.close()

    def land(self, landing: Landing, files: Sequence[DataFileReceipt], mark: Mark) -> Position:
        layout = FileLayout(landing.files.schema_id, landing.files.spec_id)
        return self.tables.publication.land(landing.place, BatchFiles(files, layout), mark, {})

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        return self.tables.publication.append(place, rows, mark, extra)

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        if at_once:
            self.group_offsets.publish_last(complete)
        else:
            self.group_offsets.publish(complete)

    def prove(self, log: TableState) -> Mapping[str, str]:
        proof = self.tables.enforcement.proven(log)
        if proof.hindrance:
            self.watch.emit(CatalogHardToTry(stream=self.stream, error=proof.hindrance))
        return proof.notes

    def move_up(self, place: Position) -> Position:
        try:
            return self.tables.publication.move_up(place)
        except LakehouseError as failure:
            # Nothing is wrong with the rows. If the fence has moved all the same, the next commit is refused, and the
            # stream starts again.
            self.watch.emit(FenceNotMoved(table=place.table, error=str(failure)))
            return place

    def expire(self, place: Position) -> Position:
        if not is_due(place.snapshots, place.expirable):
            return place
        reached(FailPoint.EXPIRING)
        try:
            with (
                self.watch.span("expire", self.stream, place.table),
                self.tables.publication.turns.at(place.table).taken(),
            ):
                place = self.tables.again(place)
                if not is_due(place.snapshots, place.expirable):
                    return place  # another stream of this process has just done it
                count = expire(self.spark, place.table, self.pipeline, place.epoch, self.retention(place.table))
        except (Py4JError, PySparkException) as failure:
            # The batch is committed, so this failure ends nothing. Expiry is tried again after the next batch.
            self.watch.emit(SnapshotsNotExpired(table=place.table, error=spark_errors.sentence(failure)))
            return place
        self.watch.emit(SnapshotsExpired(table=place.table, count=count))
        return self.tables.again(place)


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


@contextmanager
def workers_starting(spark: SparkSession) -> Iterator[None]:
    """Lets Spark's Python workers start and import, for which they take over a second, beside what the block does."""

    def start() -> None:
        with suppress(Py4JError, PySparkException, OSError, EOFError):  # the first batch reports it
            context, cores = spark.sparkContext, spark.sparkContext.defaultParallelism
            context.parallelize(range(cores), cores).map(do_nothing).collect()

    # A cluster without room for an executor answers only when it has some.
    starting = Thread(target=start, name="workers-start", daemon=True)
    starting.start()
    try:
        yield
    finally:
        starting.join(STOP_S)  # Spark would report that it was stopped in the middle of a job
