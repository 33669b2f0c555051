"""What the batch log says: the counts of each range of offsets, and the snapshots that its batches committed."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse_ingest.errors import TableChanged
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.operations.verify.findings import FindingKind, Findings
from lakehouse_ingest.operations.verify.missing_ranges import MissingRange, RangesByPartition
from lakehouse_ingest.operations.verify.offset_sets import Run
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.tables import FileMissing, Pinned, PipelineTables

COLUMNS = ("pipeline", "kind", "token", "table", "rows", "snapshot_id", "partitions", "reasons", "note")
OUTCOMES = ("landed", "dead", "filtered", "discarded", "trimmed")
MOST_RANGES = 200_000  # in memory; if there are more, neighbours are joined
PIECE = 1 << 18  # offsets; losses are listed piece by piece, so a longer unknown range lists more of them

Table = Pinned | None


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A range of offsets, `end` not in it. Without counts, the batch log does not know the range."""

    start: int
    end: int
    filtered: int = 0
    discarded: int = 0
    absent: int = 0
    counted: bool = True
    sure: bool = True  # the note of a batch says if a task ran twice, and so counted its records twice
    generation: int = 0

    @property
    def left_out(self) -> int:
        """Records that are in no table on purpose."""
        return self.filtered + self.discarded


Ranges = dict[TopicPartition, list[RecordedRange]]


@dataclass
class RecordedBatches:
    """What the batch log says of one stream."""

    ranges: Ranges = field(default_factory=dict)
    filters: bool = False  # whether it has ever left out records on purpose
    adopted: str = ""  # the writer that it took over from, and where
    removed: RangesByPartition = field(default_factory=dict)  # acknowledged, of the topics' present logs

    def since(self, generations: Mapping[str, int]) -> "RecordedBatches":
        """Without what older generations say about topics that had another log then."""
        kept = {
            at: [each for each in ranges if each.generation >= generations.get(at[0], 0)]
            for at, ranges in self.ranges.items()
        }
        return replace(self, ranges={at: ranges for at, ranges in kept.items() if ranges})

    def starts(self) -> Offsets:
        return {at: ranges[0].start for at, ranges in self.ranges.items()}

    def cover(self, at: TopicPartition, start: int, end: int) -> list[RecordedRange]:
        """The ranges between these two offsets, in order. Ranges that the batch log lacks have no counts."""
        found: list[RecordedRange] = []
        for each in self.ranges.get(at, ()):
            if each.end <= start or each.end > end:
                continue
            if each.start > start:
                found += _unknown(start, each.start)
            found.append(each if each.start >= start else RecordedRange(start, each.end, counted=False))
            start = each.end
        return [*found, *_unknown(start, end)]


def _unknown(start: int, end: int) -> list[RecordedRange]:
    return [RecordedRange(at, min(at + PIECE, end), counted=False) for at in range(start, end, PIECE)]


