"""One stream, recounted: every offset from its lowest start to where all landings are done, in exactly one place.

A pipeline may be running meanwhile. So it is asked first how far all landings are done, and only then each table is
pinned to one head, which holds all of that; what a head holds beyond is looked at for duplicates only.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.acknowledged import Acknowledged, Part, Parts, total
from lakehouse_ingest.operations.verify.findings import LISTED, Findings, Kind, Verdict
from lakehouse_ingest.operations.verify.gaps import Broker, History, Judge
from lakehouse_ingest.operations.verify.offset_sets import MOST_PAGES, PAGE, Full, Pages, Run, joined
from lakehouse_ingest.operations.verify.recorded_batches import Counted, Reader, Recorded
from lakehouse_ingest.operations.verify.row_scan import Holder, Recount, Scope, Window
from lakehouse_ingest.operations.verify.table_heads import Heads, Inspector, Names, heads
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import FileMissing, Lake, Pinned

Starts = dict[TopicPartition, int]
OpenSource = Callable[[Sequence[str]], Source]  # by topics


@dataclass(frozen=True)
class Recounted:
    """The verdict, and what it takes to acknowledge what is lost."""

    verdict: Verdict
    lost: Parts
    logs: Mapping[str, Collection[str]]  # by topic, as the rows name them
    generation: int
    epoch: int


def recount(
    lake: Lake, pipeline: str, names: Names, open_source: OpenSource, *, filters: bool, most_pages: int = MOST_PAGES
) -> Recounted | None:
    """None where this stream has never been. `filters`: whether the settings leave records out on purpose."""
    first = Marks.of(heads(lake, names), pipeline)
    if not first.all:
        return None
    there, found = heads(lake, names), Findings()
    inspector = Inspector(lake, pipeline, names, there, found)
    # What was complete before is in every head; what these say is complete may have come between two of them.
    proof = Proof(lake, pipeline, first.complete(), Marks.of(there, pipeline), inspector, found, most_pages)
    return proof.recounted(open_source, filters=filters)


@dataclass(frozen=True)
class Marks:
    """Those that this stream has left in main's ancestors."""

    record: Sequence[Mark]
    tables: Sequence[Mark]

    @classmethod
    def of(cls, there: Heads, pipeline: str) -> "Marks":
        return cls([*_marks_in([there.record], pipeline)], [*_marks_in(there.there, pipeline)])

    @property
    def all(self) -> list[Mark]:
        return [*self.record, *self.tables]

    @property
    def generation(self) -> int:
        return max((mark.token.generation for mark in self.all), default=0)

    def complete(self) -> Offsets:
        """As far as the batch record was written: a table may know of more, but not yet what became of it.

        In the record `next` is written after all landings, so there it is complete as well.
        """
        record = [mark.held() for mark in self.record if mark.token.generation == self.generation]
        tables = [mark.complete for mark in self.tables if mark.token.generation == self.generation]
        return ledger.highest(record or tables)

    def logs(self) -> dict[str, set[str]]:
        """The log that each topic is now, as the rows name it; under two names, where its id was not known at first."""
        found: dict[str, tuple[int, set[str]]] = {}
        for mark in self.all:
            generation = mark.token.generation
            for topic in mark.source.topics:
                newest, names = found.get(topic, (-1, set()))
                if generation >= newest:
                    names = names if generation == newest else set()
                    found[topic] = (generation, names | {mark.source.log(topic)})
        return {topic: names for topic, (_, names) in found.items()}

    def of_logs(self, logs: Mapping[str, Collection[str]], choose: Callable[[Mark], Offsets]) -> Iterator[Offsets]:
        """Something of every mark, as far as it was of these logs."""
        for mark in self.all:
            same = {topic for topic in mark.source.topics if mark.source.log(topic) in logs[topic]}
            yield {at: offset for at, offset in choose(mark).items() if at[0] in same}

    def generations(self, logs: Mapping[str, Collection[str]], older: Collection[str]) -> dict[str, int]:
        """Since when a topic is what it is, of topics that were another log before."""
        found: dict[str, int] = {}
        for mark in self.all:
            for topic in mark.source.topics:
                if mark.source.log(topic) in logs[topic]:
                    found[topic] = min(mark.token.generation, found.get(topic, mark.token.generation))
        changed = {
            topic for mark in self.all for topic in mark.source.topics if mark.source.log(topic) not in logs[topic]
        }
        return {topic: generation for topic, generation in found.items() if topic in changed or topic in older}


