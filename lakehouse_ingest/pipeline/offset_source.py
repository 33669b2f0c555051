"""The source of Spark's query: its batches have offsets and no rows.

Spark runs the query and calls our function with each batch. The function gets the offsets from our own process, and its
tasks read the records themselves, so it never looks at the frame of the batch. Spark runs `Planner` in a process of its
own; it only repeats what `OffsetServer` answers.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from lakehouse_ingest.pipeline.offset_server import ByTopic, OffsetQuestions, OffsetServer

ADDRESS = "address"


def offset_frame(spark: SparkSession, server: OffsetServer) -> DataFrame:
    """The streaming frame of a query whose batches the server plans."""
    spark.dataSource.register(OffsetSource)
    return spark.readStream.format(OffsetSource.name()).option(ADDRESS, server.address).load()


class OffsetSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "lakehouse-offsets"

    def schema(self) -> StructType:
        return StructType([StructField("offset", LongType())])

    def streamReader(self, schema: StructType) -> "Planner":  # noqa: N802, ARG002 - Spark calls it by these names
        return Planner(self.options[ADDRESS])


class Planner(DataSourceStreamReader):
    """Asks our process. It is pickled before it is used, so it connects with the first question."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._questions: OffsetQuestions | None = None

    def initialOffset(self) -> ByTopic:  # noqa: N802 - Spark's name
        return self._asking().initial()

    def latestOffset(self) -> ByTopic:  # noqa: N802 - Spark's name
        return self._asking().latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return []

    def read(self, partition: InputPartition) -> Iterator[NoReturn]:
        raise NotImplementedError(f"a batch has no rows, but Spark wants to read {partition}")

    def stop(self) -> None:
        if self._questions:
            self._questions.close()

    def _asking(self) -> OffsetQuestions:
        self._questions = self._questions or OffsetQuestions(self._address)
        return self._questions
