"""The outcome of each offset that is in no table: left out on purpose, removed, an offset gap, or lost.

The batch log is asked first, because it has counted each range. The source is asked next, as long as it holds the
records. An offset that it gives to a reader is a record; one that it passes over is an offset gap. Such gaps are the
markers and records of aborted transactions, and what compaction took. If the counts of the batch log explain all
missing offsets without any gap, nothing is read.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.findings import FindingKind, Findings
from lakehouse_ingest.operations.verify.missing_ranges import (
    Acknowledgements,
    MissingOffsets,
    MissingRange,
    RangesByPartition,
    bounded,
    fewer,
)
from lakehouse_ingest.operations.verify.offset_sets import OffsetSets, Run
from lakehouse_ingest.operations.verify.recorded_batches import RecordedRange
from lakehouse_ingest.operations.verify.source_lookup import MOST_RUNS, SourceLookup
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.tables import Pinned

MOST_LOST = 10_000  # ranges of what one partition has lost that are remembered


class CommitHistory:
    """The commits of a stream that the tables still know, on main or not."""

    def __init__(self, tables: Sequence[Pinned], pipeline: str) -> None:
        self._tables, self._pipeline = tables, pipeline

    def of(self, at: TopicPartition, first: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """The commits of the batch that held this offset: those in main's history, and those outside it."""
        on: list[tuple[str, int]] = []
        off: list[tuple[str, int]] = []
        for table, snapshot, is_main, mark in self._commits:
            if at in mark.start and mark.start[at] <= first < mark.next.get(at, 0):
                (on if is_main else off).append((table, snapshot))
        return on, off

    @cached_property
    def _commits(self) -> list[tuple[str, int, bool, Mark]]:
        found = []
        for pinned in self._tables:
            main = {each.id for each in pinned.state.ancestors()}
            for each in pinned.state.snapshots.values():
                mark = marks.from_summary(each.summary, self._pipeline)
                if mark and each.summary.get(TOKEN) == str(mark.token):
                    found.append((pinned.state.name, each.id, each.id in main, mark))
        return found

    @cached_property
    def removals(self) -> list[tuple[str, int]]:
        """Commits of other writers that deleted rows."""
        return [
            (pinned.state.name, each.id)
            for pinned in self._tables
            for each in pinned.state.ancestors()
            if each.summary.get("operation") in ("delete", "overwrite") and TOKEN not in each.summary
        ]