def _marks_in(pins: Iterable[Pinned | None], pipeline: str) -> Iterator[Mark]:
    for pinned in pins:
        for snapshot in pinned.state.ancestors() if pinned else ():
            if mark := ledger.from_summary(snapshot.summary, pipeline):
                yield mark


@dataclass
class Totals:
    """Of all windows together."""

    rows: Counter[str] = field(default_factory=Counter)
    beyond: int = 0
    older: Counter[str] = field(default_factory=Counter)
    extra: int = 0
    again: dict[TopicPartition, list[Run]] = field(default_factory=lambda: defaultdict(list))

    def add(self, count: Recount) -> None:
        self.rows += count.rows
        self.beyond += count.beyond
        self.older += count.older
        self.extra += count.extra
        for at, runs in count.again.items():
            self.again[at] += runs


@dataclass
class Proof:
    lake: Lake
    pipeline: str
    complete: Offsets
    marks: Marks
    inspector: Inspector
    findings: Findings
    most_pages: int

    def recounted(self, open_source: OpenSource, *, filters: bool) -> Recounted:
        logs = self.marks.logs()
        until = ledger.highest([self.complete, *self.marks.of_logs(logs, Mark.held)])
        scope = Scope(self.complete, until, logs)
        holders = self.inspector.holders()
        recorded = self._recorded(logs)
        broker = Broker(open_source, self.pipeline, ledger.ids_of(self.marks.all))
        history = History(self.inspector.heads.there, self.pipeline)
        judge = Judge(broker, history, self.findings, filters or recorded.filters, removed=recorded.removed)
        try:
            starts, totals = self._count(holders, scope, recorded, judge)
        finally:
            broker.close()
        self._tell_duplicates(holders, scope, totals)
        self._tell_silence(broker)
        dead = self.inspector.names.dead
        acknowledged = _acknowledged(recorded.removed, starts, self.complete)
        verdict = Verdict(
            pipeline=self.pipeline,
            partitions=len(self.complete),
            offsets=sum(max(0, end - starts[at]) for at, end in self.complete.items()),
            tables={name: count for name, count in sorted(totals.rows.items()) if name != dead},
            dead=totals.rows[dead],
            **{name: judge.tally[name] for name in judge.OUTCOMES},
            # What can't be told may be what was acknowledged.
            back=0 if judge.tally["unknown"] else max(0, acknowledged - judge.tally["removed"]),
            duplicates=totals.extra,
            beyond=totals.beyond,
            older=dict(totals.older),
            findings=self.findings.listed,
            unlisted=self.findings.unlisted,
            adopted=recorded.adopted,
        )
        epoch = max(mark.token.epoch for mark in self.marks.all)
        return Recounted(verdict, judge.lost, logs, self.marks.generation, epoch)

    def _recorded(self, logs: Mapping[str, Collection[str]]) -> Recorded:
        record = self.inspector.heads.record
        if record is None:
            return Recorded()
        try:
            reader = Reader(self.lake, record, self.pipeline, self.findings, logs)
            return reader.read(self.inspector.heads.tables, self.marks.generation)
        except FileMissing as missing:
            self.inspector.missing(record, missing.path)
        except NeedsOperator as failure:
            self.inspector.unread(record, str(failure))
        return Recorded()

    # -- window by window ---------------------------------------------------------------------------------

    def _count(
        self, holders: Sequence[Holder], scope: Scope, recorded: Recorded, judge: Judge
    ) -> tuple[Starts, Totals]:
        totals, until = Totals(), scope.until
        count = Recount(self.lake, holders, scope, pages=Pages(self.most_pages))
        try:
            count.read({at: (0, end) for at, end in until.items()})
            lowest = {at: found for at in until if (found := count.pages.lowest(at)) is not None}
            fits = True
        except Full:
            count = Recount(self.lake, holders, scope)
            lowest, fits = count.lowest(), False
        recorded = recorded.since(self.marks.generations(scope.logs, count.older))
        judge.begun = _lowest([*self.marks.of_logs(scope.logs, _start), recorded.starts()])
        # Marks and record may have forgotten where it all began; then the rows tell, as far as they can.
        starts = {at: min(judge.begun.get(at, end), lowest.get(at, end)) for at, end in until.items()}
        covers = self._covers(starts, recorded)
        if fits:
            self._judge(count, covers, judge, totals)
            return starts, totals
        for last, window, ranges in windows(covers, starts, until, self.most_pages):
            count = Recount(self.lake, holders, scope, last, Pages(sys.maxsize))
            count.read(window)
            self._judge(count, ranges, judge, totals)
        return starts, totals

    def _covers(self, starts: Starts, recorded: Recorded) -> dict[TopicPartition, list[Counted]]:
        return {at: recorded.cover(at, starts[at], end) for at, end in sorted(self.complete.items())}

    def _judge(
        self, count: Recount, ranges: Mapping[TopicPartition, Sequence[Counted]], judge: Judge, totals: Totals
    ) -> None:
        for holder, file in count.missing.values():
            self.inspector.missing(holder.pinned, file.path, file)
        for holder, file, why in count.unread.values():
            self.inspector.unread(holder.pinned, why, file)
        judge.blind = self.inspector.blind
        for at, of in ranges.items():
            judge.judge(at, of, count.pages)
        totals.add(count)

    # -- what was found -----------------------------------------------------------------------------------

    def _tell_duplicates(self, holders: Sequence[Holder], scope: Scope, totals: Totals) -> None:
        runs = [(at, run) for at, of in sorted(totals.again.items()) for run in joined(of)]
        if not runs:
            return
        listed: dict[TopicPartition, list[Run]] = defaultdict(list)
        for at, run in runs[:LISTED]:
            listed[at].append(run)
        places = Recount(self.lake, holders, scope).where(listed)
        for at, (first, last) in runs:
            found = sorted(places.get((at, (first, last)), ()))
            tables = tuple(sorted({table for table, _, _ in found}))
            offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
            told = f"{offsets} of topic {at[0]} partition {at[1]}"
            kind, says = (
                Kind.DUPLICATE,
                f"{told} more than once in {', '.join(tables)}; take the copies out, or roll back",
            )
            if found and all(self.inspector.is_shared(table, scope.until) for table in tables):
                kind = Kind.UNKNOWN
                says = (
                    f"{told} more than once; another pipeline feeds {tables[0]} from there as well, maybe it was that"
                )
            self.findings.add(
                kind,
                says,
                tables=tables,
                topic=at[0],
                partition=at[1],
                first=first,
                last=last,
                count=last - first + 1,
                snapshots=tuple(dict.fromkeys(snapshot for _, snapshot, _ in found)),
                files=tuple(path for _, _, path in found),
            )

    def _tell_silence(self, broker: Broker) -> None:
        for topic, count in broker.unasked.items():
            self.findings.add(
                Kind.UNKNOWN,
                f"whether {count:,} offsets in no table are holes could not be asked: {broker.silent[topic]}",
                topic=topic,
                count=count,
            )


