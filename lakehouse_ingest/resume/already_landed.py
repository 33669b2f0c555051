"""The records of the batch that was under way when an earlier start ended: which of them have their place already.

Below `complete` every landing is done. Beyond it some tables may hold their rows of a batch and others not, and
settings, columns and batches may be others now than they were. So nothing is concluded from what would have been
done: the rows in the tables tell, each by its coordinates, and what none of them holds is landed as if it were new.
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
    """A table's snapshot that may hold such rows; of a table of dead letters only those of one pipeline."""

    table: str
    snapshot: int
    pipeline: str | None = None
    has_ours: bool = False  # it is known to hold rows of this pipeline


@dataclass(frozen=True)
class AlreadyLanded:
    """What the tables hold at and beyond the start map, which says where all landings are done."""

    holders: Sequence[HoldingSnapshot] = ()
    logs: Mapping[str, str] = field(default_factory=dict)  # by topic
    until: Offsets = field(default_factory=dict)  # beyond this they hold nothing

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
        """How far it may hold something, for its own mark: after this start nothing else tells of older ones."""
        return self.until if any(holder.table == table for holder in self.holders) else {}

    def without(self, records: DataFrame, batch: Range) -> tuple[DataFrame, Tally]:
        """The records that have no place yet, and the counts of the others."""
        if not any(start < self.until.get(at, 0) for at, start in batch.start.items()):
            return records, Tally()
        # Of the batch's own session, which is not the one that the stream was started in; and of this batch only, for
        # whoever reads all anew has many of them.
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
    """None where no snapshot has a column for them: nothing of ours has ever landed there."""
    at = F.col(SOURCE)
    # The lowest one is what files are left out by; then partition by partition.
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
                    f"somebody dropped the column {SOURCE} of {holder.table} while a batch was under way: its rows that"
                    " are there already could land twice; roll the table back to a snapshot with that column"
                )
            continue
        if holder.pipeline is not None:
            rows = rows.where(F.col("pipeline") == holder.pipeline)
        found.append(rows.where(wanted).select(*(at[part].alias(part) for part in COORDINATES)))
    return reduce(DataFrame.unionAll, found) if found else None
