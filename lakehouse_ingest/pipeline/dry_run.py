"""What a run would do, by doing it: the same street on the same records, whose effects come to nothing.

A start begins where a run would, tables are made and changed in memory, and rows go through every stage to a sink that
keeps none. Nothing is claimed and nobody is shut out, so it may be done while the pipeline runs.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import ClassVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.environment.spark_names import quoted
from lakehouse_ingest.errors import LakehouseError, TryAgain
from lakehouse_ingest.ledger.keys import REGISTERED
from lakehouse_ingest.pipeline.batch import Staged, Street, Work
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.pipeline.stream import Next, Stream
from lakehouse_ingest.records import SOURCE, Offsets, Receipt, SourceIdentity
from lakehouse_ingest.resume.beginnings import refuse_unread
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages.accounting import Tally
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import Foreseen, Lake, Partition, Place, RehearsedLake, Stage
from lakehouse_ingest.tables.append import tasks_for
from lakehouse_ingest.tables.batch_log import Landed
from lakehouse_ingest.tables.table_keeper import Landing, TableKeeper

HOUR_S = 3600.0
SHORTEST_S = 1.0  # of a batch that follows the one before at once


@dataclass(frozen=True)
class Example:
    """The first dead letter of a reason."""

    topic: str
    partition: int
    offset: int
    detail: str


@dataclass
class Writing:
    """What would be written to one table."""

    rows: int = 0
    spread: int = 0  # partitions of the table that one batch has rows for, at most


@dataclass
class Seen:
    """What became of the records of a stream."""

    offsets: int = 0
    batches: int = 0
    tally: Tally = field(default_factory=Tally)
    writing: dict[str, Writing] = field(default_factory=dict)
    examples: dict[str, Example] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class RehearsedStreet(Street):
    """All of a batch but what lasts."""

    seen: Seen = field(default_factory=Seen)

    def _stage(self, landing: Landing, rows: DataFrame, size: int, work: Work, runs: Sequence[str]) -> Staged:
        del runs
        table = landing.place.table
        state = self.lake.find(table)
        assert state
        written, spread = _written(rows.coalesce(tasks_for(size)), state.partitions)
        writing = self.seen.writing.setdefault(table, Writing())
        writing.rows += written
        writing.spread = max(writing.spread, spread)
        if landing is self.dead and written:
            self.seen.examples = {**_examples(rows), **self.seen.examples}
        return Staged(landing, self._mark(landing.place, work), 0, written, 0, 0, spread)

    def _publish(self, staged: Staged) -> Receipt:
        return Receipt(staged.landing.place.table, rows=staged.rows)

    def _tell(self, landed: Landed) -> None:
        seen = self.seen
        seen.offsets += len(landed.batch)
        seen.batches += 1
        seen.tally = Tally.sum([seen.tally, landed.tally])
        if landed.note and landed.note not in seen.notes:
            seen.notes.append(landed.note)


@dataclass
class RehearsedStream(Stream):
    """A stream from where it would begin to what is there now, or as far as the sample goes."""

    street: ClassVar[type[Street]] = RehearsedStreet
    stage: Stage = field(default_factory=Stage)
    sample: int | None = None  # records; None: all of them
    seen: Seen = field(default_factory=Seen)
    there: int = 0  # records, holes of the log among them, that a run would read by now
    tables: Sequence[str] = ()  # that it feeds

    def rehearse(self) -> None:
        """Raises what would keep a run from starting, or end it."""
        refuse_unread(self.settings.source, self._is_read)
        self._lake = RehearsedLake(self.connection, self.identity, self.stage, create=self.settings.catalog.create)
        if self.sample is not None:
            size = min(self.sample, self.stream.max_records)
            self.stream = self.stream.model_copy(update={"max_records": size})
        try:
            self._one_start()
        except (TryAgain, Py4JError, PySparkException, ConnectionError) as error:
            raise self._explained(error) from error

    def _street(self, lake: Lake, source: Source, identity: SourceIdentity, threads: ThreadPoolExecutor) -> Street:
        street = super()._street(lake, source, identity, threads)
        assert isinstance(street, RehearsedStreet)
        street.seen = self.seen
        return street

    def _stream_through(
        self, street: Street, source: Source, goal: Offsets | None, begun: ExitStack, ending: ExitStack
    ) -> Next:
        ends = goal or {}
        self.there = sum(max(0, end - street.start.get(at, end)) for at, end in ends.items())
        try:
            return super()._stream_through(street, source, goal, begun, ending)
        finally:
            found = (street.tables.at(route) for route in street.tables.routes)
            self.tables = sorted(keeper.name for keeper in found if isinstance(keeper, TableKeeper))

    @property
    def _has_enough(self) -> bool:
        return self.sample is not None and self.seen.offsets >= self.sample

    def _hint(self, source: Source, offsets: Offsets) -> None:
        """Nobody is told of what has not landed."""

    def _expired(self, lake: Lake, place: Place) -> Place:
        del lake
        return place


def files_an_hour(seen: Seen, stream: StreamSettings) -> Mapping[str, float]:
    """An estimate: as if records came at the sample's rate, by the times that the broker gave them."""
    tally = seen.tally
    span = ((tally.newest_ms or 0) - (tally.oldest_ms or 0)) / 1000
    if span <= 0 or not tally.received:
        return {}
    rate = tally.received / span
    batch_s = max(SHORTEST_S, min(stream.every, stream.max_records / rate))
    return {
        table: _files(rate * writing.rows / tally.received, batch_s, writing.spread * min(1.0, batch_s / span))
        * tasks_for(int(rate * batch_s))
        for table, writing in seen.writing.items()
        if writing.rows
    }


