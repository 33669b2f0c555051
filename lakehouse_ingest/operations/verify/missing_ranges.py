"""Offsets that are in no table, in few ranges: what is lost now, and what a person has acknowledged as removed.

If a range is missing as a whole, its offsets are known. Of any other range only their number is known. An
acknowledgement of such a range counts for that many missing offsets in it, whichever they are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from lakehouse_ingest.operations.verify.offset_sets import OffsetSets, Run, joined
from lakehouse_ingest.records import TopicPartition

MOST = 1_000  # ranges in one acknowledgement


@dataclass(frozen=True, slots=True, order=True)
class MissingRange:
    """A range of offsets, `end` not in it, of which `count` are missing."""

    start: int
    end: int
    count: int

    @classmethod
    def of(cls, run: Run) -> "MissingRange":
        return cls(run[0], run[1] + 1, run[1] + 1 - run[0])

    @property
    def run(self) -> Run:
        return self.start, self.end - 1

    @property
    def is_whole(self) -> bool:
        return self.count >= self.end - self.start

    def within(self, start: int, end: int) -> "MissingRange | None":
        first, last = max(start, self.start), min(end, self.end)
        return MissingRange(first, last, min(self.count, last - first)) if first < last else None


RangesByPartition = Mapping[TopicPartition, Sequence[MissingRange]]


def bounded(runs: Iterable[Run], most: int) -> list[MissingRange]:
    """The first `most` runs as they are, and all later ones as one range."""
    found: list[MissingRange] = []
    for part in map(MissingRange.of, runs):
        if len(found) > most:
            found[-1] = MissingRange(found[-1].start, part.end, found[-1].count + part.count)
        else:
            found.append(part)
    return found


def fewer(parts: RangesByPartition, most: int) -> dict[TopicPartition, list[MissingRange]]:
    """Joins the ranges nearest to each other until at most `most` are left; each partition keeps at least one."""
    ordered = {at: sorted(of) for at, of in sorted(parts.items()) if of}
    spaces = [(of[n].start - of[n - 1].end, at, n) for at, of in ordered.items() for n in range(1, len(of))]
    kept = {(at, n) for _, at, n in nlargest(max(0, most - len(ordered)), spaces)}
    found: dict[TopicPartition, list[MissingRange]] = {}
    for at, of in ordered.items():
        found[at] = [of[0]]
        for n, each in enumerate(of[1:], 1):
            before = found[at][-1]
            if (at, n) in kept:
                found[at].append(each)
            else:
                found[at][-1] = MissingRange(before.start, max(before.end, each.end), before.count + each.count)
    return found


def narrowed(
    parts: RangesByPartition, wanted: Mapping[TopicPartition, Sequence[Run]]
) -> dict[TopicPartition, list[MissingRange]]:
    """The part of these ranges that lies in the wanted ones."""
    found = {at: [*_within(of, joined([*wanted.get(at, ())]))] for at, of in parts.items()}
    return {at: of for at, of in found.items() if of}


def _within(parts: Sequence[MissingRange], runs: Sequence[Run]) -> Iterator[MissingRange]:
    for part in parts:
        left = part.count
        for first, last in _overlapping(runs, part.start, part.end):
            if count := min(left, last + 1 - first):
                yield MissingRange(first, last + 1, count)
            left -= count


def total(parts: RangesByPartition) -> int:
    return sum(each.count for of in parts.values() for each in of)


class MissingOffsets:
    """The offsets of a range that no table holds, without those that a person acknowledged one by one (`whole`)."""

    def __init__(self, sets: OffsetSets, at: TopicPartition, start: int, end: int, whole: Sequence[Run] = ()) -> None:
        self._sets, self._at, self._start, self._end = sets, at, start, end
        self._whole = [*_overlapping(whole, start, end)]
        self.removed = sum(sets.missing(at, first, last + 1) for first, last in self._whole)
        self.count = sets.missing(at, start, end) - self.removed

    def runs(self) -> Iterator[Run]:
        """In order."""
        for first, last in self._sets.gaps(self._at, self._start, self._end):
            begin = first
            for start, end in _overlapping(self._whole, first, last + 1):
                if begin < start:
                    yield begin, start - 1
                begin = end + 1
            if begin <= last:
                yield begin, last

    def ends(self) -> Run:
        """The first missing offset and the last."""
        found: list[Run] = []
        for run in self.runs():
            found = [found[0], run] if found else [run]
        return found[0][0], found[-1][1]


def _overlapping(runs: Sequence[Run], start: int, end: int) -> Iterator[Run]:
    """The part of these runs that lies in the range; they are in order, and do not touch."""
    for number in range(max(0, bisect_left(runs, (start,)) - 1), len(runs)):
        first, last = runs[number]
        if first >= end:
            return
        if last >= start:
            yield max(first, start), min(last, end - 1)


class Acknowledgements:
    """What was acknowledged of one partition. It is used up while the ranges of the partition are judged in order."""

    def __init__(self, parts: Iterable[MissingRange] = ()) -> None:
        every = sorted(parts)
        self.whole = joined([each.run for each in every if each.is_whole])
        self._others = [each for each in every if not each.is_whole]

    def without(self, lost: Iterable[MissingRange]) -> list[MissingRange]:
        """The lost offsets that are not acknowledged."""
        found: list[MissingRange] = []
        for each in lost:
            self._others = [other for other in self._others if other.count and other.end > each.start]
            found += self._left_of(each)
        return found

    def _left_of(self, part: MissingRange) -> list[MissingRange]:
        left = [part]
        for number, other in enumerate(self._others):
            if other.start >= part.end:
                break
            room, still = other.count, list[MissingRange]()
            for each in left:
                taken, rest = _taken(each, other, room)
                room -= taken
                still += rest
            self._others[number] = MissingRange(other.start, other.end, room)
            left = still
        return left


def _taken(part: MissingRange, other: MissingRange, room: int) -> tuple[int, list[MissingRange]]:
    """How many offsets of a range the other one acknowledges, and what is left of the range."""
    both = part.within(other.start, other.end)
    if both is None or not room:
        return 0, [part]
    taken = min(both.count, room)
    if part.is_whole:
        left = [
            MissingRange(part.start, both.start, both.start - part.start),
            MissingRange(both.start, both.end, both.count - taken),
            MissingRange(both.end, part.end, part.end - both.end),
        ]
    else:
        left = [MissingRange(part.start, part.end, part.count - taken)]
    return taken, [each for each in left if each.count]
