"""Which records of an interrupted batch are in the tables already.

Below `complete` every table has its rows. Beyond it some tables may have their rows of a batch and others may not.
Settings, columns and the limits of batches may have changed since. So we don't conclude anything from what a batch
would do now: we look for the coordinates of each record in the tables, and write those that none of them holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.errors import TableChanged
from lakehouse_ingest.records import RECORD, SOURCE, Offsets, Range
from lakehouse_ingest.stages import accounting
from lakehouse_ingest.stages.accounting import TRIMMED, Tally

COORDINATES = ("log", "partition", "offset")


@dataclass(frozen=True)
class HoldingSnapshot:
    """A snapshot that may hold such rows. In the dead-letter table only the rows of one pipeline count."""

    table: str
    snapshot: int
    pipeline: str | None = None
    has_ours: bool = False  # it certainly holds rows of this pipeline


@dataclass(frozen=True)
class AlreadyLanded:
    """What the tables hold at and beyond the offsets at which a start begins."""

    holders: Sequence[HoldingSnapshot] = ()
    logs: Mapping[str, str] = field(default_factory=dict)  # by topic
    until: Offsets = field(default_factory=dict)  # from here on they hold nothing

    @classmethod
    def beyond(
        cls, start: Offsets, holders: Sequence[HoldingSnapshot], logs: Mapping[str, str], spark: SparkSession
    ) -> "AlreadyLanded":
        if not holders:
            return cls()
        rows = _coordinates(spark, holders, logs, start)
        if rows is None:
            return cls()
        ends = rows.groupBy("log", "partition").agg((F.max("offset") + 1).alias("end")).collect()
        topics = {log: topic for topic, log in logs.items()}
        return cls(holders, logs, {(topics[end["log"]], end["partition"]): end["end"] for end in ends})

    def beyond_in(self, table: str) -> Offsets:
        """How far a table may hold rows. Its mark has to say so: after this start nothing else knows of older ones."""
        return self.until if any(holder.table == table for holder in self.holders) else {}

    def without(self, records: DataFrame, batch: Range) -> tuple[DataFrame, Tally]:
        """The records that no table holds yet, and the counts of the others."""
        if not any(start < self.until.get(at, 0) for at, start in batch.start.items()):
            return records, Tally()
        # Use the session of the batch: the stream was started in another one. And look at this batch only: a stream
        # that reads a topic again finds very many rows.
        held = _coordinates(records.sparkSession, self.holders, self.logs, batch.start, batch.end)
        assert held
        same = reduce(Column.__and__, (F.col(RECORD)[name] == F.col(name) for name in COORDINATES))
        there = accounting.count(records.join(held, same, "left_semi"), batch, accounting.number_of(TRIMMED))
        return records.join(held, same, "left_anti"), there


def _coordinates(
    spark: SparkSession,
    holders: Sequence[HoldingSnapshot],
    logs: Mapping[str, str],
    start: Offsets,
    end: Offsets | None = None,
) -> DataFrame | None:
    """The coordinates of rows that are there; None if no snapshot has the column, so none has rows of ours."""
    at = F.col(SOURCE)
    # Iceberg can skip files by the lowest offset only; the exact condition for each partition follows.
    lowest = min(start.values(), default=0)
    wanted = at["log"].isin(*logs.values()) & (at["offset"] >= lowest) & accounting.beyond(at, start)
    if end:
        wanted &= at["offset"] < max(end.values())
    found = []
    for holder in holders:
        rows = spark.read.option("versionAsOf", str(holder.snapshot)).table(spark_name(holder.table))
        if SOURCE not in rows.columns:
            if holder.has_ours:
                raise TableChanged(
                    f"somebody dropped the column {SOURCE} of {holder.table} while a batch was under way, so rows of it"
                    " could be written twice; roll the table back to a snapshot with that column"
                )
            continue
        if holder.pipeline is not None:
            rows = rows.where(F.col("pipeline") == holder.pipeline)
        found.append(rows.where(wanted).select(*(at[part].alias(part) for part in COORDINATES)))
    return reduce(DataFrame.unionAll, found) if found else None
