"""Records in memory that look as if a source had given them; the session is the one of all tests."""

import datetime as dt
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakehouse_ingest.records import SourceIdentity
from lakehouse_ingest.stages.sources import envelope

# An example costs a second or two here, so there are few of them, each with many records in one frame.
FEW = settings(max_examples=6, suppress_health_check=list(HealthCheck))

HEADER = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
GIVEN = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", T.ArrayType(HEADER)),
    ]
)
RECEIVED = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)  # when the broker took every record

Value = str | bytes | None
Records = Callable[[Sequence[Value]], DataFrame]


@pytest.fixture(scope="session")
def records(spark: SparkSession) -> Records:
    """Values as records of one partition, their offsets in the order given."""

    def made(values: Sequence[Value]) -> DataFrame:
        rows = [
            ("events", 0, offset, RECEIVED, None, value.encode() if isinstance(value, str) else value, None)
            for offset, value in enumerate(values)
        ]
        return envelope(spark.createDataFrame(rows, GIVEN), SourceIdentity("cluster", {"events": "id"}))

    return made
