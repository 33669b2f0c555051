"""The parts of a recount that need no server: bits in pages, ranges side by side, windows, and what became of gaps."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.operations.verify.acknowledged import Part, bounded, fewer, narrowed, total
from lakehouse_ingest.operations.verify.findings import LISTED, PROVEN, Finding, Findings, Kind
from lakehouse_ingest.operations.verify.gaps import Broker, History, Judge
from lakehouse_ingest.operations.verify.offset_sets import PAGE, Full, Pages, joined
from lakehouse_ingest.operations.verify.proof import windows
from lakehouse_ingest.operations.verify.recorded_batches import Counted, Landings, Recorded, _together
from lakehouse_ingest.records import Offsets, SourceIdentity, TopicPartition
from lakehouse_ingest.stages.sources import Source
from tests.unit.catalog_package.test_specs import state as of_snapshots

AT = ("t", 0)
near_a_border = st.integers(PAGE - 20, PAGE + 20)
batches = st.lists(st.lists(near_a_border, min_size=1, max_size=30), max_size=6)


def array(offsets: list[int]) -> pa.Array:
    return pa.array(offsets, pa.int64())


@given(batches, near_a_border, near_a_border)
def test_pages_are_a_set(given_batches: list[list[int]], one: int, other: int) -> None:
    start, end = min(one, other), max(one, other)
    stored, seen, extra, again = Pages(), Counter[int](), 0, set[int]()
    for batch in given_batches:
        more, runs = stored.add(AT, 0, array(batch))
        extra += more
        again |= {offset for first, last in runs for offset in range(first, last + 1)}
        seen.update(batch)
    assert extra == seen.total() - len(seen)
    assert again == {offset for offset, count in seen.items() if count > 1}
    missing = [offset for offset in range(start, end) if offset not in seen]
    gaps = list(stored.gaps(AT, start, end))
    assert [offset for first, last in gaps for offset in range(first, last + 1)] == missing
    assert all(before[1] + 1 < after[0] for before, after in pairwise(gaps)), "each gap is whole"
    assert stored.missing(AT, start, end) == len(missing)
    assert stored.lowest(AT) == min(seen, default=None)


def test_rows_of_one_record_are_told_apart() -> None:
    stored = Pages()
    assert stored.add(AT, 0, array([5])) == (0, [])
    assert stored.add(AT, 1, array([5, 6])) == (0, [])
    assert stored.add(AT, 1, array([6])) == (1, [(6, 6)])
    assert list(stored.gaps(AT, 4, 8)) == [(4, 4), (7, 7)]


def test_there_are_no_more_pages_than_there_may_be() -> None:
    stored = Pages(2)
    stored.add(AT, 0, array([0, PAGE]))
    with pytest.raises(Full):
        stored.add(AT, 0, array([2 * PAGE]))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))))
def test_runs_that_touch_are_one(spans: list[tuple[int, int]]) -> None:
    runs = joined([(first, first + more) for first, more in spans])
    covered = {offset for first, more in spans for offset in range(first, first + more + 1)}
    assert [offset for first, last in runs for offset in range(first, last + 1)] == sorted(covered)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(runs))


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20), st.integers(0, 50), st.integers(0, 200))
def test_a_cover_has_neither_gap_nor_overlap(steps: list[tuple[int, bool]], start: int, end: int) -> None:
    """And where ranges are taken together, no count is lost."""
    ranges, at = [], 0
    for length, known in steps:
        if known:
            ranges.append(Counted(at, at + length, filtered=1, absent=length - 1))
        at += length
    for found in (ranges, _together(ranges, 12)):
        cover = Recorded({AT: found}).cover(AT, start, end)
        spans = [(each.start, each.end) for each in cover]
        assert all(before[1] == after[0] for before, after in pairwise(spans))
        assert sum(last - first for first, last in spans) == max(0, end - start)
    assert sum(each.filtered for each in _together(ranges, 12)) == len(ranges)


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.tuples(st.integers(0, 40), st.integers(0, 300))),
    st.integers(1, 9),
)
def test_windows_hold_each_range_once(spans: dict[tuple[str, int], tuple[int, int]], most_pages: int) -> None:
    starts = {at: start for at, (start, _) in spans.items()}
    until = {at: start + length + 7 for at, (start, length) in spans.items()}
    covers = {at: Recorded().cover(at, start, start + length) for at, (start, length) in spans.items()}
    reached, taken = dict(starts), Counter[tuple[str, int]]()
    lasts = []
    for last, window, ranges in windows(covers, starts, until, most_pages):
        lasts.append(last)
        for at, (start, end) in window.items():
            assert start == reached[at]
            assert all(start <= each.start and each.end <= end for each in ranges[at])
            reached[at] = end
            taken[at] += len(ranges[at])
    if spans:
        assert reached == until
        assert lasts == [False] * (len(lasts) - 1) + [True]
    assert all(taken[at] == len(cover) for at, cover in covers.items())


# -- fates ------------------------------------------------------------------------------------------------


class Held:
    """A source that holds these offsets of one partition, from `low` on; the others are holes of its log."""

    def __init__(self, offsets: set[int], low: int, end: int) -> None:
        self.offsets, self.low, self.end = offsets, low, end

    def identity(self) -> SourceIdentity:
        return SourceIdentity("cluster", {"t": "id"})

    def bounds(self) -> tuple[Offsets, Offsets]:
        return {AT: self.low}, {AT: self.end}

    def looking_back(self, _group: str) -> Self:
        return self

    def between(self, _at: TopicPartition, first: int, last: int) -> Iterator[int]:
        assert self.low <= first <= last < self.end, "it is asked for what it holds"
        return (offset for offset in range(first, last + 1) if offset in self.offsets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


LANDED, FILTERED, DISCARDED, HOLE, LOST = "landed", "filtered", "discarded", "hole", "lost"
REMOVED = "removed"  # lost, and acknowledged
fates = st.lists(st.sampled_from([LANDED] * 3 + [FILTERED, DISCARDED, HOLE, LOST]), min_size=1, max_size=60)


def judged(
    fate: list[str], ranges: list[Counted], low: int = 0, *, filters: bool = False, removed: list[Part] | None = None
) -> Judge:
    held = Held({offset for offset, each in enumerate(fate) if each != HOLE}, low, len(fate))
    stored = Pages()
    if landed := [offset for offset, each in enumerate(fate) if each == LANDED]:
        stored.add(AT, 0, array(landed))
    broker = Broker(lambda _: cast("Source", held), "group", {"t": "id"})
    judge = Judge(broker, History([], "p"), Findings(), filters, removed={AT: removed or []})
    judge.judge(AT, ranges, stored)
    assert sum(judge.tally.values()) == len(fate) - len(landed), "each offset is somewhere"
    assert all(len(each.says) <= 200 for each in judge.findings.listed)
    return judge


def counted(fate: list[str], length: int, **more: Any) -> list[Counted]:
    """As the batch record would have it: a lost record had landed."""
    found = []
    for start in range(0, len(fate), length):
        part = Counter(fate[start : start + length])
        end = min(start + length, len(fate))
        found.append(Counted(start, end, part[FILTERED], part[DISCARDED], part[HOLE], **more))
    return found


@given(fates, st.integers(1, 20), st.integers(0, 60))
def test_with_counts_each_fate_is_told(fate: list[str], length: int, low: int) -> None:
    """Whatever the source still holds."""
    wanted, judge = Counter(fate), judged(fate, counted(fate, length), min(low, len(fate)))
    assert judge.tally["lost"] == wanted[LOST]
    assert judge.tally["filtered"] + judge.tally["discarded"] == wanted[FILTERED] + wanted[DISCARDED]
    assert judge.tally["holes"] + judge.tally["holes_recorded"] == wanted[HOLE]
    assert {each.kind for each in judge.findings.listed} == ({Kind.LOST} if wanted[LOST] else set())


@given(fates)
def test_without_counts_the_source_tells(fate: list[str]) -> None:
    """Of a pipeline that leaves out nothing, or else nobody can."""
    ranges = [Counted(0, len(fate), counted=False)]
    absent = [offset for offset, each in enumerate(fate) if each not in (LANDED, HOLE)]
    judge = judged(fate, ranges)
    assert (judge.tally["lost"], judge.tally["holes"]) == (len(absent), fate.count(HOLE))
    assert [o for each in judge.findings.listed for o in offsets_of(each)] == absent
    judge = judged(fate, ranges, filters=True)
    assert (judge.tally["unknown"], judge.tally["holes"]) == (len(absent), fate.count(HOLE))
    assert {each.kind for each in judge.findings.listed} == ({Kind.UNKNOWN} if absent else set())


def offsets_of(finding: Finding) -> range:
    assert finding.first is not None
    assert finding.last is not None
    return range(finding.first, finding.last + 1)


def test_a_batch_that_counted_twice_is_judged_without_its_counts() -> None:
    fate = [LANDED, HOLE, LANDED, LOST]
    assert judged(fate, [Counted(0, 4, absent=0, sure=False)]).tally == Counter(lost=1, holes=1)


def test_where_the_source_holds_nothing_nobody_can_tell() -> None:
    judge = judged([LANDED, HOLE, LOST, LANDED, LOST], [Counted(0, 5, counted=False)], 4)
    assert judge.tally == Counter(unknown=2, lost=1)
    assert [(each.kind, *offsets_of(each)) for each in judge.findings.listed] == [
        (Kind.UNKNOWN, 1, 2),
        (Kind.LOST, 4),
    ]


def test_findings_are_bounded_and_counted() -> None:
    found = Findings()
    for offset in range(LISTED + 3):
        found.add(Kind.LOST, "x" * 500, first=offset)
    assert len(found.listed) == LISTED
    assert found.unlisted == {"lost": 3}
    assert max(len(each.says) for each in found.listed) <= 200
    assert Finding(Kind.UNKNOWN, "").snapshots == ()
    assert PROVEN == 0


@pytest.mark.parametrize(
    ("parent", "sequence", "found"),
    [
        (2, 2, []),  # others have cut main's history behind its third, and a branch keeps the second
        (2, 4, [Kind.ROLLED_BACK]),  # it came after main's third, which goes back to before it
        (None, 2, [Kind.ROLLED_BACK]),  # main has no second
    ],
)
def test_what_a_branch_keeps_was_taken_back_only_where_main_can_tell(
    parent: int | None, sequence: int, found: list[Kind]
) -> None:
    table = of_snapshots((7, 1, sequence), (3, parent, 3), main=3, ours=7)
    findings = Findings()
    landings = Landings({"n.t": cast(Any, SimpleNamespace(state=table))}, "p", 1, findings)
    landings.add({"table": "n.t", "snapshot_id": 7, "token": "p/1/1/0", "rows": 1})
    assert [each.kind for each in findings.listed] == found


# -- what was acknowledged --------------------------------------------------------------------------------

with_removed = st.lists(
    st.sampled_from([LANDED] * 3 + [FILTERED, HOLE, LOST, REMOVED, REMOVED]), min_size=1, max_size=60
)


def parts_of(fate: list[str], kind: str) -> list[Part]:
    runs = joined([(offset, offset) for offset, each in enumerate(fate) if each == kind])
    return [Part.of(run) for run in runs]


@given(with_removed, st.integers(1, 20), st.integers(0, 60), st.integers(1, 60))
def test_what_was_acknowledged_is_lost_no_more(fate: list[str], length: int, low: int, most: int) -> None:
    """In however few ranges, whatever the source still holds; and what is lost beside it is lost."""
    removed = fewer({AT: parts_of(fate, REMOVED)}, most).get(AT, [])
    assert len(removed) <= most
    judge = judged(fate, counted(fate, length), min(low, len(fate)), removed=removed)
    wanted = Counter(fate)
    assert (judge.tally["removed"], judge.tally["lost"]) == (wanted[REMOVED], wanted[LOST])
    assert judge.tally["filtered"] == wanted[FILTERED]
    assert {each.kind for each in judge.findings.listed} == ({Kind.LOST} if wanted[LOST] else set())


@given(st.lists(st.sampled_from([LANDED, LOST, REMOVED]), min_size=1, max_size=60), st.integers(1, 20))
def test_where_it_is_known_which_went_the_others_are_named(fate: list[str], length: int) -> None:
    for ranges in (counted(fate, length), [Counted(0, len(fate), counted=False)]):
        judge = judged(fate, ranges, removed=parts_of(fate, REMOVED))
        named = [offset for each in judge.findings.listed for offset in offsets_of(each)]
        assert named == [offset for offset, each in enumerate(fate) if each == LOST]


@given(fates, st.lists(st.booleans(), min_size=60, max_size=60), st.integers(1, 20), st.integers(1, 9))
def test_acknowledged_once_nothing_is_left(fate: list[str], more: list[bool], length: int, most: int) -> None:
    """What a recount calls lost is what the next one calls removed; but not what goes after that."""
    ranges = counted(fate, length)
    first = judged(fate, ranges)
    lost = first.tally["lost"]
    assert total(first.lost) == lost
    acknowledged = fewer(first.lost, most).get(AT, [])
    second = judged(fate, ranges, removed=acknowledged)
    assert (second.tally["removed"], second.tally["lost"], second.findings.listed) == (lost, 0, [])
    later = [LOST if goes and each == LANDED else each for each, goes in zip(fate, more, strict=False)]
    third = judged(later, ranges, removed=acknowledged)
    assert (third.tally["removed"], third.tally["lost"]) == (lost, later.count(LOST) - lost)
    back = [LANDED if each == LOST else each for each in fate]
    assert judged(back, ranges, removed=acknowledged).findings.listed == []


spans = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5)), max_size=30)


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), spans), st.integers(1, 40))
def test_fewer_ranges_hold_as_many(some: dict[tuple[str, int], list[tuple[int, int]]], most: int) -> None:
    parts = {at: [Part.of(run) for run in joined([(s, s + more) for s, more in of])] for at, of in some.items()}
    found = fewer(parts, most)
    assert total(found) == total(parts)
    assert sum(map(len, found.values())) <= max(most, len(found))
    for at, of in parts.items():
        assert all(any(f.start <= each.start and each.end <= f.end for f in found[at]) for each in of)
        assert total({at: bounded([each.run for each in of], most)}) == total({at: of})
        assert len(bounded([each.run for each in of], most)) <= most + 1


def test_a_part_may_be_picked_of_what_is_lost() -> None:
    lost = {AT: [Part(0, 10, 10), Part(20, 30, 3)], ("other", 0): [Part(0, 1, 1)]}
    wanted = {AT: [(8, 21), (25, 40)], ("none", 0): [(0, 9)]}
    assert narrowed(lost, wanted) == {AT: [Part(8, 10, 2), Part(20, 22, 2), Part(25, 30, 1)]}