def _files(rate: float, batch_s: float, spread: float) -> float:
    """Of a table that so many rows a second go to; a batch has rows for one of its partitions at least."""
    landings = min(HOUR_S / batch_s, rate * HOUR_S)
    return landings * max(1.0, min(spread, rate * HOUR_S / landings))


def _written(rows: DataFrame, layout: Sequence[Partition]) -> tuple[int, int]:
    """How many rows, and about how many partitions they are for."""
    values = [_value(rows, each) for each in layout if each.transform != "void"]
    spread = F.approx_count_distinct(F.xxhash64(*values)) if values else F.lit(1)
    seen = Observation()
    observed = rows.observe(seen, F.count(F.lit(1)).alias("rows"), spread.alias("spread"))
    observed.write.format("noop").mode("overwrite").save()
    try:
        found = seen.get
    except Py4JJavaError:  # Spark leaves the counting out where it finds that there is nothing to count
        return 0, 0
    return found["rows"], found["spread"]


def _value(rows: DataFrame, partition: Partition) -> Column:
    """As many values as Iceberg's, not the same ones."""
    column = F.col(".".join(quoted(part) for part in partition.column.split(".")))
    transform, _, number = partition.transform.removesuffix("]").partition("[")
    if transform in {"year", "month", "day", "hour"}:
        return F.date_trunc(transform, column)
    if transform == "bucket":
        return F.pmod(F.hash(column), F.lit(int(number)))
    if transform == "truncate":
        is_text = isinstance(rows.select(column).schema[0].dataType, T.StringType | T.BinaryType)
        return F.substring(column, 1, int(number)) if is_text else F.floor(column / int(number))
    return column


def _examples(letters: DataFrame) -> dict[str, Example]:
    at = F.col(SOURCE)
    first = F.struct(at["topic"], at["partition"], at["offset"], F.coalesce("detail", F.lit("")))
    found = letters.groupBy("reason").agg(F.min_by(first, at["offset"]).alias("first")).collect()
    return {row["reason"]: Example(*row["first"]) for row in found}


# -- all streams of a pipeline ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """One stream: what was looked at, and what would become of it."""

    name: str
    seen: Seen
    there: int
    tables: Sequence[str]
    files_an_hour: Mapping[str, float]
    refusal: LakehouseError | None  # what would keep it from starting, or end it

    @property
    def whole(self) -> bool:
        """Whether nothing is there that was not looked at."""
        return self.refusal is None and self.seen.offsets >= self.there


@dataclass(frozen=True)
class Foresight:
    """What a run would do to the catalog; nothing of it was done."""

    namespaces: Sequence[str]  # to be made
    tables: Sequence[Foreseen]  # all that it would feed, changed or not
    notes: Mapping[str, Sequence[str]]  # what there is to know of tables that are there
    streams: Sequence[Outlook]

    @property
    def changed(self) -> bool:
        return bool(self.namespaces) or any(is_changed(each) for each in self.tables)


def is_changed(table: Foreseen) -> bool:
    return table.before is None or bool(table.changes or properties_of(table) or table.before.sort != table.after.sort)


def properties_of(table: Foreseen) -> Mapping[str, str]:
    """Those that would be set, without what a pipeline notes for itself."""
    return {key: text for key, text in table.properties.items() if not key.startswith(REGISTERED)}


def foresee(pipeline: Pipeline, sample: int | None) -> Foresight:
    """Stream by stream, upon one stage: what one would make, the next one finds."""
    stage = Stage()
    streams = [
        RehearsedStream(
            pipeline.settings,
            stream,
            pipeline.spark,
            pipeline.connection,
            pipeline.watch,
            pipeline.scratch,
            drain=True,
            accept_changes=pipeline.accept_changes,
            stop=pipeline.stop,
            transform=transform,
            stage=stage,
            sample=sample,
        )
        for stream, transform in zip_longest(pipeline.settings.streams, pipeline.transforms)
    ]
    outlooks = [_outlook(stream) for stream in streams]
    lake = RehearsedLake(pipeline.connection, pipeline.settings.name, stage, create=pipeline.settings.catalog.create)
    names = dict.fromkeys([*stage.tables, *(name for each in outlooks for name in each.tables)])
    tables = [found for name in names if (found := stage.tables.get(name) or _unchanged(lake, name))]
    notes = {each.after.name: lake.inspected(each.after.name) for each in tables if each.before}
    return Foresight([*stage.namespaces], tables, notes, outlooks)


def _outlook(stream: RehearsedStream) -> Outlook:
    settings, refusal = stream.stream, None
    try:
        stream.rehearse()
    except LakehouseError as found:
        refusal = found
    files = files_an_hour(stream.seen, settings)
    return Outlook(stream.name, stream.seen, stream.there, stream.tables, files, refusal)


def _unchanged(lake: Lake, name: str) -> Foreseen | None:
    state = lake.find(name)
    return Foreseen(state, state) if state else None
