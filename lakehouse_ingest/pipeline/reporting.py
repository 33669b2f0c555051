"""Report a batch after each step: its event, the gauges of its tables, and its span."""

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from time import monotonic, time

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.observe.events import BatchLanded, ManyFiles, MetadataNotMeasured
from lakehouse_ingest.observe.watch import Span, Watch
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, TRIMMED
from lakehouse_ingest.tables import Position
from lakehouse_ingest.tables.batch_log import LandedBatch

MANY_FILES = 1_000  # in one write: a batch has this many only if partitions are too small
MEASURED_EVERY_S = 60.0
LINKS = 32  # the most links from a batch to the spans that sent its records


@dataclass(frozen=True)
class Written:
    """What a batch wrote to one table."""

    table: str
    rows: int
    files: int
    size: int  # bytes
    partitions: int  # how many partitions these files are in


@dataclass
class BatchReports:
    """The reports of one stream, for one start."""

    stream: str
    watch: Watch
    dead_letters: str  # the name of the dead-letter table, whose rows are not counted as landed
    metadata_size: Callable[[str], int]
    newest: float | None = None  # the broker's time of the newest record of the last batch
    _measured: dict[str, float] = field(default_factory=dict)  # when each table's metadata was last measured

    def written(self, rows: Written) -> None:
        if rows.files > MANY_FILES:
            self.watch.emit(
                ManyFiles(
                    table=rows.table,
                    files=rows.files,
                    rows=rows.rows,
                    advice="`partition_by` gives nearly every row its own partition: use bucket(16, column)",
                )
            )

    def published(self, rows: Written, place: Position) -> None:
        self.watch.table(
            place.table,
            rows=place.rows,
            files=place.files,
            size=place.size,
            snapshots=place.snapshots,
            partitions=rows.partitions,
            snapshot=place.main,
        )

    def landed(self, landed: LandedBatch, span: Span) -> None:
        tally = landed.tally
        count = {"messaging.batch.message_count": tally.received}
        span.set(received=tally.received, landed=tally.total(LANDED), dead=sum(landed.reasons.values()), **count)
        for sent_in in sorted(tally.traces)[:LINKS]:
            span.link(sent_in, begun_by="producer")
        self.newest = tally.newest_ms / 1000 if tally.newest_ms else None
        self.watch.emit(
            BatchLanded(
                stream=self.stream,
                batch=landed.token.batch,
                received=tally.received,
                duration_s=(dt.datetime.now(dt.UTC) - landed.started_at).total_seconds(),
                landed={each.table: each.rows for each in landed.receipts if each.table != self.dead_letters},
                files={receipt.table: receipt.files for receipt in landed.receipts},
                written={receipt.table: receipt.size for receipt in landed.receipts},
                dead=tally.dead,
                trimmed=tally.total(TRIMMED),
                filtered=tally.total(FILTERED),
                discarded=landed.reasons if tally.total(DISCARDED) else {},
                freshness_s=max(0.0, time() - tally.oldest_ms / 1000) if tally.oldest_ms else None,
                event_age_s=time() - tally.event_ms / 1000 if tally.event_ms is not None else None,
                size=tally.bytes,
                note=landed.note,
            )
        )

    def due(self, tables: Iterable[str]) -> list[str]:
        """The tables to measure now. Each measurement costs a request to the catalog and one to the file store."""
        if not self.watch.measures:
            return []
        now = monotonic()
        due = [table for table in tables if now - self._measured.get(table, -inf) >= MEASURED_EVERY_S]
        self._measured |= dict.fromkeys(due, now)
        return due

    def measure(self, table: str) -> None:
        try:
            self.watch.gauge("lakehouse.table.metadata", self.metadata_size(table), table=table)
        except LakehouseError as failure:
            self.watch.emit(MetadataNotMeasured(table=table, error=str(failure)))
