"""Where records come from: one file each, one line here, imported only when chosen.

Another distribution offers its own by an entry point of the group below: a class like `Source`. What it has to know
stands in `source.options`, whose keys are its own. `lakehouse_ingest.testing.sources` proves it.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest import plugins
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.records import FAULT, RECORD, Offsets, SourceIdentity
from lakehouse_ingest.settings import SourceSettings, StreamSettings

SOURCES = {"kafka": "lakehouse_ingest.stages.sources.kafka:Kafka"}
GROUP = "lakehouse_ingest.sources"

# What a record consists of, and Spark's types of it.
RECORD_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
FAULT_TYPE = "struct<reason: string, detail: string, stage: string, told: string>"


@runtime_checkable
class Source(Protocol):
    """The topics of one stream: what a source calls so, in partitions whose records have offsets that only rise.

    Where `settings.partitions` names some of a topic, those alone: whatever is asked, there are no others.
    What may come back is `TryAgain`, what a person must mend `SettingsRefused`: nothing else is raised on purpose.
    """

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        """Refuses settings that are wrong by themselves; waits for nobody."""

    def identity(self) -> SourceIdentity:
        """Where they are, and of each topic what another one of its name would not have; "" where nothing tells."""

    def matching(self, pattern: str) -> list[str]:
        """All topics there whose whole names match."""

    def bounds(self) -> tuple[Offsets, Offsets]:
        """Of every partition the first offset that is still there and the next one to be written."""

    def ends(self) -> Offsets:
        """How far a reader can get by now."""

    def since(self, moment: dt.datetime) -> Offsets:
        """Of every partition the first record of that time or later; a partition that has none is left out."""

    def stream(self, spark: SparkSession, start: Offsets, max_records: int, group: str) -> DataFrame:
        """The records from `start` on, at most so many a batch, with the `RECORD_COLUMNS` and whatever else.

        Its place in Spark's offset log is JSON: by topic and partition the offset of the next record.
        """

    def publish(self, offsets: Offsets, group: str) -> None:
        """A hint for whoever watches the source; nothing here ever reads it."""

    def probe(self, group: str) -> str:
        """What is there, in a sentence, found out by what a run does."""

    @staticmethod
    def explained(said: str, settings: SourceSettings) -> LakehouseError | None:
        """What a person must mend, of what Spark said when a query failed; None: it is not the source's."""


def chosen(settings: SourceSettings) -> type[Source]:
    """The one that `source.kind` names."""
    return cast("type[Source]", plugins.load("source.kind", settings.kind, SOURCES, GROUP, Source))


def of_stream(settings: SourceSettings, stream: StreamSettings) -> Source:
    """The stream's topics as they are now."""
    kind, pattern = chosen(settings), stream.topic_pattern
    return kind(settings, kind(settings, ()).matching(pattern) if pattern else stream.topics)


def envelope(rows: DataFrame, identity: SourceIdentity) -> DataFrame:
    """A source's columns as the record that travels down the street, without a fault yet."""
    record = F.struct(*RECORD_COLUMNS, _log(identity).alias("log"))
    return rows.select(record.alias(RECORD), F.lit(None).cast(FAULT_TYPE).alias(FAULT))


def _log(identity: SourceIdentity) -> Column:
    logs = {topic: identity.log(topic) for topic in identity.topics}
    if len(logs) == 1:
        return F.lit(*logs.values())
    return F.try_element_at(F.map_from_arrays(F.lit([*logs]), F.lit([*logs.values()])), F.col("topic"))
