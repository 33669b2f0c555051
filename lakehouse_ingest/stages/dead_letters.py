"""The records that could not land, whole, with the reason: one more table, fed like any other."""

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.schema.columns import SOURCE_TYPE, ColumnPlan
from lakehouse_ingest.stages.shaping import coordinates

COLUMNS = (
    ColumnPlan("reason", "", "string", required=True),
    ColumnPlan("detail", "", "string"),
    ColumnPlan("stage", "", "string"),
    ColumnPlan("pipeline", "", "string"),
    ColumnPlan("timestamp", "", "timestamptz"),
    ColumnPlan("key", "", "binary"),
    ColumnPlan("value", "", "binary"),
    ColumnPlan("headers", "", "list<struct<key: string, value: binary>>"),
    ColumnPlan(SOURCE, "", SOURCE_TYPE),
)
PARTITIONS = ("day(timestamp)",)
SAMPLED = 500  # bytes of a value: more than are shown, so that one sees that there are

Sample = dict[str, Any]


def letters(rows: DataFrame, pipeline: str) -> DataFrame:
    """The faulty rows as dead letters; what the source gave is kept to the byte."""
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
    """The same rows, and the newest faulty one of each reason, to be asked for when they have been written."""
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
        except Py4JJavaError:  # what is only for show holds nothing up
            return {}
        return {reason: sample.asDict() for reason, sample in said.items() if sample is not None}

    return rows.observe(observation, *newest), found
