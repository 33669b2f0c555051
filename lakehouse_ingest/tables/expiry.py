"""Old snapshots go, with the files that only they hold; which of them stay, `retention` says."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_internals import java_packages, java_session
from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.tables.retention import Retention, is_left_behind


def expire(spark: SparkSession, table: str, pipeline: str, epoch: int, retention: Retention) -> int:
    """By Iceberg's own API, which deletes the files too; returns how many snapshots went.

    Called by the start of this epoch while nothing of it waits on the table to be published.
    """
    java, session = java_packages(spark), java_session(spark)
    # Without an active session this thread knows none of the catalogs.
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    iceberg = java.org.apache.iceberg.spark.Spark3Util
    loaded = iceberg.loadIcebergTable(session, spark_name(table))
    ancestors = [*_lineage(loaded, loaded.currentSnapshot())]
    kept = retention.kept((each.timestampMillis(), dict(each.summary())) for each in ancestors)
    beyond = {each.snapshotId() for each in ancestors[kept:]}
    # What another ref holds (a tag, the branch of a pipeline that rests) is not ours to expire, and Iceberg refuses.
    held = {ref.snapshotId() for ref in loaded.refs().values()}
    snapshots = (beyond | _left_behind(loaded, pipeline, epoch)) - held
    if snapshots:
        # Beside those that are named Iceberg takes all that are older than the table's own limit, five days as a rule,
        # on every branch: that is for whoever keeps the table, and would take the newest marks of a quiet one.
        change = loaded.expireSnapshots().expireOlderThan(0).cleanExpiredFiles(True)
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        change.commit()
    return len(snapshots)


def _left_behind(table: Any, pipeline: str, epoch: int) -> set[int]:
    """Snapshots of ours that no ref leads to: staged, and never published or staged again."""
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
