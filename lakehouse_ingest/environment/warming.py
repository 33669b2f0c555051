"""What a batch does, on nothing, so that Java loads the classes for it; `class_data` keeps them.

In a process of its own: Java writes the archive when it ends.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from lakehouse_ingest.environment import spark_session as sessions
from lakehouse_ingest.environment.class_archive import QUIET
from lakehouse_ingest.environment.jars import ensure, jars_folder_from
from lakehouse_ingest.settings import SparkSettings

PATIENCE_S = 300.0


def warm(java: Path, fresh: Path) -> None:
    sessions.STOP_S = PATIENCE_S
    settings = SparkSettings(
        master="local[2]",
        options={"spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={fresh} {QUIET}"},
    )
    nowhere = {"uri": "http://127.0.0.1:1"}
    jars = ensure("spark", folder=jars_folder_from(os.environ))
    with (
        tempfile.TemporaryDirectory() as scratch,
        sessions.session("classes", settings, jars, nowhere, java, Path(scratch)) as spark,
    ):
        parsed = spark.range(1_000).selectExpr(
            "id % 7 AS k", "from_json('{\"a\": 1}', 'a long') AS j", "parse_json('{\"a\": [1]}') AS v", "now() AS t"
        )
        parsed.persist()
        parsed.groupBy("k").agg({"j.a": "sum"}).orderBy("k").collect()
        parsed.drop("v").write.parquet(f"{scratch}/rows")
        query = (
            spark.readStream.schema("k long")
            .parquet(f"{scratch}/rows")
            .writeStream.foreachBatch(_look)
            .option("checkpointLocation", f"{scratch}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _look(rows: DataFrame, _: int) -> None:
    rows.count()


if __name__ == "__main__":
    warm(Path(sys.argv[1]), Path(sys.argv[2]))
