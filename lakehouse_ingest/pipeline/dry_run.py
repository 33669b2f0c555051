"""Show what a run would do: the same stages on the same records, with effects that change nothing.

A start begins where a run would begin. Tables are created and changed in memory, and rows pass every stage to a sink
that keeps none. No epoch is taken and no start is fenced, so a dry run is safe while the pipeline runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog import DataFileReceipt, FileCounter, FileNames
from lakehouse_ingest.errors import LakehouseError, TryAgain
from lakehouse_ingest.ledger.keys import REGISTERED
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.observe.watch import Span, Watch
from lakehouse_ingest.pipeline.effects import DRIVER, Effects, OnSpark
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.pipeline.reporting import BatchReports, Written
from lakehouse_ingest.pipeline.retry import RetryBudget
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.pipeline.task import Receipt, Work
from lakehouse_ingest.records import SOURCE, Offsets, Token
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.tally import Tally
from lakehouse_ingest.tables import Connection, DryRun, Foreseen, ImaginedTables, PipelineTables, Position, TableState
from lakehouse_ingest.tables.batch_log import LandedBatch
from lakehouse_ingest.tables.effects import Landing

HOUR_S = 3600.0
SHORTEST_S = 1.0  # the shortest batch that the estimate assumes


@dataclass(frozen=True)
class Example:
    """The first dead-letter record with a reason."""

    topic: str
    partition: int
    offset: int
    detail: str


@dataclass
class Writing:
    """What would be written to one table."""

    rows: int = 0
    spread: int = 0  # the most partitions of the table that one batch has rows for


@dataclass
class Seen:
    """The outcomes of the records of a stream."""

    offsets: int = 0
    batches: int = 0
    tally: Tally = field(default_factory=Tally)
    writing: dict[str, Writing] = field(default_factory=dict)
    examples: dict[str, Example] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class ImaginedEffects(OnSpark):
    """Sends rows to a sink that keeps none, and changes tables in memory."""

    seen: Seen

    def write(self, work: Work, tasks: Sequence[Sequence[Share]]) -> Sequence[Receipt]:
        return super().write(replace(work, imagined=True), tasks)

    def write_letters(self, landing: Landing, rows: pa.Table, token: Token) -> Sequence[DataFileReceipt]:
        self.seen.examples = {**_examples(rows), **self.seen.examples}
        counter = FileCounter(landing.files, FileNames(token.pipeline, token.epoch, token.batch, DRIVER, 0))
        counter.write(rows)
        return counter.close()

    def land(self, landing: Landing, files: Sequence[DataFileReceipt], mark: Mark) -> Position:
        writing = self.seen.writing.setdefault(landing.place.table, Writing())
        writing.rows += sum(file.record_count for file in files)
        writing.spread = max(writing.spread, len({file.partition for file in files}))
        return replace(landing.place, main=landing.place.main or 0, mark=mark)

    def record(
        self,
        place: Position,
        rows: Sequence[Mapping[str, object]],  # noqa: ARG002 - a log of what has not happened
        mark: Mark,  # noqa: ARG002
        extra: Mapping[str, str],  # noqa: ARG002
    ) -> Position:
        return place

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        """Do nothing: nothing was committed that lag tools could show."""

    def prove(self, log: TableState) -> Mapping[str, str]:
        del log  # to try a catalog changes it
        return {}

    def move_up(self, place: Position) -> Position:
        return place

    def expire(self, place: Position) -> Position:
        return place


@dataclass
class ImaginedReports(BatchReports):
    """Counts batches, and reports nothing."""

    seen: Seen = field(default_factory=Seen)

    def written(self, rows: Written) -> None:
        """Do nothing: there are no files."""

    def published(self, rows: Written, place: Position) -> None:
        """Do nothing: nothing was published."""

    def landed(self, landed: LandedBatch, span: Span) -> None:
        del span
        seen = self.seen
        seen.offsets += len(landed.batch)
        seen.batches += 1
        seen.tally = Tally.sum([seen.tally, landed.tally])
        if landed.note and landed.note not in seen.notes:
            seen.notes.append(landed.note)

    def due(self, tables: Iterable[str]) -> list[str]:
        del tables
        return []


@dataclass(frozen=True)
class ImaginedWorld:
    """The world of one stream's dry run. Later streams share `stage`, so they find the tables that it created there."""

    connection: Connection
    watch: Watch
    stage: DryRun
    seen: Seen

    def lake(self, settings: Settings, pipeline: str) -> PipelineTables:
        return ImaginedTables(self.connection, pipeline, self.stage, create=settings.catalog.create)

    def effects(
        self,
        settings: Settings,  # noqa: ARG002
        stream: StreamSettings,  # noqa: ARG002 - those of all streams are alike
        lake: PipelineTables,
        source: Source,  # noqa: ARG002
        spark: SparkSession,
    ) -> Effects:
        return ImaginedEffects(lake, spark, self.seen)

    def reports(self, settings: Settings, stream: StreamSettings, lake: PipelineTables) -> BatchReports:
        return ImaginedReports(stream.known_as, self.watch, _dead_letters(settings), lake.metadata_size, seen=self.seen)


