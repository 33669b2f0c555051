"""Leaves out the records of an interrupted batch that the tables hold already.

The driver looks for their coordinates once, when a start begins. A task gets the sets of its own shares only.
"""

from array import array
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakehouse_ingest.stages.records import Records, Share
from lakehouse_ingest.stages.routing import row_numbers

Held = Mapping[tuple[str, int], BitMap64]
"""The offsets that the tables hold at and beyond the start, by log and partition."""


def held_in(held: Held, shares: Iterable[Share]) -> Held:
    """Only the offsets of these shares: little to send to a task, even if a topic is read again from its beginning."""
    found: dict[tuple[str, int], BitMap64] = {}
    for share in shares:
        at = (share.log, share.partition)
        if at in held and (part := held[at] & BitMap64(range(share.start, share.end))):
            found[at] = found.get(at, BitMap64()) | part
    return found


def without(records: Records, held: Held) -> tuple[pa.UInt64Array, int]:
    """The numbers of the rows that no table holds yet, and how many are trimmed."""
    every, known = row_numbers(len(records)), held.get((records.log, records.partition))
    if known is None or not len(records):
        return every, 0
    offsets = records.rows["offset"]
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    there = (known & BitMap64(range(first, last + 1))).to_array()
    if not there:
        return every, 0
    known_here = pa.Array.from_buffers(pa.uint64(), len(there), [None, pa.py_buffer(array("Q", there))])
    kept = pc.indices_nonzero(pc.invert(pc.is_in(offsets.cast(pa.uint64()), known_here)))
    return kept, len(records) - len(kept)
