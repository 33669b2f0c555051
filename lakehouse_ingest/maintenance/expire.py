"""Old snapshots go, with the files that only they hold; the newest marks stay.

What is kept is a run of main's ancestors from its head: a gap would cut the ledger's walk short.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from lakehouse_ingest.ledger import MARK, PREFIX, Summary
from lakehouse_ingest.session import spark_name

# Expiry costs a commit of its own: done once in so many landings, it keeps the table between both bounds.
SLACK = 0.2


def doomed(ancestors: Sequence[tuple[int, Summary]], keep: int) -> list[int]:
    """Of main's ancestors, newest first, those beyond `keep` less its slack that hold no pipeline's newest mark."""
    kept = max(1, int(keep * (1 - SLACK)))
    seen: set[str] = set()
    last = 0
    for index, (_, summary) in enumerate(ancestors):
        marks = {key for key in summary if key.startswith(MARK)}
        if marks - seen:
            seen |= marks
            last = index + 1
    return [snapshot for snapshot, _ in ancestors[max(kept, last) :]]


def expire(spark: SparkSession, table: str, pipeline: str, epoch: int, keep: int) -> int:
    """By Iceberg's own API, which deletes the files too; returns how many snapshots went.

    Called by the start of this epoch while nothing of it waits on the table to be published.
    """
    java: Any = spark._jvm  # noqa: SLF001 - the only way to Iceberg's Java API
    # Without an active session this thread knows none of the catalogs.
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    iceberg = java.org.apache.iceberg.spark.Spark3Util
    loaded = iceberg.loadIcebergTable(spark._jsparkSession, spark_name(table))  # noqa: SLF001
    ancestors = [(each.snapshotId(), dict(each.summary())) for each in _lineage(loaded, loaded.currentSnapshot())]
    # What another ref holds (a tag, the branch of a pipeline that rests) is not ours to expire, and Iceberg refuses.
    held = {ref.snapshotId() for ref in loaded.refs().values()}
    snapshots = {*doomed(ancestors, keep), *_left_behind(loaded, pipeline, epoch)} - held
    if snapshots:
        # Beside those that are named Iceberg takes all that are older than the table's own limit, five days as a rule,
        # on every branch: that is for whoever keeps the table, and would take the newest marks of a quiet one.
        change = loaded.expireSnapshots().expireOlderThan(0).cleanExpiredFiles(True)
        for snapshot in snapshots:
            change = change.expireSnapshotId(snapshot)
        change.commit()
    return len(snapshots)


def is_left_behind(summary: Summary, pipeline: str, epoch: int) -> bool:
    """Whether what no ref leads to was ours, and of this start or an earlier one: a newer one may yet publish it.

    Only ours: other writers may keep snapshots without a ref on purpose (write, audit, publish).
    """
    # The token, not the mark: the others' landings carry our mark on.
    of, *numbers = summary.get(f"{PREFIX}token", "").rsplit("/", 3)
    return of == pipeline and int(numbers[1]) <= epoch


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
