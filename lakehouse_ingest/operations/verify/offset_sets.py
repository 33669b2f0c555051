"""Which offsets were seen: a bit for each, in pages that are made when something falls into them.

A page is one of Python's whole numbers: to compare and to join two of them is one step in C.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.records import TopicPartition

SHIFT = 18
PAGE = 1 << SHIFT  # offsets
MOST_PAGES = 2_048  # 64 MiB of bits

Run = tuple[int, int]  # the first offset and the last


class Full(Exception):
    """So many pages are not to be in memory at once."""


class Pages:
    """Rows are told apart by their index within a record, too; an offset was seen when any of its rows was."""

    def __init__(self, most: int = MOST_PAGES) -> None:
        self._pages: dict[TopicPartition, dict[int, dict[int, int]]] = {}  # by partition, index and number
        self._room = most

    def add(self, at: TopicPartition, index: int, offsets: pa.Array) -> tuple[int, list[Run]]:
        """How many of them are too many, because they were seen before or come more than once; and which."""
        pages = self._pages.setdefault(at, {}).setdefault(index, {})
        numbers = pc.shift_right(offsets, SHIFT)
        distinct = pc.unique(numbers).to_pylist()
        extra, again = 0, []
        for number in distinct:
            here = offsets.filter(pc.equal(numbers, number)) if len(distinct) > 1 else offsets
            if (seen := pages.get(number)) is None:
                if not self._room:
                    raise Full
                self._room -= 1
                seen = 0
            bits, twice = _bits_of(here, number * PAGE)
            extra += len(here) - (bits & ~seen).bit_count()
            if twice := twice | (bits & seen):
                again += _runs(twice, number * PAGE)
            pages[number] = seen | bits
        return extra, again

    def lowest(self, at: TopicPartition) -> int | None:
        found: list[int] = [min(pages) for pages in self._pages.get(at, {}).values() if pages]
        if not found:
            return None
        number, bits = min(found), self._seen(at, min(found))
        return number * PAGE + (bits & -bits).bit_length() - 1

    def missing(self, at: TopicPartition, start: int, end: int) -> int:
        """How many offsets of this range were not seen."""
        return sum(bits.bit_count() for _, bits in self._unseen(at, start, end))

    def gaps(self, at: TopicPartition, start: int, end: int) -> Iterator[Run]:
        """They themselves, in order."""
        before: Run | None = None
        for base, bits in self._unseen(at, start, end):
            for run in _runs(bits, base):
                if before and before[1] + 1 == run[0]:
                    before = (before[0], run[1])
                else:
                    if before:
                        yield before
                    before = run
        if before:
            yield before

    def _unseen(self, at: TopicPartition, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end:
            number, within = divmod(start, PAGE)
            length = min(PAGE - within, end - start)
            yield start, ~(self._seen(at, number) >> within) & ((1 << length) - 1)
            start += length

    def _seen(self, at: TopicPartition, number: int) -> int:
        found: int = 0
        for pages in self._pages.get(at, {}).values():
            found |= pages.get(number, 0)
        return found


def _bits_of(offsets: pa.Array, base: int) -> tuple[int, int]:
    """The bits of a page, and those of offsets that come more than once."""
    first = pc.min(offsets).as_py()
    # The bits that say which places of the inverse are taken are those that we want.
    inverse = pc.inverse_permutation(pc.subtract(offsets, first), max_index=pc.max(offsets).as_py() - first)
    whole, valid = (1 << len(inverse)) - 1, inverse.buffers()[0]
    bits = whole if valid is None else int.from_bytes(valid, "little") & whole
    twice = 0
    if bits.bit_count() < len(offsets):
        counts = pc.value_counts(offsets)
        for offset in counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist():
            twice |= 1 << (offset - base)
    return bits << (first - base), twice


def _runs(bits: int, base: int) -> list[Run]:
    text = format(bits, "b")[::-1]
    return [(base + found.start(), base + found.end() - 1) for found in re.finditer("1+", text)]


def joined(runs: list[Run]) -> list[Run]:
    """In order, those that touch or meet as one."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
