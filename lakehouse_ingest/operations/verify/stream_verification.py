"""One stream, verified: each offset from its lowest start to where all batches are complete, in exactly one place.

The pipeline may be running meanwhile. So first the marks say how far all batches are complete. Then each table is
pinned to one head, which holds all of that. Rows beyond it are checked for duplicates only.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.findings import LISTED, FindingKind, Findings, StreamVerdict
from lakehouse_ingest.operations.verify.missing_ranges import Acknowledgements, MissingRange, RangesByPartition, total
from lakehouse_ingest.operations.verify.offset_sets import Run
from lakehouse_ingest.operations.verify.outcomes import CommitHistory, Judge
from lakehouse_ingest.operations.verify.recorded_batches import BatchLogReader, RecordedBatches
from lakehouse_ingest.operations.verify.row_scan import FileAt, RowScan, ScanScope
from lakehouse_ingest.operations.verify.source_lookup import OpenSource, SourceLookup
from lakehouse_ingest.operations.verify.stream_marks import StreamMarks
from lakehouse_ingest.operations.verify.table_heads import HeadInspector, TableNames, heads
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.tables import FileMissing, PipelineTables

MOST_RUNS = 10_000  # of duplicates in one partition that are reported

Starts = dict[TopicPartition, int]


@dataclass(frozen=True)
class Verification:
    """The verdict, and what it takes to acknowledge what is lost."""

    verdict: StreamVerdict
    lost: RangesByPartition
    logs: Mapping[str, Collection[str]]  # by topic, as the rows name them
    generation: int
    epoch: int


def verify_stream(
    lake: PipelineTables, pipeline: str, names: TableNames, open_source: OpenSource, *, filters: bool
) -> Verification | None:
    """None if this stream has left no mark. `filters`: whether the settings leave records out on purpose."""
    first = StreamMarks.of(heads(lake, names), pipeline)
    if not first.all:
        return None
    there, findings = heads(lake, names), Findings()
    inspector = HeadInspector(lake, pipeline, names, there, findings)
    # What was complete before is in every head. What these heads call complete may have come between two of them.
    verifier = StreamVerifier(lake, pipeline, first.complete(), StreamMarks.of(there, pipeline), inspector, findings)
    return verifier.verified(open_source, filters=filters)


@dataclass
class StreamVerifier:
    """Puts the rows, the batch log and the source side by side."""

    lake: PipelineTables
    pipeline: str
    complete: Offsets
    marks: StreamMarks
    inspector: HeadInspector
    findings: Findings

    def verified(self, open_source: OpenSource, *, filters: bool) -> Verification:
        logs = self.marks.logs()
        scan = RowScan(self.lake, self.inspector.tables(), self._scope(logs))
        recorded = self._recorded(logs)
        source = SourceLookup(open_source, self.pipeline, ledger.ids_of(self.marks.all))
        history = CommitHistory(self.inspector.heads.there, self.pipeline)
        judge = Judge(source, history, self.findings, filters or recorded.filters, removed=recorded.removed)
        try:
            starts = self._count(scan, recorded, judge)
        finally:
            source.close()
        self._report_duplicates(scan)
        self._report_silence(source)
        verdict = self._verdict(scan, starts, judge, recorded)
        epoch = max(mark.token.epoch for mark in self.marks.all)
        return Verification(verdict, judge.lost, logs, self.marks.generation, epoch)

    def _scope(self, logs: Mapping[str, Collection[str]]) -> ScanScope:
        until = ledger.highest([self.complete, *self.marks.of_logs(logs, Mark.held)])
        return ScanScope(self.complete, until, logs)

    def _recorded(self, logs: Mapping[str, Collection[str]]) -> RecordedBatches:
        batch_log = self.inspector.heads.batch_log
        if batch_log is None:
            return RecordedBatches()
        try:
            reader = BatchLogReader(self.lake, batch_log, self.pipeline, self.findings, logs)
            return reader.read(self.inspector.heads.tables, self.marks.generation)
        except FileMissing as missing:
            self.inspector.missing(batch_log, missing.path)
        except NeedsOperator as failure:
            self.inspector.unread(batch_log, str(failure))
        return RecordedBatches()

    def _count(self, scan: RowScan, recorded: RecordedBatches, judge: Judge) -> Starts:
        """Reads all rows, then finds the outcome of each offset that no row has. Gives where each partition began."""
        scan.read()
        for table, file in scan.missing.values():
            self.inspector.missing(table.pinned, file.path, file)
        for table, file, why in scan.unread.values():
            self.inspector.unread(table.pinned, why, file)
        judge.blind = self.inspector.blind
        logs, until = scan.scope.logs, scan.scope.until
        recorded = recorded.since(self.marks.generations(logs, scan.older))
        judge.begun = _lowest([*self.marks.of_logs(logs, _start), recorded.starts()])
        # If the marks and the batch log no longer say where a partition began, its lowest row is the best answer.
        lowest = {at: found for at in until if (found := scan.held.lowest(at)) is not None}
        starts = {at: min(judge.begun.get(at, end), lowest.get(at, end)) for at, end in until.items()}
        for at, end in sorted(self.complete.items()):
            judge.judge(at, recorded.cover(at, starts[at], end), scan.held)
        return starts

    def _verdict(self, scan: RowScan, starts: Starts, judge: Judge, recorded: RecordedBatches) -> StreamVerdict:
        dead = self.inspector.names.dead
        acknowledged = _acknowledged(recorded.removed, starts, self.complete)
        return StreamVerdict(
            pipeline=self.pipeline,
            partitions=len(self.complete),
            offsets=sum(max(0, end - starts[at]) for at, end in self.complete.items()),
            tables={name: count for name, count in sorted(scan.rows.items()) if count and name != dead},
            dead=scan.rows[dead],
            **{name: judge.tally[name] for name in judge.OUTCOMES},
            # An offset whose outcome is unknown may be one that was acknowledged.
            back=0 if judge.tally["unknown"] else max(0, acknowledged - judge.tally["removed"]),
            duplicates=scan.extra,
            beyond=scan.beyond,
            older={topic: count for topic, count in scan.older.items() if count},
            findings=self.findings.listed,
            unlisted=self.findings.unlisted,
            adopted=recorded.adopted,
        )

    # -- findings -----------------------------------------------------------------------------------------

    def _report_duplicates(self, scan: RowScan) -> None:
        runs = [(at, run) for at, of in scan.held.repeated() for run in islice(of, MOST_RUNS)]
        if not runs:
            return
        listed: dict[TopicPartition, list[Run]] = defaultdict(list)
        for at, run in runs[:LISTED]:
            listed[at].append(run)
        places = RowScan(self.lake, scan.tables, scan.scope).where(listed)
        for at, run in runs:
            self._report_duplicate(at, run, sorted(places.get((at, run), ())), scan.scope.until)

    def _report_duplicate(self, at: TopicPartition, run: Run, places: Sequence[FileAt], until: Offsets) -> None:
        first, last = run
        tables = tuple(sorted({table for table, _, _ in places}))
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        where = f"{offsets} of topic {at[0]} partition {at[1]}"
        kind = FindingKind.DUPLICATE
        says = f"{where} more than once in {', '.join(tables)}; delete the copies, or roll back"
        if places and all(self.inspector.is_shared(table, until) for table in tables):
            kind = FindingKind.UNKNOWN
            says = f"{where} more than once; another pipeline also feeds {tables[0]} from there, and may have done it"
        self.findings.add(
            kind,
            says,
            tables=tables,
            topic=at[0],
            partition=at[1],
            first=first,
            last=last,
            count=last - first + 1,
            snapshots=tuple(dict.fromkeys(snapshot for _, snapshot, _ in places)),
            files=tuple(path for _, _, path in places),
        )

    def _report_silence(self, source: SourceLookup) -> None:
        for topic, count in source.unasked.items():
            self.findings.add(
                FindingKind.UNKNOWN,
                f"whether {count:,} offsets in no table are offset gaps could not be asked: {source.silent[topic]}",
                topic=topic,
                count=count,
            )


def _acknowledged(removed: RangesByPartition, starts: Starts, until: Offsets) -> int:
    """How many of the verified offsets were acknowledged as removed."""
    count = 0
    for at, ranges in removed.items():
        whole = map(MissingRange.of, Acknowledgements(ranges).whole)
        counted = [*whole, *(each for each in ranges if not each.is_whole)]
        inside = (each.within(starts.get(at, 0), until.get(at, 0)) for each in counted)
        count += total({at: [each for each in inside if each]})
    return count


def _start(mark: Mark) -> Offsets:
    return mark.start


def _lowest(maps: Iterable[Offsets]) -> Starts:
    found: Starts = {}
    for at, offset in chain.from_iterable(each.items() for each in maps):
        found[at] = min(offset, found.get(at, offset))
    return found
