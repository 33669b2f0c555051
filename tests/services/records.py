"""The batch record, held against what was really produced."""

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Any

from tests.services.readers import Coordinates, Reader

OUTCOMES = ("landed", "dead", "filtered", "discarded", "trimmed")


def kind_of(reader: Reader, kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.table("lakehouse_batches").scan().to_arrow().to_pylist()
    return [row for row in rows if row["kind"] == kind]


def check_batch_record(reader: Reader, landing: Coordinates) -> None:
    """The law of every row, and that `absent` are exactly the offsets that hold no record to be read."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in sorted(landing):
        offsets[topic, partition].append(offset)
    rows, landings = kind_of(reader, "batch"), kind_of(reader, "landing")
    assert rows
    put = Counter[tuple[str, bool]]()
    for row in landings:
        put[row["token"], row["table"].endswith(".dead_letters")] += row["rows"]
    for row in rows:
        parts = row["partitions"]
        for part in parts:
            known = offsets[part["topic"], part["partition"]]
            there = bisect_left(known, part["end"]) - bisect_left(known, part["start"])
            assert part["received"] == sum(part[outcome] for outcome in OUTCOMES), (row, part)
            assert part["received"] == there, (row, part)
            assert part["end"] - part["start"] == part["received"] + part["absent"], (row, part)
        assert put[row["token"], False] == sum(part["landed"] for part in parts), row
        assert put[row["token"], True] == sum(part["dead"] for part in parts), row
        assert sum(dict(row["reasons"] or ()).values()) == sum(part["dead"] + part["discarded"] for part in parts), row
        assert row["note"] is None, row
    tables = {row["table"].rpartition(".")[2] for row in landings}
    main = {table: set(reader.main(table)) for table in tables}
    for row in landings:
        table = row["table"].rpartition(".")[2]
        # Expired ones can't be looked up any more; of the others none is somebody's that never became visible.
        snapshot = row["snapshot_id"]
        assert snapshot in main[table] or not reader.table(table).snapshot_by_id(snapshot), row
