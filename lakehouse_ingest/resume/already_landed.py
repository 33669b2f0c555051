"""Which records of an interrupted batch are in the tables already.

Below `complete` every table has its rows. Beyond it some tables may have their rows of a batch and others may not.
Settings, columns and the limits of batches may have changed since. So we don't conclude anything from what a batch
would do now: we look for the coordinates of each record in the tables, and write those that none of them holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakehouse_ingest.errors import TableChanged, TryAgain
from lakehouse_ingest.ledger.bitmaps import bitmap_of
from lakehouse_ingest.records import SOURCE, Offsets
from lakehouse_ingest.stages.routing import Held
from lakehouse_ingest.tables import Pinned, PipelineTables

OFFSET = f"{SOURCE}.offset"


@dataclass(frozen=True)
class HoldingSnapshot:
    """A snapshot that may hold such rows. In the dead-letter table only the rows of one pipeline count."""

    table: str
    snapshot: int
    pipeline: str | None = None
    has_ours: bool = False  # it certainly holds rows of this pipeline


@dataclass(frozen=True)
class AlreadyLanded:
    """What the tables hold at and beyond the offsets at which a start begins."""

    holders: Sequence[HoldingSnapshot] = ()
    held: Held = field(default_factory=dict)
    until: Offsets = field(default_factory=dict)  # from here on they hold nothing

    @classmethod
    def beyond(
        cls, start: Offsets, holders: Sequence[HoldingSnapshot], logs: Mapping[str, str], lake: PipelineTables
    ) -> "AlreadyLanded":
        """`logs`: the short name of each topic's log."""
        held: dict[tuple[str, int], BitMap64] = {}
        starts = {(logs[topic], partition): offset for (topic, partition), offset in start.items() if topic in logs}
        for holder in holders:
            for rows in _coordinates(lake, holder, min(start.values(), default=0)):
                _add(held, rows, starts)
        topics = {log: topic for topic, log in logs.items()}
        return cls(holders, held, {(topics[log], at): max(offsets) + 1 for (log, at), offsets in held.items()})

    def beyond_in(self, table: str) -> Offsets:
        """How far a table may hold rows. Its mark has to say so: after this start nothing else knows of older ones."""
        return self.until if any(holder.table == table for holder in self.holders) else {}


def _coordinates(lake: PipelineTables, holder: HoldingSnapshot, lowest: int) -> list[pa.RecordBatch]:
    """The coordinates of rows in files that may hold offsets from `lowest` on."""
    pinned = _pinned(lake, holder)
    if SOURCE not in pinned.columns:
        if holder.has_ours:
            raise TableChanged(
                f"somebody dropped the column {SOURCE} of {holder.table} while a batch was under way, so rows of it"
                " could be written twice; roll the table back to a snapshot with that column"
            )
        return []
    names = [SOURCE, *([] if holder.pipeline is None else ["pipeline"])]
    found = []
    for file in lake.files_of(pinned, [OFFSET]):
        _, highest = file.bounds.get(OFFSET, (None, None))
        if highest is not None and highest < lowest:
            continue
        for rows in lake.batches_of(pinned, file, names):
            ours = rows if holder.pipeline is None else rows.filter(pc.equal(rows["pipeline"], holder.pipeline))
            found.append(ours.select([SOURCE]))
    return found


def _pinned(lake: PipelineTables, holder: HoldingSnapshot) -> Pinned:
    """The table as it was when it was opened: this start may have given it columns since, which its rows don't have."""
    pinned = lake.pin(holder.table)
    if pinned is None or holder.snapshot not in pinned.state.snapshots:
        # A replica of the catalog that is behind would show fewer rows than there are.
        raise TryAgain(
            f"the catalog does not show the snapshot {holder.snapshot} of {holder.table} that it showed before"
        )
    return pinned.at(holder.snapshot)


def _add(held: dict[tuple[str, int], BitMap64], rows: pa.RecordBatch, starts: Mapping[tuple[str, int], int]) -> None:
    at = rows[SOURCE]
    logs, partitions, offsets = (pc.struct_field(at, part) for part in ("log", "partition", "offset"))
    for (log, partition), start in starts.items():
        wanted = pc.and_(
            pc.and_(pc.equal(logs, log), pc.equal(partitions, partition)), pc.greater_equal(offsets, start)
        )
        if len(found := offsets.filter(wanted)):
            held[log, partition] = held.get((log, partition), BitMap64()) | bitmap_of(found)
