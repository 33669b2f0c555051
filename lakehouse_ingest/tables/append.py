"""Rows staged on a table by Spark, in one commit that carries the ledger's mark."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.schema.layout import FileOptions

# Below this a further task makes only a further small file.
ROWS_PER_TASK = 100_000
WAP = "spark.wap.id"  # Iceberg's write-audit-publish


def tasks_for(size: int) -> int:
    """How many at most write about so many rows, each into files of its own."""
    return max(1, -(-size // ROWS_PER_TASK))


def stage(
    rows: DataFrame, target: str, wap: str | None, summary: Mapping[str, str], options: FileOptions, size: int
) -> None:
    """Appends about so many rows; with `wap` as a snapshot that no ref leads to, if the table is set up for that."""
    # No option of a write does it; the session is the batch's own, and all that it writes is of one batch.
    rows.sparkSession.conf.set(WAP, wap) if wap else rows.sparkSession.conf.unset(WAP)
    writer = (
        rows.coalesce(tasks_for(size))
        .writeTo(spark_name(target))
        # Sorted by partition, with one file open at a time: how many partitions a batch has rows for, nobody knows.
        # 500,000 rows into 24 hours take 3.0 CPU seconds so, 3.8 with all files open; into one day 1.3 against 1.1.
        .option("fanout-enabled", str(options.all_open).lower())
        # Whatever the user's `spark.sql.iceberg.*` say, or come to say in another release.
        .option("use-table-distribution-and-ordering", "true")
        .option("merge-schema", "false")
        .option("check-nullability", "true")
        # A table of others may ask for a shuffle: what is counted on the way would not be counted then.
        .option("distribution-mode", "none")
        .option("target-file-size-bytes", str(options.target_size))
        .option("compression-codec", options.codec)
    )
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