class BatchLogReader:
    """Goes through the batch log once, row by row."""

    def __init__(
        self,
        lake: PipelineTables,
        batch_log: Pinned,
        pipeline: str,
        findings: Findings,
        logs: Mapping[str, Collection[str]],
    ) -> None:
        self._lake, self._batch_log, self._pipeline, self._findings = lake, batch_log, pipeline, findings
        self._logs = logs
        self._ranges: Ranges = {}
        self._removed: dict[TopicPartition, list[MissingRange]] = {}
        self._filters = False
        self._adopted = ""
        self._count = 0

    def read(self, tables: Mapping[str, Table], generation: int) -> RecordedBatches:
        commits = RecordedCommits(tables, self._pipeline, generation, self._findings)
        for row in rows_of(self._lake, self._batch_log, self._pipeline):
            if row["kind"] == "landing":
                commits.add(row)
            elif row["kind"] == "batch":
                self._add(row)
            elif row["kind"] in ("recover", "adopt"):
                self._give_up(row)
                self._adopted = row["note"] if row["kind"] == "adopt" else self._adopted
            elif row["kind"] == "removed":
                self._acknowledge(row)
        commits.end()
        self._sort_out()
        return RecordedBatches(self._ranges, self._filters, self._adopted, self._removed)

    def _add(self, row: Mapping[str, Any]) -> None:
        for part in row["partitions"] or ():
            at = (part["topic"], part["partition"])
            adds_up = part["received"] == sum(part[outcome] for outcome in OUTCOMES)
            adds_up = adds_up and part["end"] - part["start"] == part["received"] + part["absent"]
            if not adds_up and not row["note"]:
                self._findings.add(
                    FindingKind.COUNT,
                    f"the batch log's own numbers of {_named(at)} do not add up in the batch {row['token']};"
                    " somebody changed them, or it is a bug: please report it",
                    tables=(self._batch_log.state.name,),
                    topic=at[0],
                    partition=at[1],
                    first=part["start"],
                    last=part["end"] - 1,
                )
            if part["end"] == part["start"]:
                continue
            self._filters |= bool(part["filtered"] or part["discarded"])
            each = RecordedRange(
                part["start"],
                part["end"],
                part["filtered"],
                part["discarded"],
                part["absent"],
                counted=adds_up and part["absent"] >= 0,
                sure=not row["note"],
                generation=_order(row["token"])[0],
            )
            self._ranges.setdefault(at, []).append(each)
            self._count += 1
        if self._count > 2 * MOST_RANGES:
            self._sort_out()

    def _give_up(self, row: Mapping[str, Any]) -> None:
        """Offsets that will never be read, as a person has decided."""
        for part in row["partitions"] or ():
            start, end, generation = part["start"], part["end"], _order(row["token"])[0]
            if start == end:
                continue
            given_up = RecordedRange(start, end, discarded=end - start, generation=generation)
            self._ranges.setdefault((part["topic"], part["partition"]), []).append(given_up)
            self._count += 1

    def _acknowledge(self, row: Mapping[str, Any]) -> None:
        """Rows that were removed on purpose, as a person has said. It counts only for the topics' present logs."""
        logs = {log for log, _ in row["reasons"] or ()}
        for part in row["partitions"] or ():
            if not logs.isdisjoint(self._logs.get(part["topic"], ())):
                of = self._removed.setdefault((part["topic"], part["partition"]), [])
                of.append(MissingRange(part["start"], part["end"], part["absent"]))

    def _sort_out(self) -> None:
        """Puts the ranges in order, reports overlaps, and joins neighbours if there are too many ranges."""
        apart = {at: self._apart(at, ranges) for at, ranges in self._ranges.items()}
        length = sum(ranges[-1].end - ranges[0].start for ranges in apart.values()) // MOST_RANGES
        few = self._count <= MOST_RANGES
        self._ranges = {at: ranges if few else _together(ranges, 2 * length) for at, ranges in apart.items()}
        self._count = sum(map(len, self._ranges.values()))

    def _apart(self, at: TopicPartition, ranges: Sequence[RecordedRange]) -> list[RecordedRange]:
        found: list[RecordedRange] = []
        for each in sorted(ranges, key=lambda each: (each.start, each.end, each.generation)):
            before = found[-1] if found else None
            if before is None or each.start >= before.end:
                found.append(each)
            elif each.generation != before.generation:
                # It was read again on purpose, so the newer counts hold.
                if each.generation > before.generation:
                    found[-1] = each
            else:
                self._report_overlap(at, before, each)
                end = max(before.end, each.end)
                found[-1] = RecordedRange(before.start, end, counted=False, generation=each.generation)
        return found

    def _report_overlap(self, at: TopicPartition, before: RecordedRange, each: RecordedRange) -> None:
        end = min(before.end, each.end)
        self._findings.add(
            FindingKind.OVERLAP,
            f"the batch log counts the same offsets of {_named(at)} twice; two writers had one name, or somebody added"
            " rows to it",
            tables=(self._batch_log.state.name,),
            topic=at[0],
            partition=at[1],
            first=each.start,
            last=end - 1,
            count=end - each.start,
        )


def rows_of(lake: PipelineTables, batch_log: Pinned, pipeline: str) -> Iterator[dict[str, Any]]:
    for file in lake.files_of(batch_log, ()):
        for batch in lake.batches_of(batch_log, file, COLUMNS):
            yield from (row for row in batch.to_pylist() if row["pipeline"] == pipeline)


