"""The batch record, held against what was really produced."""

from bisect import bisect_left
from collections import defaultdict
from typing import Any

from tests.services.readers import Coordinates, Reader


def batch_rows(reader: Reader, table: str = "lakehouse_batches") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.table(table).scan().to_arrow().to_pylist()
    return [row for row in rows if row["kind"] == "batch"]


def check_batch_record(reader: Reader, landing: Coordinates) -> None:
    """The law of every row, and that `absent` are exactly the offsets that hold no record to be read."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in sorted(landing):
        offsets[topic, partition].append(offset)
    rows = batch_rows(reader)
    assert rows
    for row in rows:
        for part in row["partitions"]:
            known = offsets[part["topic"], part["partition"]]
            there = bisect_left(known, part["end"]) - bisect_left(known, part["start"])
            assert part["received"] == part["landed"] + part["dead"] + part["trimmed"], (row, part)
            assert part["received"] == there, (row, part)
            assert part["end"] - part["start"] == part["received"] + part["absent"], (row, part)
        if row["table"].endswith(".events"):
            assert row["rows"] == sum(part["landed"] for part in row["partitions"]), row
        assert sum(dict(row["reasons"] or ()).values()) == sum(part["dead"] for part in row["partitions"]), row
    main = {table: set(reader.main(table)) for table in ("events", "dead_letters")}
    for row in rows:
        table = row["table"].rpartition(".")[2]
        # Expired ones can't be looked up any more; of the others none is somebody's that never became visible.
        snapshot = row["snapshot_id"]
        assert snapshot is None or snapshot in main[table] or not reader.table(table).snapshot_by_id(snapshot), row
