"""Sets of offsets, as compressed bitmaps: which offsets the tables hold, and which of them more than once.

All offsets of a stream are in memory at once, in one of three forms for each 65,536 of them: the ends of unbroken
ranges, a bit for each offset, or two bytes for each offset that is held. 100 million offsets take 0.02 MiB in one
unbroken range, 24 MiB where every second offset is missing, and 202 MiB where only every thousandth is held.
"""

from collections.abc import Iterable, Iterator
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakehouse_ingest.ledger.bitmaps import bitmap_of
from lakehouse_ingest.records import TopicPartition

Run = tuple[int, int]  # the first offset and the last


class OffsetSets:
    """The offsets of each partition. Several rows of one record have several indexes, and are not duplicates."""

    def __init__(self) -> None:
        self._by_index: dict[TopicPartition, dict[int, BitMap64]] = {}
        self._repeated: dict[TopicPartition, BitMap64] = {}
        self._seen: dict[TopicPartition, BitMap64] = {}  # of all indexes together
        self._lock = Lock()

    def add(self, at: TopicPartition, index: int, offsets: pa.Array) -> int:
        """How many of these rows are too many, because another row has the same offset and index."""
        # No log has negative offsets, and a bitmap cannot hold them. Rows that somebody changed may have some.
        offsets = offsets.filter(pc.greater_equal(offsets, 0))
        new = bitmap_of(offsets)
        repeated = _repeated_in(offsets) if len(new) < len(offsets) else BitMap64()
        with self._lock:
            self._seen.pop(at, None)
            known = self._by_index.setdefault(at, {}).setdefault(index, BitMap64())
            both = known & new
            known |= new
            if repeated := repeated | both:
                self._repeated.setdefault(at, BitMap64()).update(repeated)
        return len(offsets) - len(new) + len(both)

    def repeated(self) -> Iterator[tuple[TopicPartition, Iterator[Run]]]:
        """The offsets that several rows have, partition by partition."""
        for at, offsets in sorted(self._repeated.items()):
            yield at, runs_of(offsets)

    def lowest(self, at: TopicPartition) -> int | None:
        seen = self._seen_of(at)
        return seen.min() if seen else None

    def missing(self, at: TopicPartition, start: int, end: int) -> int:
        """How many offsets of this range no row has."""
        return end - start - self._seen_of(at).range_cardinality(start, end) if start < end else 0

    def gaps(self, at: TopicPartition, start: int, end: int) -> Iterator[Run]:
        """The offsets of this range that no row has, in order."""
        seen = self._seen_of(at)
        while start < end:
            following = _next(seen, start)
            if following is None or following >= end:
                yield start, end - 1
                return
            if start < following:
                yield start, following - 1
            start = _end_of_run(seen, following)

    def _seen_of(self, at: TopicPartition) -> BitMap64:
        if at not in self._seen:
            sets = [*self._by_index.get(at, {}).values()]
            self._seen[at] = sets[0] if len(sets) == 1 else BitMap64().union(*sets)
        return self._seen[at]


def _repeated_in(offsets: pa.Array) -> BitMap64:
    counts = pc.value_counts(offsets)
    return bitmap_of(counts.field("values").filter(pc.greater(counts.field("counts"), 1)))


def runs_of(bitmap: BitMap64) -> Iterator[Run]:
    """In order."""
    first = _next(bitmap, 0)
    while first is not None:
        end = _end_of_run(bitmap, first)
        yield first, end - 1
        first = _next(bitmap, end)


def _next(bitmap: BitMap64, start: int) -> int | None:
    try:
        return bitmap.next_set_bit(start)
    except ValueError:  # its way to say that there is none
        return None


def _end_of_run(bitmap: BitMap64, first: int) -> int:
    """The first offset behind an offset of the set that is not in it: searched in steps that double, then halve."""
    step = 1
    while bitmap.contains_range(first, first + 2 * step):
        step *= 2
    inside, outside = step, 2 * step
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if bitmap.contains_range(first, first + middle):
            inside = middle
        else:
            outside = middle
    return first + inside


def joined(runs: Iterable[Run]) -> list[Run]:
    """In order, those that touch or meet as one."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
