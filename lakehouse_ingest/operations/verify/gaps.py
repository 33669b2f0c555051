"""Offsets that are in no table: left out on purpose, holes of the log, or lost.

First the batch record is asked, which has counted each range, and then the source, as long as it holds the records:
what it gives a reader is there, what it passes over (markers and records of aborted transactions, what compaction
took) is a hole. Where the record's counts explain all, and none of it by a hole, nothing is read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.acknowledged import Acknowledged, Missing, Part, Parts, bounded, fewer
from lakehouse_ingest.operations.verify.findings import Findings, Kind
from lakehouse_ingest.operations.verify.offset_sets import Pages, Run
from lakehouse_ingest.operations.verify.recorded_batches import Counted
from lakehouse_ingest.records import Offsets, TopicPartition, is_same_topic
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.sources.logs import Log, Logged
from lakehouse_ingest.tables import Pinned

MOST_RUNS = 1_000  # of one range that are kept until they are listed
MOST_LOST = 10_000  # ranges of what one partition has lost that are remembered


@dataclass
class Answer:
    """What the source says of offsets that no table holds."""

    there: int = 0  # records
    runs: list[Run] = field(default_factory=list)  # of these, the first ones
    gone: list[Run] = field(default_factory=list)  # it holds nothing there any more
    gone_count: int = 0
    silent: int = 0
    last: int = -1  # record

    def found(self, offset: int) -> None:
        self.there, self.last = self.there + 1, offset
        if self.runs and self.runs[-1][1] + 1 == offset:
            self.runs[-1] = (self.runs[-1][0], offset)
        elif len(self.runs) < MOST_RUNS:
            self.runs.append((offset, offset))

    @property
    def parts(self) -> list[Part]:
        """The records; of those behind the first ones only how many."""
        parts = [Part.of(run) for run in self.runs]
        more = self.there - sum(part.count for part in parts)
        return [*parts, Part(parts[-1].end, self.last + 1, more)] if more else parts

    def past(self, run: Run) -> None:
        self.gone_count += run[1] - run[0] + 1
        if len(self.gone) < MOST_RUNS:
            self.gone.append(run)


class Broker:
    """The source, asked only when there is something to ask, and of a topic no more once it is silent."""

    def __init__(self, open_source: Callable[[Sequence[str]], Source], group: str, ids: Mapping[str, str]) -> None:
        self._open, self._group, self._ids = open_source, group, ids
        self._logs: dict[str, tuple[Log, Offsets, Offsets]] = {}
        self.silent: dict[str, str] = {}  # why nothing more is asked, by topic
        self.unasked: Counter[str] = Counter()
        self.strange: set[str] = set()  # topics that were made anew: they hold other records

    def close(self) -> None:
        for log, _, _ in self._logs.values():
            log.__exit__()

    def ask(self, at: TopicPartition, gaps: Iterable[Run]) -> Answer:
        answer = Answer()
        for run in gaps:
            known = answer.there + answer.gone_count
            try:
                self._ask(at, run, answer)
            except LakehouseError as failure:
                self.silent.setdefault(at[0], str(failure))
                unasked = run[1] - run[0] + 1 - (answer.there + answer.gone_count - known)
                answer.silent += unasked
                self.unasked[at[0]] += unasked
        return answer

    def _ask(self, at: TopicPartition, run: Run, answer: Answer) -> None:
        log, low, high = self._log_of(at[0])
        if at not in high or at[0] in self.strange:
            answer.past(run)
            return
        start, end = max(run[0], low[at]), min(run[1], high[at] - 1)
        if run[0] < start:
            answer.past((run[0], min(start - 1, run[1])))
        if start <= end:
            for offset in log.between(at, start, end):
                answer.found(offset)
        if end < run[1] and low[at] <= run[1]:
            answer.past((max(end + 1, run[0]), run[1]))

    def _log_of(self, topic: str) -> tuple[Log, Offsets, Offsets]:
        if topic in self.silent:
            raise LakehouseError(self.silent[topic])
        if topic not in self._logs:
            source = self._open([topic])
            if not isinstance(source, Logged):
                raise LakehouseError("this kind of source can't be asked for records that were read before")
            now, before = source.identity().topics.get(topic), self._ids.get(topic)
            if now and before and not is_same_topic(before, now):
                self.strange.add(topic)
            bounds = source.bounds()
            self._logs[topic] = (source.looking_back(self._group), *bounds)
        return self._logs[topic]


class History:
    """The commits of a stream that the tables still know, on main or not."""

    def __init__(self, tables: Sequence[Pinned], pipeline: str) -> None:
        self._tables, self._pipeline = tables, pipeline

    def of(self, at: TopicPartition, first: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """The commits of the batch that this offset was in: those on main, and those that no history leads to."""
        on: list[tuple[str, int]] = []
        off: list[tuple[str, int]] = []
        for table, snapshot, is_main, mark in self._landings:
            if at in mark.start and mark.start[at] <= first < mark.next.get(at, 0):
                (on if is_main else off).append((table, snapshot))
        return on, off

    @cached_property
    def _landings(self) -> list[tuple[str, int, bool, Mark]]:
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
        """Commits of others that took rows out."""
        return [
            (pinned.state.name, each.id)
            for pinned in self._tables
            for each in pinned.state.ancestors()
            if each.summary.get("operation") in ("delete", "overwrite") and TOKEN not in each.summary
        ]


@dataclass
class Judge:
    """Goes over the ranges of a stream; what it has found is in `tally` and among the findings."""

    OUTCOMES: ClassVar = ("filtered", "discarded", "removed", "holes", "holes_recorded", "lost", "unknown")

    broker: Broker
    history: History
    findings: Findings
    filters: bool  # whether records may have been left out on purpose
    begun: Offsets = field(default_factory=dict)  # where the marks and the record say that each partition began
    removed: Parts = field(default_factory=dict)  # what was acknowledged
    lost: dict[TopicPartition, list[Part]] = field(default_factory=dict)  # what was not
    blind: bool = False  # a table could not be read: what it holds looks lost
    tally: Counter[str] = field(default_factory=Counter)
    _acknowledged: dict[TopicPartition, Acknowledged] = field(default_factory=dict)

    def judge(self, at: TopicPartition, ranges: Iterable[Counted], pages: Pages) -> None:
        if at not in self._acknowledged:
            self._acknowledged[at] = Acknowledged(self.removed.get(at, ()))
        for each in ranges:
            missing = Missing(pages, at, each.start, each.end, self._acknowledged[at].whole)
            self.tally["removed"] += missing.removed
            uncounted = not each.counted or (not each.sure and missing.count != each.absent + each.set_aside)
            if uncounted and missing.count:
                self._without_counts(at, each, missing)
            elif not uncounted:
                self._with_counts(at, each, missing)

    def _without_counts(self, at: TopicPartition, each: Counted, missing: Missing) -> None:
        answer = self.broker.ask(at, missing.runs())
        self.tally["holes"] += missing.count - answer.there - answer.gone_count - answer.silent
        self.tally["unknown"] += answer.gone_count + answer.silent
        for first, last in answer.gone:
            made_anew = at[0] in self.broker.strange
            why = "the topic was made anew" if made_anew else "the source holds nothing there any more"
            self._add(
                Kind.UNKNOWN,
                f"{_span(at, first, last)} in no table, and {why}, so whether these were records can't be told",
                at,
                (first, last),
            )
        if self.filters or each.start < self.begun.get(at, 0):
            self.tally["unknown"] += answer.there
            for run in answer.runs:
                self._add(
                    Kind.UNKNOWN,
                    f"{_span(at, *run)} in no table, and in no range of the batch record: left out on purpose or lost"
                    " can't be told",
                    at,
                    run,
                )
        else:
            self._lost(at, answer.parts)

    def _with_counts(self, at: TopicPartition, each: Counted, missing: Missing) -> None:
        spare = missing.count - each.absent - each.set_aside
        # What was removed had been landed, too.
        if (more := -spare - missing.removed) > 0:
            self._add(
                Kind.COUNT,
                f"the tables hold {more:,} more records of {_span(at, each.start, each.end - 1)} than the batch"
                " record has landed; another writer put them there, look for it",
                at,
                (each.start, each.end - 1),
                more,
            )
        self.tally["filtered"] += min(each.filtered, missing.count)
        self.tally["discarded"] += min(each.discarded, max(0, missing.count - each.filtered))
        left = missing.count - min(each.set_aside, missing.count)
        if not left:
            return
        answer = self.broker.ask(at, missing.runs())
        lost = max(spare, answer.there - each.set_aside, 0)
        holes = left - lost
        if answer.silent:
            self.tally["unknown"] += holes
        else:
            recorded = min(holes, answer.gone_count)
            self.tally["holes_recorded"] += recorded
            self.tally["holes"] += holes - recorded
        if not lost:
            return
        if lost == missing.count:
            self._lost(at, bounded(missing.runs(), MOST_RUNS))
        elif each.set_aside or answer.there < lost:
            # Which of those that are missing, nobody can say.
            first, last = missing.ends()
            self._lost(at, [Part(first, last + 1, lost)])
        else:
            self._lost(at, answer.parts)

    def _lost(self, at: TopicPartition, parts: Sequence[Part]) -> None:
        left = self._acknowledged[at].without(parts)
        count = sum(part.count for part in left)
        self.tally["removed"] += sum(part.count for part in parts) - count
        self.tally["unknown" if self.blind else "lost"] += count
        for part in left:
            if self.blind:
                says = f"{_span(at, *part.run)} in no table that could be read; mend what can't be read, verify again"
                self._add(Kind.UNKNOWN, says, at, part.run, part.count)
            elif self.findings.has_room(Kind.LOST):
                self._tell_lost(at, part)
            else:
                self._add(Kind.LOST, "", at, part.run, part.count)
        if not self.blind:
            self._remember(at, left)

    def _remember(self, at: TopicPartition, parts: Sequence[Part]) -> None:
        self.lost.setdefault(at, []).extend(parts)
        if len(self.lost[at]) > 2 * MOST_LOST:
            self.lost |= fewer({at: self.lost[at]}, MOST_LOST)

    def _tell_lost(self, at: TopicPartition, part: Part) -> None:
        on, off = self.history.of(at, part.start)
        removals = self.history.removals
        of = "" if part.is_whole else f"{part.count:,} of "
        if off:
            hint = f"snapshot {off[0][1]} held them and is not in main's history; roll {off[0][0]} forward"
        elif removals:
            hint = f"snapshot {removals[0][1]} of {removals[0][0]} took rows out; roll it back"
        else:
            hint = "no commit tells why; fill a new table under another `name`"
        places = [*off, *removals, *on]
        self._add(
            Kind.LOST,
            f"{of}{_span(at, *part.run)} in no table: {hint}, or `lakehouse-ingest acknowledge` it",
            at,
            part.run,
            part.count,
            tables=tuple(sorted({table for table, _ in places})),
            snapshots=tuple(dict.fromkeys(snapshot for _, snapshot in places)),
        )

    def _add(self, kind: Kind, says: str, at: TopicPartition, run: Run, count: int | None = None, **of: object) -> None:
        first, last = run
        size = last - first + 1 if count is None else count
        self.findings.add(kind, says, topic=at[0], partition=at[1], first=first, last=last, count=size, **of)


def _span(at: TopicPartition, first: int, last: int) -> str:
    where = f"topic {at[0]} partition {at[1]}"
    return f"offset {first} of {where} is" if first == last else f"offsets {first} to {last} of {where} are"
