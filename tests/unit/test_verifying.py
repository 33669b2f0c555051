"""The parts of verifying that need no server: sets of offsets, ranges side by side, and outcomes of what is missing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_ingest.ledger.bitmaps import bitmap_of
from lakehouse_ingest.operations.verify.findings import LISTED, PROVEN, Finding, FindingKind, Findings
from lakehouse_ingest.operations.verify.missing_ranges import MissingRange, bounded, fewer, narrowed, total
from lakehouse_ingest.operations.verify.offset_sets import OffsetSets, Run, joined, runs_of
from lakehouse_ingest.operations.verify.outcomes import CommitHistory, Judge
from lakehouse_ingest.operations.verify.recorded_batches import (
    RecordedBatches,
    RecordedCommits,
    RecordedRange,
    _together,
)
from lakehouse_ingest.operations.verify.source_lookup import SourceLookup
from lakehouse_ingest.records import Offsets, SourceIdentity, TopicPartition
from lakehouse_ingest.stages.sources import Source
from tests.unit.catalog_package.test_specs import state as of_snapshots

AT = ("t", 0)
CONTAINER = 1 << 16  # offsets that a bitmap keeps in one form
near_a_border = st.integers(CONTAINER - 20, CONTAINER + 20)
batches = st.lists(st.lists(near_a_border, min_size=1, max_size=30), max_size=6)
# Dense, sparse and in between, so that every form of a bitmap occurs.
ranges = st.tuples(st.integers(0, 3 * CONTAINER), st.integers(1, CONTAINER + 9), st.sampled_from([1, 2, 3, 1000]))


def array(offsets: Iterable[int]) -> pa.Array:
    return pa.array([*offsets], pa.int64())


def as_set(runs: Iterable[Run]) -> set[int]:
    return {offset for first, last in runs for offset in range(first, last + 1)}


class TestOffsetSets:
    @given(batches, near_a_border, near_a_border)
    def test_count_repeated_and_missing_offsets(self, given_batches: list[list[int]], one: int, other: int) -> None:
        start, end = min(one, other), max(one, other)
        stored, seen, extra = OffsetSets(), Counter[int](), 0
        for batch in given_batches:
            extra += stored.add(AT, 0, array(batch))
            seen.update(batch)
        again = {offset for at, runs in stored.repeated() for offset in as_set(runs) if at == AT}
        assert extra == seen.total() - len(seen)
        assert again == {offset for offset, count in seen.items() if count > 1}
        missing = [offset for offset in range(start, end) if offset not in seen]
        gaps = list(stored.gaps(AT, start, end))
        assert [offset for first, last in gaps for offset in range(first, last + 1)] == missing
        assert all(before[1] + 1 < after[0] for before, after in pairwise(gaps)), "each gap is whole"
        assert stored.missing(AT, start, end) == len(missing)
        assert stored.lowest(AT) == min(seen, default=None)

    @settings(max_examples=30)
    @given(st.lists(st.tuples(ranges, st.integers(0, 1)), max_size=5), st.integers(0, CONTAINER), st.integers(0, 10**6))
    def test_count_repeated_and_missing_offsets_of_large_ranges(
        self, batches: list[tuple[tuple[int, int, int], int]], start: int, length: int
    ) -> None:
        """Of two indexes: a row has to have the same one to be a duplicate; any of them keeps an offset from
        missing."""
        stored, by_index, again, extra = OffsetSets(), (set[int](), set[int]()), set[int](), 0
        for (first, size, step), index in batches:
            offsets = range(first, first + size, step)
            twice = by_index[index].intersection(offsets)
            assert stored.add(AT, index, array(offsets)) == len(twice)
            extra += len(twice)
            again |= twice
            by_index[index].update(offsets)
        seen = by_index[0] | by_index[1]
        assert {offset for _, runs in stored.repeated() for offset in as_set(runs)} == again
        assert as_set(stored.gaps(AT, start, start + length)) == set(range(start, start + length)) - seen
        assert stored.missing(AT, start, start + length) == len(set(range(start, start + length)) - seen)
        assert stored.lowest(AT) == min(seen, default=None)

    def test_distinguish_the_rows_of_one_record(self) -> None:
        stored = OffsetSets()
        assert stored.add(AT, 0, array([5])) == 0
        assert stored.add(AT, 1, array([5, 6])) == 0
        assert [*stored.repeated()] == []
        assert stored.add(AT, 1, array([6])) == 1
        assert [(at, [*runs]) for at, runs in stored.repeated()] == [(AT, [(6, 6)])]
        assert list(stored.gaps(AT, 4, 8)) == [(4, 4), (7, 7)]


class TestBitmap:
    @given(st.lists(st.integers(0, 300), max_size=40), st.integers(0, 40), st.integers(0, 40))
    def test_of_a_slice_holds_just_its_offsets(self, offsets: list[int], skipped: int, length: int) -> None:
        part = array(offsets).slice(min(skipped, len(offsets)), length)
        bitmap = bitmap_of(part)
        assert set(bitmap) == set(part.to_pylist())
        assert as_set(runs_of(bitmap)) == set(bitmap)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(runs_of(bitmap)))

    def test_of_an_unbroken_range_stays_small(self) -> None:
        """Whatever its batches are, and in whatever order they come."""
        bitmap = bitmap_of(array(range(500_000)))
        for first in (1_500_000, 500_000, 1_000_000):
            bitmap |= bitmap_of(array(range(first, first + 500_000)))
        assert len(bitmap) == 2_000_000
        assert len(bitmap.serialize()) < 2_000


class Held:
    """A source that holds these offsets of one partition, from `low` on; the others are offset gaps."""

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


LANDED, FILTERED, DISCARDED, GAP, LOST = "landed", "filtered", "discarded", "gap", "lost"
REMOVED = "removed"  # lost, and acknowledged
fates = st.lists(st.sampled_from([LANDED] * 3 + [FILTERED, DISCARDED, GAP, LOST]), min_size=1, max_size=60)


def judged(
    fate: list[str],
    ranges: list[RecordedRange],
    low: int = 0,
    *,
    filters: bool = False,
    removed: list[MissingRange] | None = None,
) -> Judge:
    held = Held({offset for offset, each in enumerate(fate) if each != GAP}, low, len(fate))
    stored = OffsetSets()
    if landed := [offset for offset, each in enumerate(fate) if each == LANDED]:
        stored.add(AT, 0, array(landed))
    source = SourceLookup(lambda _: cast("Source", held), "group", {"t": "id"})
    judge = Judge(source, CommitHistory([], "p"), Findings(), filters, removed={AT: removed or []})
    judge.judge(AT, ranges, stored)
    assert sum(judge.tally.values()) == len(fate) - len(landed), "each offset is somewhere"
    assert all(len(each.says) <= 200 for each in judge.findings.listed)
    return judge


def counted(fate: list[str], length: int, **more: Any) -> list[RecordedRange]:
    """As the batch log would have it: a lost record had landed."""
    found = []
    for start in range(0, len(fate), length):
        part = Counter(fate[start : start + length])
        end = min(start + length, len(fate))
        found.append(RecordedRange(start, end, part[FILTERED], part[DISCARDED], part[GAP], **more))
    return found


def offsets_of(finding: Finding) -> range:
    assert finding.first is not None
    assert finding.last is not None
    return range(finding.first, finding.last + 1)


with_removed = st.lists(
    st.sampled_from([LANDED] * 3 + [FILTERED, GAP, LOST, REMOVED, REMOVED]), min_size=1, max_size=60
)


def parts_of(fate: list[str], kind: str) -> list[MissingRange]:
    runs = joined([(offset, offset) for offset, each in enumerate(fate) if each == kind])
    return [MissingRange.of(run) for run in runs]


spans = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5)), max_size=30)


class TestRanges:
    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))))
    def test_that_touch_are_joined(self, spans: list[tuple[int, int]]) -> None:
        runs = joined([(first, first + more) for first, more in spans])
        covered = {offset for first, more in spans for offset in range(first, first + more + 1)}
        assert [offset for first, last in runs for offset in range(first, last + 1)] == sorted(covered)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(runs))

    @given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20), st.integers(0, 50), st.integers(0, 200))
    def test_of_recorded_batches_cover_without_gap_or_overlap(
        self, steps: list[tuple[int, bool]], start: int, end: int
    ) -> None:
        """And where ranges are taken together, no count is lost."""
        ranges, at = [], 0
        for length, known in steps:
            if known:
                ranges.append(RecordedRange(at, at + length, filtered=1, absent=length - 1))
            at += length
        for found in (ranges, _together(ranges, 12)):
            cover = RecordedBatches({AT: found}).cover(AT, start, end)
            spans = [(each.start, each.end) for each in cover]
            assert all(before[1] == after[0] for before, after in pairwise(spans))
            assert sum(last - first for first, last in spans) == max(0, end - start)
        assert sum(each.filtered for each in _together(ranges, 12)) == len(ranges)

    @given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), spans), st.integers(1, 40))
    def test_that_are_merged_hold_as_many_offsets(
        self, some: dict[tuple[str, int], list[tuple[int, int]]], most: int
    ) -> None:
        parts = {
            at: [MissingRange.of(run) for run in joined([(s, s + more) for s, more in of])] for at, of in some.items()
        }
        found = fewer(parts, most)
        assert total(found) == total(parts)
        assert sum(map(len, found.values())) <= max(most, len(found))
        for at, of in parts.items():
            assert all(any(f.start <= each.start and each.end <= f.end for f in found[at]) for each in of)
            assert total({at: bounded([each.run for each in of], most)}) == total({at: of})
            assert len(bounded([each.run for each in of], most)) <= most + 1

    def test_of_lost_offsets_may_be_narrowed(self) -> None:
        lost = {AT: [MissingRange(0, 10, 10), MissingRange(20, 30, 3)], ("other", 0): [MissingRange(0, 1, 1)]}
        wanted = {AT: [(8, 21), (25, 40)], ("none", 0): [(0, 9)]}
        assert narrowed(lost, wanted) == {
            AT: [MissingRange(8, 10, 2), MissingRange(20, 22, 2), MissingRange(25, 30, 1)]
        }


class TestFindings:
    @given(fates, st.integers(1, 20), st.integers(0, 60))
    def test_with_counts_name_the_outcome_of_each_offset(self, fate: list[str], length: int, low: int) -> None:
        """Whatever the source still holds."""
        wanted, judge = Counter(fate), judged(fate, counted(fate, length), min(low, len(fate)))
        assert judge.tally["lost"] == wanted[LOST]
        assert judge.tally["filtered"] + judge.tally["discarded"] == wanted[FILTERED] + wanted[DISCARDED]
        assert judge.tally["holes"] + judge.tally["holes_recorded"] == wanted[GAP]
        assert {each.kind for each in judge.findings.listed} == ({FindingKind.LOST} if wanted[LOST] else set())

    @given(fates)
    def test_without_counts_follow_from_the_source(self, fate: list[str]) -> None:
        """Of a pipeline that leaves out nothing, or else nobody can."""
        ranges = [RecordedRange(0, len(fate), counted=False)]
        absent = [offset for offset, each in enumerate(fate) if each not in (LANDED, GAP)]
        judge = judged(fate, ranges)
        assert (judge.tally["lost"], judge.tally["holes"]) == (len(absent), fate.count(GAP))
        assert [o for each in judge.findings.listed for o in offsets_of(each)] == absent
        judge = judged(fate, ranges, filters=True)
        assert (judge.tally["unknown"], judge.tally["holes"]) == (len(absent), fate.count(GAP))
        assert {each.kind for each in judge.findings.listed} == ({FindingKind.UNKNOWN} if absent else set())

    def test_of_a_batch_with_unsure_counts_ignore_them(self) -> None:
        fate = [LANDED, GAP, LANDED, LOST]
        assert judged(fate, [RecordedRange(0, 4, absent=0, sure=False)]).tally == Counter(lost=1, holes=1)

    def test_are_unknown_where_the_source_holds_nothing(self) -> None:
        judge = judged([LANDED, GAP, LOST, LANDED, LOST], [RecordedRange(0, 5, counted=False)], 4)
        assert judge.tally == Counter(unknown=2, lost=1)
        assert [(each.kind, *offsets_of(each)) for each in judge.findings.listed] == [
            (FindingKind.UNKNOWN, 1, 2),
            (FindingKind.LOST, 4),
        ]

    def test_are_listed_up_to_a_bound_and_counted_beyond(self) -> None:
        found = Findings()
        for offset in range(LISTED + 3):
            found.add(FindingKind.LOST, "x" * 500, first=offset)
        assert len(found.listed) == LISTED
        assert found.unlisted == {"lost": 3}
        assert max(len(each.says) for each in found.listed) <= 200
        assert Finding(FindingKind.UNKNOWN, "").snapshots == ()
        assert PROVEN == 0

    @pytest.mark.parametrize(
        ("parent", "sequence", "found"),
        [
            (2, 2, []),  # others have cut main's history behind its third, and a branch keeps the second
            (2, 4, [FindingKind.ROLLED_BACK]),  # it came after main's third, which goes back to before it
            (None, 2, [FindingKind.ROLLED_BACK]),  # main has no second
        ],
    )
    def test_of_a_rollback_need_proof_by_main(
        self, parent: int | None, sequence: int, found: list[FindingKind]
    ) -> None:
        table = of_snapshots((7, 1, sequence), (3, parent, 3), main=3, ours=7)
        findings = Findings()
        landings = RecordedCommits({"n.t": cast(Any, SimpleNamespace(state=table))}, "p", 1, findings)
        landings.add({"table": "n.t", "snapshot_id": 7, "token": "p/1/1/0", "rows": 1})
        assert [each.kind for each in findings.listed] == found

    @given(with_removed, st.integers(1, 20), st.integers(0, 60), st.integers(1, 60))
    def test_leave_out_what_was_acknowledged(self, fate: list[str], length: int, low: int, most: int) -> None:
        """In however few ranges, whatever the source still holds; and what is lost beside it is lost."""
        removed = fewer({AT: parts_of(fate, REMOVED)}, most).get(AT, [])
        assert len(removed) <= most
        judge = judged(fate, counted(fate, length), min(low, len(fate)), removed=removed)
        wanted = Counter(fate)
        assert (judge.tally["removed"], judge.tally["lost"]) == (wanted[REMOVED], wanted[LOST])
        assert judge.tally["filtered"] == wanted[FILTERED]
        assert {each.kind for each in judge.findings.listed} == ({FindingKind.LOST} if wanted[LOST] else set())

    @given(st.lists(st.sampled_from([LANDED, LOST, REMOVED]), min_size=1, max_size=60), st.integers(1, 20))
    def test_name_what_is_lost_beside_what_was_acknowledged(self, fate: list[str], length: int) -> None:
        for ranges in (counted(fate, length), [RecordedRange(0, len(fate), counted=False)]):
            judge = judged(fate, ranges, removed=parts_of(fate, REMOVED))
            named = [offset for each in judge.findings.listed for offset in offsets_of(each)]
            assert named == [offset for offset, each in enumerate(fate) if each == LOST]

    @given(fates, st.lists(st.booleans(), min_size=60, max_size=60), st.integers(1, 20), st.integers(1, 9))
    def test_disappear_once_all_were_acknowledged(
        self, fate: list[str], more: list[bool], length: int, most: int
    ) -> None:
        """What one look calls lost is what the next one calls removed; but not what goes after that."""
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


class TestNegativeOffsets:
    def test_are_of_no_log_and_end_nothing(self) -> None:
        """Somebody changed such rows; those beside them are counted as ever."""
        stored, at = OffsetSets(), ("t", 0)
        assert stored.add(at, 0, array([-1, -1, -(2**63), 4, 4, 5])) == 1
        assert [(where, [*runs]) for where, runs in stored.repeated()] == [(at, [(4, 4)])]
        assert stored.lowest(at) == 4
