"""The batch log: one row for each batch, and one for each table that it wrote to.

It is a second copy of what happened. The guarantee rests on the marks of the tables.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets, Range, Receipt, Token
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, REASONS, TRIMMED, Tally
from lakehouse_ingest.tables import Column, Partition, Position, TableSpec, batch_size
from lakehouse_ingest.tables.effects import TableEffects

# The kinds of rows.
KINDS = {
    "start": "a start took an epoch",
    "batch": "a batch is complete, with its counts",
    "landing": "what the batch wrote to one table",
    "recover": "a person decided a blocker",
    "adopt": "the stream took over from another program",
    "removed": "a person acknowledged that rows were deleted on purpose",
}
# The fields of `partitions`.
PARTITION = {
    "topic": ("string", "topic"),
    "partition": ("int", "number of the partition"),
    "start": ("long", "first offset"),
    "end": ("long", "offset after the last one"),
    "received": ("long", "records that were read"),
    LANDED: ("long", "records whose row is in its table"),
    "dead": ("long", "records with a fault"),
    FILTERED: ("long", "records left out by `keep_types`"),
    DISCARDED: ("long", 'records with a fault that `on_error = "ignore"` left out'),
    TRIMMED: ("long", "records that an earlier start had written"),
    "absent": ("long", "offsets without a record; in a row of kind removed, the rows that were deleted"),
}
PARTITION_TYPE = f"struct<{', '.join(f'{name}: {kind}' for name, (kind, _) in PARTITION.items())}>"
COUNTS = ("received", LANDED, "dead", FILTERED, DISCARDED, TRIMMED, "absent")
COLUMNS = (
    Column("pipeline", "string", doc="ledger name of the stream"),
    Column("token", "string", doc="the batch: ledger name, generation, epoch and batch, with slashes between"),
    Column("kind", "string", doc="; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())),
    Column("epoch", "long", doc="number of the start"),
    Column("batch", "long", doc="number of the batch within the start; -1: of the start itself"),
    Column("table", "string", doc="the table that the batch wrote to, in a row about one table"),
    Column("started_at", "timestamptz", doc="beginning of the batch"),
    Column("finished_at", "timestamptz", doc="time of this row"),
    Column("rows", "long", doc="rows that were written"),
    Column("files", "long", doc="data files that were written"),
    Column("snapshot_id", "long", doc="the snapshot of that table"),
    Column("schema_id", "int", doc="the schema of the rows that were written to it"),
    Column(
        "partitions",
        f"list<{PARTITION_TYPE}>",
        doc="counts by partition: received = landed + dead + filtered + discarded + trimmed;"
        " end - start = received + absent",
    ),
    Column(
        "reasons",
        "map<string, long>",
        doc="of a batch: records with a fault, by reason; of removed rows: their number by log",
    ),
    Column("note", "string", doc="why counts do not add up, a table does not exist yet, or rows were removed"),
    Column("trace_id", "string", doc="trace of the batch"),
)


def record_spec(table: str, files: FileOptions) -> TableSpec:
    # The table gets a commit every few seconds for years. Each commit lists all manifests, so they must be merged.
    properties = {**files.properties(), "commit.manifest-merge.enabled": "true"}
    return TableSpec(table, COLUMNS, (Partition.parse("day(finished_at)"),), (), properties)


@dataclass(frozen=True)
class LandedBatch:
    """A batch that is complete, with all that the batch log keeps of it."""

    token: Token
    batch: Range
    started_at: dt.datetime
    tally: Tally
    reasons: Mapping[str, int]  # records with a fault by reason, whether dead-lettered or discarded
    receipts: Sequence[Receipt]
    trace: str = ""
    note: str = ""


class BatchLog:
    """Collects rows and writes them every few seconds. `complete` moves with each batch, written or not."""

    def __init__(
        self,
        effects: TableEffects,
        place: Position,
        first: Mark,
        meant: str,
        every: float,
        heads: Mapping[str, marks.Head],
        size: int,
        waiting: int,
    ) -> None:
        self._effects, self._every = effects, every
        self._mark, self._meant, self._heads = first, meant, dict(heads)
        self._rows: list[dict[str, Any]] = []
        self._written = 0.0
        self.place = place
        self.size = size  # how many records a batch may take now
        self._waiting = waiting  # how many records were waiting when this start began

    @property
    def complete(self) -> Offsets:
        return self._mark.complete

    @property
    def overdue(self) -> bool:
        return bool(self._rows) and monotonic() - self._written >= self._every

    def add(self, landed: LandedBatch) -> None:
        batch, *writes = rows_of(landed)
        first = self._mark.token.batch < 0
        self._rows += [batch, *writes]
        last = (landed.token.epoch, landed.token.batch)
        self._heads |= {receipt.table: last for receipt in landed.receipts if receipt.rows}
        following = marks.highest([self._mark.complete, landed.batch.end])
        self._mark = Mark(
            landed.token,
            self._mark.source,
            landed.batch.start,
            following,
            following,
            self._mark.settings,
            landed.trace,
        )
        # Only the batch log knows what was filtered and discarded, so a crash would lose it: write it at once. Offset
        # gaps can wait, because the source can be asked again. The first batch is written at once as well, because the
        # next start must know that this one has committed something.
        if first or self.overdue or any(part[of] for part in batch["partitions"] for of in (FILTERED, DISCARDED)):
            self.write()

    def started(self, token: Token) -> None:
        """Write the first row of an epoch. It saves the start offsets and the settings before any batch runs."""
        now = dt.datetime.now(dt.UTC)
        self._rows.append(_row(token, kind="start", started_at=now, finished_at=now))
        self.write()

    def write(self) -> None:
        if not self._rows:
            return
        pipeline = self._mark.token.pipeline
        extra = {
            f"{keys.SETTINGS}{pipeline}": self._meant,
            f"{keys.HEADS}{pipeline}": marks.heads_text(self._heads),
            f"{keys.SIZE}{pipeline}": batch_size.left_by(self.size, self._waiting),
        }
        # If this commit succeeded but its answer was lost, the retry finds a newer mark than its own and is refused.
        self.place = self._effects.record(self.place, self._rows, self._mark, extra)
        self._rows, self._written = [], monotonic()
        self.place = self._effects.expire(self.place)


def decided(token: Token, kind: str, spans: Mapping[tuple[str, int], tuple[int, int]], note: str) -> dict[str, Any]:
    """A row for a person's decision, with the offsets that will never be read because of it."""
    now = dt.datetime.now(dt.UTC)
    partitions = [
        {
            **dict.fromkeys(COUNTS, 0),
            "topic": at[0],
            "partition": at[1],
            "start": start,
            "end": end,
            "absent": end - start,
        }
        for at, (start, end) in sorted(spans.items())
    ]
    return _row(token, kind=kind, started_at=now, finished_at=now, partitions=partitions, note=note)


