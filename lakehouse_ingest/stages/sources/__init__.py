"""Sources: where records come from. Each has one file, and one line here. Only the chosen one is imported.

Another package offers a source by an entry point of the group below: a class with the members of `Source`. It reads its
own keys from `source.options`. The suite in `lakehouse_ingest.testing.sources` proves it.
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

# The parts of a record, with Spark's types.
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
    """The topics of one stream. A topic has partitions, and the offsets of a partition's records only rise.

    If `settings.partitions` lists partitions of a topic, every method behaves as if there were no others. A method
    raises `TryAgain` for an outage, and `SettingsRefused` for what a person must fix; nothing else on purpose.
    """

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        """Refuse settings that are wrong in themselves. Don't wait for a server here."""

    def identity(self) -> SourceIdentity:
        """The id of the cluster, and an id of each topic that a recreated topic would not have; "" if there is none."""

    def matching(self, pattern: str) -> list[str]:
        """All topics whose whole names match the pattern."""

    def bounds(self) -> tuple[Offsets, Offsets]:
        """For each partition, the first offset that is still there, and the next one to be written."""

    def ends(self) -> Offsets:
        """For each partition, the offset up to which a reader gets now."""

    def since(self, moment: dt.datetime) -> Offsets:
        """For each partition, the offset of its first record at or after that time. Leave out those that have none."""

    def stream(self, spark: SparkSession, start: Offsets, max_records: int, group: str) -> DataFrame:
        """The records from `start` on, at most `max_records` in a batch. Columns beside `RECORD_COLUMNS` are allowed.

        Its entries in Spark's offset log have to be JSON: the offset of the next record, by topic and partition.
        """

    def publish(self, offsets: Offsets, group: str) -> None:
        """Publish the group offsets for people who watch the source. We never read them."""

    def probe(self, group: str) -> str:
        """Try everything that a run does with the source, and say in a sentence what is there."""

    @staticmethod
    def explained(said: str, settings: SourceSettings) -> LakehouseError | None:
        """The error that a person must fix, from Spark's message about a failed query; None if it is another one."""


def chosen(settings: SourceSettings) -> type[Source]:
    """The class that `source.kind` names."""
    return cast("type[Source]", plugins.load("source.kind", settings.kind, SOURCES, GROUP, Source))


def of_stream(settings: SourceSettings, stream: StreamSettings) -> Source:
    """The source with the topics of the stream. A pattern is matched now."""
    kind, pattern = chosen(settings), stream.topic_pattern
    return kind(settings, kind(settings, ()).matching(pattern) if pattern else stream.topics)


def envelope(rows: DataFrame, identity: SourceIdentity) -> DataFrame:
    """A source's columns as a record that can pass through the stages, without a fault yet."""
    record = F.struct(*RECORD_COLUMNS, _log(identity).alias("log"))
    return rows.select(record.alias(RECORD), F.lit(None).cast(FAULT_TYPE).alias(FAULT))


def _log(identity: SourceIdentity) -> Column:
    logs = {topic: identity.log(topic) for topic in identity.topics}
    if len(logs) == 1:
        return F.lit(*logs.values())
    return F.try_element_at(F.map_from_arrays(F.lit([*logs]), F.lit([*logs.values()])), F.col("topic"))