def _dead_letters(settings: Settings) -> str:
    return f"{settings.catalog.namespace}.{settings.dead_letters.table}"


def files_an_hour(seen: Seen, stream: StreamSettings) -> Mapping[str, float]:
    """Estimate the files that each table gets in an hour, if records keep the sample's rate by the broker's times."""
    tally = seen.tally
    span = ((tally.newest_ms or 0) - (tally.oldest_ms or 0)) / 1000
    if span <= 0 or not tally.received:
        return {}
    rate = tally.received / span
    batch_s = max(SHORTEST_S, min(stream.every, stream.max_records / rate))
    return {
        table: _files(rate * writing.rows / tally.received, batch_s, writing.spread * min(1.0, batch_s / span))
        for table, writing in seen.writing.items()
        if writing.rows
    }


def _files(rate: float, batch_s: float, spread: float) -> float:
    """Estimate the files of one table in an hour, at `rate` rows a second. Each batch has rows for a partition."""
    batches = min(HOUR_S / batch_s, rate * HOUR_S)
    return batches * max(1.0, min(spread, rate * HOUR_S / batches))


def _examples(letters: pa.Table) -> dict[str, Example]:
    found: dict[str, Example] = {}
    for reason, detail, at in zip(*(letters[name].to_pylist() for name in ("reason", "detail", SOURCE)), strict=True):
        if reason not in found or at["offset"] < found[reason].offset:
            found[reason] = Example(at["topic"], at["partition"], at["offset"], detail or "")
    return found


# -- all streams of a pipeline ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """One stream: the records that were looked at, and what a run would do with them."""

    name: str
    seen: Seen
    there: int
    tables: Sequence[str]
    files_an_hour: Mapping[str, float]
    refusal: LakehouseError | None  # the error that would stop a run

    @property
    def whole(self) -> bool:
        """True if every record that was there was looked at."""
        return self.refusal is None and self.seen.offsets >= self.there


@dataclass(frozen=True)
class Foresight:
    """What a run would change in the catalog. Nothing was changed."""

    namespaces: Sequence[str]  # to be created
    tables: Sequence[Foreseen]  # all tables that it would write to, changed or not
    notes: Mapping[str, Sequence[str]]  # notes about existing tables
    streams: Sequence[Outlook]

    @property
    def changed(self) -> bool:
        return bool(self.namespaces) or any(is_changed(each) for each in self.tables)


def is_changed(table: Foreseen) -> bool:
    return table.before is None or bool(table.changes or properties_of(table) or table.before.sort != table.after.sort)


def properties_of(table: Foreseen) -> Mapping[str, str]:
    """The properties that would be set, without those in which the batch log lists tables."""
    return {key: text for key, text in table.properties.items() if not key.startswith(REGISTERED)}


def foresee(pipeline: Pipeline, sample: int | None) -> Foresight:
    """Run all streams one after the other on one shared stage, so that each finds the tables of the earlier ones."""
    stage = DryRun()
    outlooks = [_outlook(pipeline, number, stage, sample) for number in range(len(pipeline.settings.streams))]
    lake = ImaginedTables(pipeline.connection, pipeline.settings.name, stage, create=pipeline.settings.catalog.create)
    names = dict.fromkeys([*stage.tables, *(name for each in outlooks for name in each.tables)])
    tables = [found for name in names if (found := stage.tables.get(name) or _unchanged(lake, name))]
    notes = {each.after.name: lake.inspected(each.after.name) for each in tables if each.before}
    return Foresight([*stage.namespaces], tables, notes, outlooks)


def _outlook(pipeline: Pipeline, number: int, stage: DryRun, sample: int | None) -> Outlook:
    seen, refusal = Seen(), None
    options = replace(pipeline.options, until_latest=True, sample=sample, max_batches=None)
    stream = pipeline.streams(ImaginedWorld(pipeline.connection, pipeline.watch, stage, seen), options)[number]
    settings = stream.stream
    if sample is not None:
        stream.stream = settings.model_copy(update={"max_records": min(sample, settings.max_records)})
    try:
        _imagine(stream)
    except LakehouseError as found:
        refusal = found
    there, tables = _looked_at(stream.current)
    return Outlook(stream.name, seen, there, tables, files_an_hour(seen, settings), refusal)


def _imagine(stream: Stream) -> None:
    """Run one imagined start up to the current end of the topics. Raises the error that would stop a run."""
    stream.refuse_unread()
    try:
        stream.start_once(RetryBudget(0, 0))
    except (TryAgain, Py4JError, PySparkException, ConnectionError) as error:
        raise stream.explained(error) from error


def _looked_at(start: OneStart | None) -> tuple[int, Sequence[str]]:
    """The number of offsets that the start had to read, and the tables that it would write to."""
    if start is None or start.runner is None:
        return 0, ()
    begun, tables = start.runner.opened.start, start.runner.tables
    there = sum(max(0, end - begun.get(at, end)) for at, end in (start.goal or {}).items())
    return there, sorted(keeper.name for keeper in tables.keepers.values())


def _unchanged(lake: PipelineTables, name: str) -> Foreseen | None:
    state = lake.find(name)
    return Foreseen(state, state) if state else None