def ranges_committed_to(
    lake: PipelineTables, batch_log: Pinned, pipeline: str, table: str
) -> dict[TopicPartition, list[Run]]:
    """The ranges of the batches that committed rows to a table, which may be gone by now.

    Batches that trimmed records count as well: the batch log does not say in which table the trimmed records were.
    """
    found: dict[TopicPartition, list[Run]] = {}
    try:
        tokens = {
            row["token"]
            for row in rows_of(lake, batch_log, pipeline)
            if row["kind"] == "landing" and row["table"] == table
        }
        for row in rows_of(lake, batch_log, pipeline):
            for part in row["partitions"] or () if row["kind"] == "batch" else ():
                if part["start"] < part["end"] and (row["token"] in tokens or part["trimmed"]):
                    run = (part["start"], part["end"] - 1)
                    found.setdefault((part["topic"], part["partition"]), []).append(run)
    except FileMissing as missing:
        raise TableChanged(
            f"the batch log refers to a file that its store does not have, {missing.path}; restore it from a copy"
        ) from missing
    return found if tokens else {}


def _together(ranges: Sequence[RecordedRange], length: int) -> list[RecordedRange]:
    found: list[RecordedRange] = []
    for each in ranges:
        before = found[-1] if found else None
        if before and before.end == each.start and _kind(before) == _kind(each) and each.end - before.start <= length:
            found[-1] = replace(
                before,
                end=each.end,
                filtered=before.filtered + each.filtered,
                discarded=before.discarded + each.discarded,
                absent=before.absent + each.absent,
            )
        else:
            found.append(each)
    return found


def _kind(each: RecordedRange) -> tuple[object, ...]:
    return each.counted, each.sure, each.generation


class RecordedCommits:
    """Whether main of each table still holds the commits that the batch log names.

    Only commits of the newest generation are checked. A person has decided about the older ones since, and what they
    lack now is seen in the rows.
    """

    def __init__(self, tables: Mapping[str, Table], pipeline: str, generation: int, findings: Findings) -> None:
        self._tables, self._pipeline, self._generation, self._findings = tables, pipeline, generation, findings
        self._main = {name: {each.id for each in pinned.state.ancestors()} for name, pinned in tables.items() if pinned}
        self._last: dict[str, tuple[int, ...]] = {}
        self._back: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        table, snapshot = row["table"], row["snapshot_id"]
        pinned = self._tables.get(table)
        if pinned is None or _order(row["token"])[0] < self._generation:
            return
        self._last[table] = max(self._last.get(table, ()), _order(row["token"]))
        # A snapshot that is gone was usually expired. One that only a branch keeps may be older than main's history,
        # which others have cut. So it was rolled back only if the history of main reaches far enough to say so.
        if snapshot in self._main[table] or pinned.state.contains(snapshot) is not False:
            return
        self._back[table] += 1
        only = self._only_range(pinned, snapshot)
        self._findings.add(
            FindingKind.ROLLED_BACK,
            f"the batch {row['token']} was committed to {table} as snapshot {snapshot}, which main's history has no"
            " more; roll the table forward to it, or read its range again",
            tables=(table,),
            count=row["rows"],
            snapshots=(snapshot,),
            **only,
        )

    def _only_range(self, pinned: Pinned, snapshot: int) -> dict[str, Any]:
        """The range of the commit, if it can still be looked up and had records of one partition only."""
        found = pinned.state.snapshots.get(snapshot)
        mark = marks.from_summary(found.summary, self._pipeline) if found else None
        spans = [(at, start, mark.next.get(at, start)) for at, start in mark.start.items()] if mark else []
        moved = [each for each in spans if each[1] < each[2]]
        if len(moved) != 1:
            return {}
        (at, start, end) = moved[0]
        return {"topic": at[0], "partition": at[1], "first": start, "last": end - 1}

    def end(self) -> None:
        """Expiry keeps the newest mark, so a table whose mark is older than its last commit was rolled back."""
        for table, last in self._last.items():
            pinned = self._tables[table]
            assert pinned
            mark = marks.newest((each.summary for each in pinned.state.ancestors()), self._pipeline)
            now = _order(str(mark.token)) if mark else ()
            if now >= last or self._back[table] or (mark is None and not pinned.state.history_complete()):
                continue
            self._findings.add(
                FindingKind.ROLLED_BACK,
                f"{table} was rolled back behind its last commit, that of the batch {'/'.join(map(str, last))}; roll it"
                " forward, or read its range again",
                tables=(table,),
            )


def _order(token: str) -> tuple[int, ...]:
    """Generation, epoch and batch."""
    return tuple(int(each) for each in token.rsplit("/", 3)[1:])


def _named(at: TopicPartition) -> str:
    return f"topic {at[0]} partition {at[1]}"