def windows(
    covers: Mapping[TopicPartition, Sequence[Counted]], starts: Starts, until: Offsets, most_pages: int
) -> Iterator[tuple[bool, Window, Mapping[TopicPartition, Sequence[Counted]]]]:
    """So many that each needs about half of that many pages; a partition is cut only between two ranges.

    All partitions move on together, as they did when they were landed: so a file lies in one window or two. Each comes
    with whether it is the last.
    """
    pages = sum((end - starts[at]) // PAGE + 2 for at, end in until.items())
    number = -(-2 * pages // most_pages)
    left = {at: list(reversed(covers.get(at, ()))) for at in until}
    reached = dict(starts)
    for k in range(1, number + 1):
        taken: dict[TopicPartition, list[Counted]] = {}
        window: dict[TopicPartition, tuple[int, int]] = {}
        for at, end in until.items():
            goal = starts[at] + (end - starts[at]) * k // number
            taken[at] = []
            while left[at] and (left[at][-1].end <= goal or k == number):
                taken[at].append(left[at].pop())
            to = end if k == number else taken[at][-1].end if taken[at] else reached[at]
            window[at], reached[at] = (reached[at], to), to
        yield k == number, window, taken


def _acknowledged(removed: Parts, starts: Starts, until: Offsets) -> int:
    """How many offsets, of those that are recounted."""
    count = 0
    for at, parts in removed.items():
        apart = Acknowledged(parts)
        counted = [*map(Part.of, apart.whole), *(part for part in parts if not part.is_whole)]
        inside = (part.within(starts.get(at, 0), until.get(at, 0)) for part in counted)
        count += total({at: [part for part in inside if part]})
    return count


def _start(mark: Mark) -> Offsets:
    return mark.start


def _lowest(maps: Iterable[Offsets]) -> Starts:
    found: Starts = {}
    for at, offset in chain.from_iterable(each.items() for each in maps):
        found[at] = min(offset, found.get(at, offset))
    return found
