"""What the batch record says: of each range what became of its records, and of each landing which commit it was."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse_ingest.errors import TableChanged
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.operations.verify.acknowledged import Part, Parts
from lakehouse_ingest.operations.verify.findings import Findings, Kind
from lakehouse_ingest.operations.verify.offset_sets import PAGE, Run
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.tables import FileMissing, Lake, Pinned

COLUMNS = ("pipeline", "kind", "token", "table", "rows", "snapshot_id", "partitions", "reasons", "note")
OUTCOMES = ("landed", "dead", "filtered", "discarded", "trimmed")
MOST_RANGES = 200_000  # in memory; where there are more, neighbours are taken together

Table = Pinned | None


@dataclass(frozen=True, slots=True)
class Counted:
    """A range of offsets, `end` not in it; without counts it is one that the record does not know."""

    start: int
    end: int
    filtered: int = 0
    discarded: int = 0
    absent: int = 0
    counted: bool = True
    sure: bool = True  # a task that ran twice has counted twice, and the batch's note says so
    generation: int = 0

    @property
    def set_aside(self) -> int:
        """Records that are in no table on purpose."""
        return self.filtered + self.discarded


Ranges = dict[TopicPartition, list[Counted]]


@dataclass
class Recorded:
    """Of one pipeline."""

    ranges: Ranges = field(default_factory=dict)
    filters: bool = False  # whether it has ever left out records on purpose
    adopted: str = ""  # from whom it has taken over, and where
    removed: Parts = field(default_factory=dict)  # what was acknowledged, of the logs that there are now

    def since(self, generations: Mapping[str, int]) -> "Recorded":
        """Without what older generations say of topics whose log was another one then."""
        kept = {
            at: [each for each in ranges if each.generation >= generations.get(at[0], 0)]
            for at, ranges in self.ranges.items()
        }
        return replace(self, ranges={at: ranges for at, ranges in kept.items() if ranges})

    def starts(self) -> Offsets:
        return {at: ranges[0].start for at, ranges in self.ranges.items()}

    def cover(self, at: TopicPartition, start: int, end: int) -> list[Counted]:
        """The ranges between these two, in order; those that the record lacks are without counts."""
        found: list[Counted] = []
        for each in self.ranges.get(at, ()):
            if each.end <= start or each.end > end:
                continue
            if each.start > start:
                found += _unknown(start, each.start)
            found.append(each if each.start >= start else Counted(start, each.end, counted=False))
            start = each.end
        return [*found, *_unknown(start, end)]


def _unknown(start: int, end: int) -> list[Counted]:
    """In pieces, so that windows may be cut between them."""
    return [Counted(at, min(at + PAGE, end), counted=False) for at in range(start, end, PAGE)]


class Reader:
    """Goes through the record once, batch by batch."""

    def __init__(
        self,
        lake: Lake,
        record: Pinned,
        pipeline: str,
        findings: Findings,
        logs: Mapping[str, Collection[str]],
    ) -> None:
        self._lake, self._record, self._pipeline, self._findings = lake, record, pipeline, findings
        self._logs = logs
        self._ranges: Ranges = {}
        self._removed: dict[TopicPartition, list[Part]] = {}
        self._filters = False
        self._adopted = ""
        self._count = 0

    def read(self, tables: Mapping[str, Table], generation: int) -> Recorded:
        landings = Landings(tables, self._pipeline, generation, self._findings)
        for row in rows_of(self._lake, self._record, self._pipeline):
            if row["kind"] == "landing":
                landings.add(row)
            elif row["kind"] == "batch":
                self._add(row)
            elif row["kind"] in ("recover", "adopt"):
                self._give_up(row)
                self._adopted = row["note"] if row["kind"] == "adopt" else self._adopted
            elif row["kind"] == "removed":
                self._acknowledge(row)
        landings.end()
        self._settle()
        return Recorded(self._ranges, self._filters, self._adopted, self._removed)

    def _add(self, row: Mapping[str, Any]) -> None:
        for part in row["partitions"] or ():
            at = (part["topic"], part["partition"])
            adds_up = part["received"] == sum(part[outcome] for outcome in OUTCOMES)
            adds_up = adds_up and part["end"] - part["start"] == part["received"] + part["absent"]
            if not adds_up and not row["note"]:
                self._findings.add(
                    Kind.COUNT,
                    f"the batch record's own numbers of {_named(at)} do not add up in the batch {row['token']};"
                    " somebody changed them, or it is a bug: please report it",
                    tables=(self._record.state.name,),
                    topic=at[0],
                    partition=at[1],
                    first=part["start"],
                    last=part["end"] - 1,
                )
            if part["end"] == part["start"]:
                continue
            self._filters |= bool(part["filtered"] or part["discarded"])
            each = Counted(
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
            self._settle()

    def _give_up(self, row: Mapping[str, Any]) -> None:
        """What a person has said will never be read."""
        for part in row["partitions"] or ():
            start, end, generation = part["start"], part["end"], _order(row["token"])[0]
            if start == end:
                continue
            given_up = Counted(start, end, discarded=end - start, generation=generation)
            self._ranges.setdefault((part["topic"], part["partition"]), []).append(given_up)
            self._count += 1

    def _acknowledge(self, row: Mapping[str, Any]) -> None:
        """What a person has said was removed on purpose; of another log than there is now it says nothing."""
        logs = {log for log, _ in row["reasons"] or ()}
        for part in row["partitions"] or ():
            if not logs.isdisjoint(self._logs.get(part["topic"], ())):
                of = self._removed.setdefault((part["topic"], part["partition"]), [])
                of.append(Part(part["start"], part["end"], part["absent"]))

    def _settle(self) -> None:
        """In order, overlaps told and without counts, neighbours together where there are too many."""
        apart = {at: self._apart(at, ranges) for at, ranges in self._ranges.items()}
        length = sum(ranges[-1].end - ranges[0].start for ranges in apart.values()) // MOST_RANGES
        few = self._count <= MOST_RANGES
        self._ranges = {at: ranges if few else _together(ranges, 2 * length) for at, ranges in apart.items()}
        self._count = sum(map(len, self._ranges.values()))

    def _apart(self, at: TopicPartition, ranges: Sequence[Counted]) -> list[Counted]:
        found: list[Counted] = []
        for each in sorted(ranges, key=lambda each: (each.start, each.end, each.generation)):
            before = found[-1] if found else None
            if before is None or each.start >= before.end:
                found.append(each)
            elif each.generation != before.generation:
                # Read again on purpose; what the newer one says holds.
                if each.generation > before.generation:
                    found[-1] = each
            else:
                self._tell_overlap(at, before, each)
                end = max(before.end, each.end)
                found[-1] = Counted(before.start, end, counted=False, generation=each.generation)
        return found

    def _tell_overlap(self, at: TopicPartition, before: Counted, each: Counted) -> None:
        end = min(before.end, each.end)
        self._findings.add(
            Kind.OVERLAP,
            f"the batch record says twice what became of {_named(at)}; two writers under one name, or somebody added"
            " rows to it",
            tables=(self._record.state.name,),
            topic=at[0],
            partition=at[1],
            first=each.start,
            last=end - 1,
            count=end - each.start,
        )


def rows_of(lake: Lake, record: Pinned, pipeline: str) -> Iterator[dict[str, Any]]:
    for file in lake.files_of(record, ()):
        for batch in lake.batches_of(record, file, COLUMNS):
            yield from (row for row in batch.to_pylist() if row["pipeline"] == pipeline)


def landed_in(lake: Lake, record: Pinned, pipeline: str, table: str) -> dict[TopicPartition, list[Run]]:
    """The ranges of the batches that put rows into a table, be it gone by now; and of those that trimmed some, for of
    these nobody has noted where they were."""
    found: dict[TopicPartition, list[Run]] = {}
    try:
        tokens = {
            row["token"]
            for row in rows_of(lake, record, pipeline)
            if row["kind"] == "landing" and row["table"] == table
        }
        for row in rows_of(lake, record, pipeline):
            for part in row["partitions"] or () if row["kind"] == "batch" else ():
                if part["start"] < part["end"] and (row["token"] in tokens or part["trimmed"]):
                    run = (part["start"], part["end"] - 1)
                    found.setdefault((part["topic"], part["partition"]), []).append(run)
    except FileMissing as missing:
        raise TableChanged(
            f"the batch record refers to a file that its store does not have, {missing.path}; restore it from a copy"
        ) from missing
    return found if tokens else {}


def _together(ranges: Sequence[Counted], length: int) -> list[Counted]:
    found: list[Counted] = []
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


def _kind(each: Counted) -> tuple[object, ...]:
    return each.counted, each.sure, each.generation


class Landings:
    """Whether main of each table still holds the commits that the record names.

    Those of the newest generation: of older ones somebody has decided since, and what they lack now the rows tell.
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
        # One that is gone altogether was expired, as a rule, and one that some branch keeps may stand where others have
        # cut main's history: only where that tells has it been taken back.
        if snapshot in self._main[table] or pinned.state.contains(snapshot) is not False:
            return
        self._back[table] += 1
        only = self._only_range(pinned, snapshot)
        self._findings.add(
            Kind.ROLLED_BACK,
            f"the batch {row['token']} landed in {table} as snapshot {snapshot}, which is not in main's history any"
            " more; roll the table forward to it, or read its range again",
            tables=(table,),
            count=row["rows"],
            snapshots=(snapshot,),
            **only,
        )

    def _only_range(self, pinned: Pinned, snapshot: int) -> dict[str, Any]:
        """Where the commit can still be looked up, and was of one partition."""
        found = pinned.state.snapshots.get(snapshot)
        mark = marks.from_summary(found.summary, self._pipeline) if found else None
        spans = [(at, start, mark.next.get(at, start)) for at, start in mark.start.items()] if mark else []
        moved = [each for each in spans if each[1] < each[2]]
        if len(moved) != 1:
            return {}
        (at, start, end) = moved[0]
        return {"topic": at[0], "partition": at[1], "first": start, "last": end - 1}

    def end(self) -> None:
        """The newest mark stays whatever is expired: a table whose mark is older than its last landing went back."""
        for table, last in self._last.items():
            pinned = self._tables[table]
            assert pinned
            mark = marks.newest((each.summary for each in pinned.state.ancestors()), self._pipeline)
            now = _order(str(mark.token)) if mark else ()
            if now >= last or self._back[table] or (mark is None and not pinned.state.history_complete()):
                continue
            self._findings.add(
                Kind.ROLLED_BACK,
                f"{table} went back behind its last landing, that of the batch {'/'.join(map(str, last))}; roll it"
                " forward, or read its range again",
                tables=(table,),
            )


def _order(token: str) -> tuple[int, ...]:
    """Generation, epoch and batch."""
    return tuple(int(each) for each in token.rsplit("/", 3)[1:])


def _named(at: TopicPartition) -> str:
    return f"topic {at[0]} partition {at[1]}"
