"""A query for one day opens the files of that day only."""

import json

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.environment.spark_names import LAKE
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import DAY_MS, MADE

pytestmark = pytest.mark.live


def scanned_files(bench: Bench, frame: DataFrame) -> int:
    """How many data files Spark's own plan opened."""
    frame.collect()
    java = bench.spark._jvm
    assert java is not None
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(index) for index in range(leaves.size())]
    (metric,) = [scan.metrics().get("resultDataFiles") for scan in scans if "BatchScan" in scan.nodeName()]
    return int(metric.get().value())


class TestQuery:
    def test_for_one_day_opens_only_the_files_of_that_day(self, bench: Bench, topic: str) -> None:
        """The data lies in hidden day partitions; a query for one day scans exactly that day's files."""
        create_topic(bench.broker, topic, 2)
        days = 4
        rows = [
            (None, json.dumps({"ts_ms": MADE + (n % days) * DAY_MS, "n": n}).encode(), None, None, n % 2)
            for n in range(400)
        ]
        produce(bench.broker, topic, rows)
        bench.ingest(bench.settings(topic, stream={"max_records": 200}))
        name = f"ns_{topic}.{topic}"
        table = bench.table(name)
        files = {task.file.file_path: task.file.partition[0] for task in table.scan().plan_files()}
        assert len(set(files.values())) == days
        one = "event_time >= '2025-06-16T00:00:00+00:00' and event_time < '2025-06-17T00:00:00+00:00'"
        wanted = {path for path in files if "event_time_day=2025-06-16" in path}
        assert wanted
        assert {task.file.file_path for task in table.scan(row_filter=one).plan_files()} == wanted
        frame = bench.spark.table(f"{LAKE}.{name}").where(
            (F.col("event_time") >= F.lit("2025-06-16").cast("timestamp"))
            & (F.col("event_time") < F.lit("2025-06-17").cast("timestamp"))
        )
        assert {row["_file"].removeprefix("file://") for row in frame.select("_file").distinct().collect()} == {
            path.removeprefix("file://") for path in wanted
        }
        assert frame.count() == 100
        assert scanned_files(bench, frame) == len(wanted)
