"""Offsets that are in no table, in few ranges: what is lost now, and what a person has acknowledged as removed.

Of a range that went whole it is known which offsets they are. Of any other only how many, and that is an upper bound:
so many that are missing there are what was acknowledged, whichever they are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from lakehouse_ingest.operations.verify.offset_sets import Pages, Run, joined
from lakehouse_ingest.records import TopicPartition

MOST = 1_000  # ranges of one acknowledgement


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """So many offsets of a range, `end` not in it."""

    start: int
    end: int
    count: int

    @classmethod
    def of(cls, run: Run) -> "Part":
        return cls(run[0], run[1] + 1, run[1] + 1 - run[0])

    @property
    def run(self) -> Run:
        return self.start, self.end - 1

    @property
    def is_whole(self) -> bool:
        return self.count >= self.end - self.start

    def within(self, start: int, end: int) -> "Part | None":
        first, last = max(start, self.start), min(end, self.end)
        return Part(first, last, min(self.count, last - first)) if first < last else None


Parts = Mapping[TopicPartition, Sequence[Part]]


def bounded(runs: Iterable[Run], most: int) -> list[Part]:
    """The first of them, and those behind as one range."""
    found: list[Part] = []
    for part in map(Part.of, runs):
        if len(found) > most:
            found[-1] = Part(found[-1].start, part.end, found[-1].count + part.count)
        else:
            found.append(part)
    return found


def fewer(parts: Parts, most: int) -> dict[TopicPartition, list[Part]]:
    """At most so many, but one for each partition; those that lie nearest to each other are taken together."""
    ordered = {at: sorted(of) for at, of in sorted(parts.items()) if of}
    spaces = [(of[n].start - of[n - 1].end, at, n) for at, of in ordered.items() for n in range(1, len(of))]
    kept = {(at, n) for _, at, n in nlargest(max(0, most - len(ordered)), spaces)}
    found: dict[TopicPartition, list[Part]] = {}
    for at, of in ordered.items():
        found[at] = [of[0]]
        for n, each in enumerate(of[1:], 1):
            before = found[at][-1]
            if (at, n) in kept:
                found[at].append(each)
            else:
                found[at][-1] = Part(before.start, max(before.end, each.end), before.count + each.count)
    return found


def narrowed(parts: Parts, wanted: Mapping[TopicPartition, Sequence[Run]]) -> dict[TopicPartition, list[Part]]:
    """What of them lies in these ranges."""
    found = {at: [*_within(of, joined([*wanted.get(at, ())]))] for at, of in parts.items()}
    return {at: of for at, of in found.items() if of}


def _within(parts: Sequence[Part], runs: Sequence[Run]) -> Iterator[Part]:
    for part in parts:
        left = part.count
        for first, last in _overlapping(runs, part.start, part.end):
            if count := min(left, last + 1 - first):
                yield Part(first, last + 1, count)
            left -= count


def total(parts: Parts) -> int:
    return sum(each.count for of in parts.values() for each in of)


class Missing:
    """The offsets of a range that were not seen, but for those of ranges that are known to have gone whole."""

    def __init__(self, pages: Pages, at: TopicPartition, start: int, end: int, whole: Sequence[Run] = ()) -> None:
        self._pages, self._at, self._start, self._end = pages, at, start, end
        self._whole = [*_overlapping(whole, start, end)]
        self.removed = sum(pages.missing(at, first, last + 1) for first, last in self._whole)
        self.count = pages.missing(at, start, end) - self.removed

    def runs(self) -> Iterator[Run]:
        """In order."""
        for first, last in self._pages.gaps(self._at, self._start, self._end):
            begin = first
            for start, end in _overlapping(self._whole, first, last + 1):
                if begin < start:
                    yield begin, start - 1
                begin = end + 1
            if begin <= last:
                yield begin, last

    def ends(self) -> Run:
        """From the first of them to the last."""
        found: list[Run] = []
        for run in self.runs():
            found = [found[0], run] if found else [run]
        return found[0][0], found[-1][1]


def _overlapping(runs: Sequence[Run], start: int, end: int) -> Iterator[Run]:
    """Of runs that are in order and apart, what of them lies in the range."""
    for number in range(max(0, bisect_left(runs, (start,)) - 1), len(runs)):
        first, last = runs[number]
        if first >= end:
            return
        if last >= start:
            yield max(first, start), min(last, end - 1)


class Acknowledged:
    """What was acknowledged of one partition; used up as the ranges of it are gone over, in their order."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        every = sorted(parts)
        self.whole = joined([each.run for each in every if each.is_whole])
        self._others = [each for each in every if not each.is_whole]

    def without(self, lost: Iterable[Part]) -> list[Part]:
        """What is left of these when so many are taken off as were acknowledged there."""
        found: list[Part] = []
        for each in lost:
            self._others = [other for other in self._others if other.count and other.end > each.start]
            found += self._left_of(each)
        return found

    def _left_of(self, part: Part) -> list[Part]:
        left = [part]
        for number, other in enumerate(self._others):
            if other.start >= part.end:
                break
            room, still = other.count, list[Part]()
            for each in left:
                taken, rest = _taken(each, other, room)
                room -= taken
                still += rest
            self._others[number] = Part(other.start, other.end, room)
            left = still
        return left


def _taken(part: Part, other: Part, room: int) -> tuple[int, list[Part]]:
    """How many of a part the other one takes off, and what is left of it."""
    both = part.within(other.start, other.end)
    if both is None or not room:
        return 0, [part]
    taken = min(both.count, room)
    if part.is_whole:
        left = [
            Part(part.start, both.start, both.start - part.start),
            Part(both.start, both.end, both.count - taken),
            Part(both.end, part.end, part.end - both.end),
        ]
    else:
        left = [Part(part.start, part.end, part.count - taken)]
    return taken, [each for each in left if each.count]
