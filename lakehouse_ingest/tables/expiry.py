"""Expire old snapshots, and delete the files that only they hold. `retention` decides which snapshots stay."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_internals import java_packages, java_session
from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.tables.retention import Retention, is_left_behind


def expire(spark: SparkSession, table: str, pipeline: str, epoch: int, retention: Retention) -> int:
    """Expire through Iceberg's own API, which deletes the files too. Returns the number of snapshots.

    The start of this epoch calls it, at a moment when it has no unpublished rows on the table.
    """
    java, session = java_packages(spark), java_session(spark)
    # Iceberg finds the catalogs through the thread's active session.
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    iceberg = java.org.apache.iceberg.spark.Spark3Util
    loaded = iceberg.loadIcebergTable(session, spark_name(table))
    ancestors = [*_lineage(loaded, loaded.currentSnapshot())]
    kept = retention.kept((each.timestampMillis(), dict(each.summary())) for each in ancestors)
    beyond = {each.snapshotId() for each in ancestors[kept:]}
    # Iceberg refuses to expire a snapshot that another ref holds: a tag, or the branch of a pipeline that is stopped.
    held = {ref.snapshotId() for ref in loaded.refs().values()}
    snapshots = (beyond | _left_behind(loaded, pipeline, epoch)) - held
    if snapshots:
        # `expireOlderThan(0)` limits the expiry to the named snapshots. By default Iceberg also expires everything
        # older than five days, on every branch, and would remove the newest marks of a quiet table.
        change = loaded.expireSnapshots().expireOlderThan(0).cleanExpiredFiles(True)
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        change.commit()
    return len(snapshots)


def _left_behind(table: Any, pipeline: str, epoch: int) -> set[int]:
    """Our own snapshots that no ref leads to: they were written and never published."""
    heads = [table.snapshot(ref.snapshotId()) for ref in table.refs().values()]
    reachable = {each.snapshotId() for head in heads for each in _lineage(table, head)}
    return {
        each.snapshotId()
        for each in table.snapshots()
        if each.snapshotId() not in reachable and is_left_behind(dict(each.summary()), pipeline, epoch)
    }


def _lineage(table: Any, snapshot: Any) -> Iterator[Any]:
    while snapshot is not None:
        yield snapshot
        snapshot = table.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
