"""Spark takes a table's name as a name, with any characters in it."""

import pytest
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_names import spark_name

pytestmark = pytest.mark.live

ODD = ["a`b", "`; DROP TABLE x; --", "{0}", "%s", "'", '"', "$a", "é `{}`"]


class TestOddName:
    @pytest.mark.parametrize("name", ODD)
    def test_is_one_part_of_a_tables_name(self, name: str, spark: SparkSession) -> None:
        parser = spark._jsparkSession.sessionState().sqlParser()
        parts = parser.parseMultipartIdentifier(spark_name(f"ns.{name}.t"))
        assert [parts.apply(number) for number in range(parts.size())] == ["lake", "ns", name, "t"]
