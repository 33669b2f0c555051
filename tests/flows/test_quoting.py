"""A name is a name wherever Spark is told of it, with whatever is in it."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.pipeline.dry_run import _value
from lakehouse_ingest.schema.column_types import spark_type, to_spark
from lakehouse_ingest.tables import Partition

ODD = ["a`b", "`; DROP TABLE x; --", "{0}", "%s", "'", '"', "$a", "é `{}`"]


class TestOddName:
    @pytest.mark.parametrize("name", ODD)
    def test_is_one_part_of_a_tables_name(self, name: str, spark: SparkSession) -> None:
        parser = spark._jsparkSession.sessionState().sqlParser()
        parts = parser.parseMultipartIdentifier(spark_name(f"ns.{name}.t"))
        assert [parts.apply(number) for number in range(parts.size())] == ["lake", "ns", name, "t"]

    @pytest.mark.parametrize("name", ODD)
    def test_is_a_column_that_partitions(self, name: str, spark: SparkSession) -> None:
        rows = spark.createDataFrame(
            [((7,),)], T.StructType([T.StructField("s", T.StructType([T.StructField(name, T.LongType())]))])
        )
        found = rows.select(_value(rows, Partition(f"s.{name}", "truncate[5]")), F.lit(1)).first()
        assert found == (1, 1)

    @pytest.mark.parametrize("name", ODD)
    def test_is_a_field_of_a_type(self, name: str, spark: SparkSession) -> None:
        del spark  # it parses the type
        doubled = name.replace('"', '""')
        assert spark_type(to_spark(f'struct<"{doubled}": long>')) == T.StructType([T.StructField(name, T.LongType())])