def acknowledged(
    token: Token, parts: Mapping[tuple[str, int], Sequence[tuple[int, int, int]]], logs: Mapping[str, int], reason: str
) -> dict[str, Any]:
    """A row for rows that a person deleted on purpose. `parts` holds the start, end and count of each range."""
    now = dt.datetime.now(dt.UTC)
    partitions = [
        {**dict.fromkeys(COUNTS, 0), "topic": at[0], "partition": at[1], "start": start, "end": end, "absent": count}
        for at, of in sorted(parts.items())
        for start, end, count in of
    ]
    return _row(
        token,
        kind="removed",
        started_at=now,
        finished_at=now,
        rows=sum(logs.values()),
        partitions=partitions,
        reasons=list(logs.items()),
        note=reason,
    )


def rows_of(landed: LandedBatch) -> list[dict[str, Any]]:
    known = {
        "started_at": landed.started_at,
        "finished_at": dt.datetime.now(dt.UTC),
        "trace_id": landed.trace or None,
    }
    batch = _row(
        landed.token,
        kind="batch",
        rows=sum(receipt.rows for receipt in landed.receipts),
        files=sum(receipt.files for receipt in landed.receipts),
        partitions=[_partition(at, landed) for at in sorted(landed.batch.end)],
        reasons=list(landed.reasons.items()),
        note=landed.note or None,
        **known,
    )
    writes = [
        _row(
            landed.token,
            kind="landing",
            table=receipt.table,
            rows=receipt.rows,
            files=receipt.files,
            snapshot_id=receipt.snapshot,
            schema_id=receipt.schema,
            **known,
        )
        for receipt in landed.receipts
        if receipt.rows
    ]
    return [batch, *writes]


def _row(token: Token, **values: Any) -> dict[str, Any]:
    known: Mapping[str, Any] = {
        "pipeline": token.pipeline,
        "token": str(token),
        "epoch": token.epoch,
        "batch": token.batch,
    }
    return {**{column.name: None for column in COLUMNS}, **known, **values}


def _partition(at: tuple[str, int], landed: LandedBatch) -> dict[str, Any]:
    counts = landed.tally.counts.get(at, {})
    start, end = landed.batch.start[at], landed.batch.end[at]
    received = sum(counts.values())
    return {
        "topic": at[0],
        "partition": at[1],
        "start": start,
        "end": end,
        "received": received,
        "landed": counts.get(LANDED, 0),
        "dead": sum(counts.get(reason, 0) for reason in REASONS),
        "filtered": counts.get(FILTERED, 0),
        "discarded": counts.get(DISCARDED, 0),
        "trimmed": counts.get(TRIMMED, 0),
        "absent": end - start - received,
    }