@dataclass
class Judge:
    """Goes over the ranges of a stream. What it finds is counted in `tally` and listed among the findings."""

    OUTCOMES: ClassVar = ("filtered", "discarded", "removed", "holes", "holes_recorded", "lost", "unknown")

    source: SourceLookup
    history: CommitHistory
    findings: Findings
    filters: bool  # whether records may have been left out on purpose
    begun: Offsets = field(default_factory=dict)  # where each partition began, by the marks and the batch log
    removed: RangesByPartition = field(default_factory=dict)  # what was acknowledged
    lost: dict[TopicPartition, list[MissingRange]] = field(default_factory=dict)  # what was not
    blind: bool = False  # a table could not be read, so its rows look lost
    tally: Counter[str] = field(default_factory=Counter)
    _acknowledged: dict[TopicPartition, Acknowledgements] = field(default_factory=dict)

    def judge(self, at: TopicPartition, ranges: Iterable[RecordedRange], held: OffsetSets) -> None:
        if at not in self._acknowledged:
            self._acknowledged[at] = Acknowledgements(self.removed.get(at, ()))
        for each in ranges:
            missing = MissingOffsets(held, at, each.start, each.end, self._acknowledged[at].whole)
            self.tally["removed"] += missing.removed
            uncounted = not each.counted or (not each.sure and missing.count != each.absent + each.left_out)
            if uncounted and missing.count:
                self._without_counts(at, each, missing)
            elif not uncounted:
                self._with_counts(at, each, missing)

    def _without_counts(self, at: TopicPartition, each: RecordedRange, missing: MissingOffsets) -> None:
        answer = self.source.ask(at, missing.runs())
        self.tally["holes"] += missing.count - answer.there - answer.gone_count - answer.silent
        self.tally["unknown"] += answer.gone_count + answer.silent
        recreated = at[0] in self.source.recreated
        why = "the topic was recreated" if recreated else "the source holds nothing there any more"
        for run in answer.gone:
            says = f"{_span(at, *run)} in no table, and {why}, so whether these were records is unknown"
            self._add(FindingKind.UNKNOWN, says, at, run)
        if not self.filters and each.start >= self.begun.get(at, 0):
            self._lost(at, answer.ranges)
            return
        self.tally["unknown"] += answer.there
        for run in answer.runs:
            says = f"{_span(at, *run)} in no table and in no range of the batch log"
            self._add(FindingKind.UNKNOWN, f"{says}; whether they were left out on purpose or lost is unknown", at, run)

    def _with_counts(self, at: TopicPartition, each: RecordedRange, missing: MissingOffsets) -> None:
        spare = missing.count - each.absent - each.left_out
        # Rows that were removed had been committed before, so they explain as many.
        if (more := -spare - missing.removed) > 0:
            self._more_than_recorded(at, each, more)
        self.tally["filtered"] += min(each.filtered, missing.count)
        self.tally["discarded"] += min(each.discarded, max(0, missing.count - each.filtered))
        left = missing.count - min(each.left_out, missing.count)
        if not left:
            return
        answer = self.source.ask(at, missing.runs())
        lost = max(spare, answer.there - each.left_out, 0)
        gaps = left - lost
        if answer.silent:
            self.tally["unknown"] += gaps
        else:
            recorded = min(gaps, answer.gone_count)
            self.tally["holes_recorded"] += recorded
            self.tally["holes"] += gaps - recorded
        if not lost:
            return
        if lost == missing.count:
            self._lost(at, bounded(missing.runs(), MOST_RUNS))
        elif each.left_out or answer.there < lost:
            # Some of the missing offsets are lost. Nothing says which ones.
            first, last = missing.ends()
            self._lost(at, [MissingRange(first, last + 1, lost)])
        else:
            self._lost(at, answer.ranges)

    def _more_than_recorded(self, at: TopicPartition, each: RecordedRange, more: int) -> None:
        run = (each.start, each.end - 1)
        self._add(
            FindingKind.COUNT,
            f"the tables hold {more:,} more records of {_offsets(at, *run)} than the batch log has counted; another"
            " writer added them, look for it",
            at,
            run,
            more,
        )

    def _lost(self, at: TopicPartition, ranges: Sequence[MissingRange]) -> None:
        left = self._acknowledged[at].without(ranges)
        count = sum(each.count for each in left)
        self.tally["removed"] += sum(each.count for each in ranges) - count
        self.tally["unknown" if self.blind else "lost"] += count
        for each in left:
            if self.blind:
                says = f"{_span(at, *each.run)} in no table that could be read; fix what can't be read, verify again"
                self._add(FindingKind.UNKNOWN, says, at, each.run, each.count)
            elif self.findings.has_room(FindingKind.LOST):
                self._report_lost(at, each)
            else:
                self._add(FindingKind.LOST, "", at, each.run, each.count)
        if not self.blind:
            self._remember(at, left)

    def _remember(self, at: TopicPartition, ranges: Sequence[MissingRange]) -> None:
        self.lost.setdefault(at, []).extend(ranges)
        if len(self.lost[at]) > 2 * MOST_LOST:
            self.lost |= fewer({at: self.lost[at]}, MOST_LOST)

    def _report_lost(self, at: TopicPartition, lost: MissingRange) -> None:
        on, off = self.history.of(at, lost.start)
        removals = self.history.removals
        of = "" if lost.is_whole else f"{lost.count:,} of "
        if off:
            hint = f"snapshot {off[0][1]} held them and is not in main's history; roll {off[0][0]} forward"
        elif removals:
            hint = f"snapshot {removals[0][1]} of {removals[0][0]} deleted rows; roll it back"
        else:
            hint = "no commit explains why; fill a new table under another `name`"
        places = [*off, *removals, *on]
        self._add(
            FindingKind.LOST,
            f"{of}{_span(at, *lost.run)} in no table: {hint}, or `lakehouse-ingest acknowledge` it",
            at,
            lost.run,
            lost.count,
            tables=tuple(sorted({table for table, _ in places})),
            snapshots=tuple(dict.fromkeys(snapshot for _, snapshot in places)),
        )

    def _add(
        self, kind: FindingKind, says: str, at: TopicPartition, run: Run, count: int | None = None, **of: object
    ) -> None:
        first, last = run
        size = last - first + 1 if count is None else count
        self.findings.add(kind, says, topic=at[0], partition=at[1], first=first, last=last, count=size, **of)


def _offsets(at: TopicPartition, first: int, last: int) -> str:
    where = f"topic {at[0]} partition {at[1]}"
    return f"offset {first} of {where}" if first == last else f"offsets {first} to {last} of {where}"


def _span(at: TopicPartition, first: int, last: int) -> str:
    return f"{_offsets(at, first, last)} {'is' if first == last else 'are'}"
