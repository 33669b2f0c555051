"""Write rows to a table with Spark, in one commit that carries the ledger's mark."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.schema.layout import FileOptions

# With fewer rows, another task would only add another small file.
ROWS_PER_TASK = 100_000
WAP = "spark.wap.id"  # Iceberg's write-audit-publish


def tasks_for(size: int) -> int:
    """The most tasks that write this many rows. Each task writes files of its own."""
    return max(1, -(-size // ROWS_PER_TASK))


def stage(
    rows: DataFrame, target: str, wap: str | None, summary: Mapping[str, str], options: FileOptions, size: int
) -> None:
    """Append about `size` rows. With `wap`, and if the table is set up for it, no ref leads to the new snapshot."""
    # There is no write option for this id. Setting it on the session is safe: the session writes one batch at a time.
    rows.sparkSession.conf.set(WAP, wap) if wap else rows.sparkSession.conf.unset(WAP)
    writer = (
        rows.coalesce(tasks_for(size))
        .writeTo(spark_name(target))
        # By default rows are sorted by partition and one file is open at a time, because the number of partitions in a
        # batch is unknown. 500,000 rows take 3.0 CPU seconds for 24 hourly partitions (3.8 with all files open), and
        # 1.3 for one daily partition (1.1 with all files open).
        .option("fanout-enabled", str(options.all_open).lower())
        # Set explicitly, so that neither the user's `spark.sql.iceberg.*` nor new defaults change them.
        .option("use-table-distribution-and-ordering", "true")
        .option("merge-schema", "false")
        .option("check-nullability", "true")
        # An existing table may ask for a shuffle, and then the counts taken during the write would be missing.
        .option("distribution-mode", "none")
        .option("target-file-size-bytes", str(options.target_size))
        .option("compression-codec", options.codec)
    )
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
