"""The records that could not land, whole, with the reason: one more table, fed like any other."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.columns import SOURCE_TYPE, ColumnPlan
from lakehouse_ingest.records import FAULT, RECORD, SOURCE
from lakehouse_ingest.shaping import coordinates

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
