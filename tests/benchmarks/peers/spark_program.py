"""The hand-written job. It imports nothing of ours: python spark_program.py settings.json"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

EVENT = (
    "ts_ms bigint, sensor_id string, location string, temperature double, humidity double, seq bigint, status string,"
    " device struct<fw: string, battery: int, rssi: int>"
)
COLUMNS = f"event_time timestamp, {EVENT.partition(', ')[2]}"


def session(settings: dict[str, Any]) -> SparkSession:
    builder = SparkSession.Builder().appName("bench").master("local[2]")
    options = {
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(settings["jars"]),
        "spark.local.dir": settings["scratch"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        **{f"spark.sql.catalog.lake.{key}": value for key, value in settings["catalog"].items()},
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = session(settings)
    spark.sql(
        f"CREATE TABLE {settings['table']} ({COLUMNS}) USING iceberg PARTITIONED BY (days(event_time))"
        " TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'zstd')"
    )
    records = (
        spark.readStream.format("kafka")
        .options(**settings["kafka"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500_000)
        .load()
    )
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
    rows = records.select(event).select(F.timestamp_millis("event.ts_ms").alias("event_time"), "event.*").drop("ts_ms")
    query = (
        rows.writeStream.format("iceberg")
        .outputMode("append")
        .option("checkpointLocation", settings["checkpoint"])
        .option("fanout-enabled", "true")  # or it would sort each batch by its days
        .trigger(availableNow=True)
        .toTable(settings["table"])
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
