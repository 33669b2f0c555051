"""The dead-letter table: whole records with their faults. It is written like any other table."""

from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.stages.arrow.dead_letters import COLUMNS, EXPLAINED, MEANINGS, PARTITIONS, SAMPLED, Sample
from lakehouse_ingest.stages.shaping import coordinates

__all__ = ["COLUMNS", "EXPLAINED", "MEANINGS", "PARTITIONS", "Sample", "letters", "sampled"]


def letters(rows: DataFrame, pipeline: str) -> DataFrame:
    """The rows with a fault as dead-letter records, which keep the record byte for byte."""
    fault, record = F.col(FAULT), F.col(RECORD)
    return rows.where(fault.isNotNull()).select(
        fault["reason"].alias("reason"),
        fault["detail"].alias("detail"),
        fault["stage"].alias("stage"),
        F.lit(pipeline).alias("pipeline"),
        *(record[name].alias(name) for name in ("timestamp", "key", "value", "headers")),
        coordinates().alias(SOURCE),
    )


def sampled(rows: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, Sample]]]:
    """Returns the rows and a function that gives the newest faulty record of each reason after the write."""
    fault, record = F.col(FAULT), F.col(RECORD)
    place = (record[name].alias(name) for name in ("topic", "partition", "offset"))
    shown = F.struct(fault["told"].alias("told"), *place, F.substring(record["value"], 1, SAMPLED).alias("value"))
    newest = [
        F.max_by(shown, F.when(fault["reason"] == str(reason), record["timestamp"])).alias(str(reason))
        for reason in Reason
    ]
    observation = Observation()

    def found() -> dict[str, Sample]:
        try:
            said = observation.get
        except Py4JJavaError:  # samples are only for display, so a batch does not fail without them
            return {}
        return {reason: sample.asDict() for reason, sample in said.items() if sample is not None}

    return rows.observe(observation, *newest), found
