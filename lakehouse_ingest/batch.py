"""One micro-batch down the street, with every durable effect in its order:

the table and the dead letters, each a landing of its own under the same token; then the batch record; then
the group offsets, which nothing ever reads back. A crash between any two is settled by the next start from
what the tables hold.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest import accounting, dead_letters, ledger
from lakehouse_ingest.accounting import LANDED, Tally
from lakehouse_ingest.batch_record import BatchRecord, Landed
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.formats import json_object
from lakehouse_ingest.ledger import Mark, SourceIdentity
from lakehouse_ingest.observing import Watch, carried
from lakehouse_ingest.planning import Planned
from lakehouse_ingest.records import FAULT, RECORD, Offsets, Range, Reason, Receipt, Token
from lakehouse_ingest.shaping import faulty, shape
from lakehouse_ingest.sources.kafka import envelope
from lakehouse_ingest.table_keeper import Landing, TableKeeper
from lakehouse_ingest.tables import Lake, Place
from lakehouse_ingest.writers.iceberg import stage


@dataclass
class Street:
    """What one start of one stream has at hand; called with each batch."""

    name: str
    token: Token  # with the batch's number replaced
    lake: Lake
    watch: Watch
    source: SourceIdentity
    settings_hash: str
    offset_log: Path
    start: Offsets
    record: BatchRecord
    dead: Landing
    table: TableKeeper
    acknowledge: Callable[[Offsets], None]
    tidy: Callable[[Place], Place]  # expires old snapshots when they are many
    writers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "writer"))

    def run(self, rows: DataFrame, number: int) -> Range:
        """Lands one batch; returns its range once everything of it is durable."""
        started_at = dt.datetime.now(dt.UTC)
        with self.watch.batch(self.name, number) as span:
            batch = self._range(number)
            token = Token(self.token.pipeline, self.token.generation, self.token.epoch, number)
            records = envelope(rows)
            if looks := self.table.looks_at_records:  # more than one pass: from memory, not from the broker
                records = records.persist()
            try:
                with self.watch.stage("plan", self.name):
                    planned, landing = self.table.plan(records)
                tally, receipts = self._land(records, batch, token, planned, landing, span.trace_id or "")
            finally:
                if looks:
                    records.unpersist()
            with self.watch.stage("record", self.name):
                self.record.add(Landed(token, batch, started_at, tally, receipts, span.trace_id or ""))
            self.acknowledge(batch.end)
            span.set(received=tally.received, landed=tally.total(LANDED), dead=sum(tally.dead.values()))
            self._tell(number, started_at, tally, receipts)
        return batch

    def _range(self, number: int) -> Range:
        entry = (self.offset_log / str(number)).read_text(encoding="utf-8")
        before = (self.offset_log / str(number - 1)).read_text(encoding="utf-8") if number else None
        return ledger.batch_range(entry, before, self.start)

    def _land(
        self,
        records: DataFrame,
        batch: Range,
        token: Token,
        planned: Planned,
        landing: Landing | None,
        trace: str,
    ) -> tuple[Tally, list[Receipt]]:
        rows = shape(json_object.decode(records, planned.plan.columns), planned.plan)
        if not planned.settled:
            nothing_known = faulty(
                Reason.MISSING, F.lit("no field or no event time has been seen in this topic yet"), "plan"
            )
            rows = rows.withColumn(FAULT, F.coalesce(FAULT, nothing_known))
        tally: Tally | None = None
        receipts: list[Receipt] = []
        if landing:
            tally, receipt = self._land_rows(landing, rows, batch, token, trace)
            receipts.append(receipt)
        # A second action only when there were faults; when the table held the whole batch nothing has counted them yet.
        if tally is None or tally.dead:
            dead_tally, receipt = self._land_dead(rows, batch, token, trace)
            tally = tally or dead_tally
            receipts.append(receipt)
        return tally, receipts

    def _land_rows(
        self, landing: Landing, rows: DataFrame, batch: Range, token: Token, trace: str
    ) -> tuple[Tally | None, Receipt]:
        # Dead letters land after the table: what they hold, it holds as well or has nothing of.
        left = batch.after(ledger.highest([landing.place.held, self.dead.place.held]))
        if not len(left):
            return None, Receipt(landing.place.table)
        trimmed = accounting.trimmed_by(left, batch)
        observed, observation = accounting.counted(rows, batch, trimmed)
        sound = observed.where(F.col(FAULT).isNull() & ~trimmed).drop(RECORD, FAULT)
        return self._commit(
            landing,
            sound,
            batch,
            token,
            trace,
            lambda: accounting.tally(observation.get, batch),
            lambda tally: tally.total(LANDED),
        )

    def _land_dead(self, rows: DataFrame, batch: Range, token: Token, trace: str) -> tuple[Tally, Receipt]:
        left = batch.after(self.dead.place.held)
        trimmed = accounting.trimmed_by(left, batch)
        observed, observation = accounting.counted(rows, batch, F.lit(True))
        letters = dead_letters.letters(observed.where(~trimmed), token.pipeline)
        tally, receipt = self._commit(
            self.dead, letters, batch, token, trace, lambda: accounting.tally(observation.get, batch), None
        )
        return tally, receipt

    def _commit(
        self,
        landing: Landing,
        rows: DataFrame,
        batch: Range,
        token: Token,
        trace: str,
        counted: Callable[[], Tally],
        expected: Callable[[Tally], int] | None,
    ) -> tuple[Tally, Receipt]:
        """Stage, count, publish. In a thread of its own: `stop()` interrupts an append on the batch's thread."""
        return self.writers.submit(
            carried(self._stage_and_publish), landing, rows, batch, token, trace, counted, expected
        ).result()

    def _stage_and_publish(
        self,
        landing: Landing,
        rows: DataFrame,
        batch: Range,
        token: Token,
        trace: str,
        counted: Callable[[], Tally],
        expected: Callable[[Tally], int] | None,
    ) -> tuple[Tally, Receipt]:
        place = landing.place
        mark = self._mark(place, batch, token, trace)
        with self.watch.stage("write", self.name, table=place.table):
            stage(rows, place.table, place.branch, ledger.to_summary(mark, place.carried), landing.files, batch)
        tally = counted()
        staged = self.lake.staged(place, str(token))
        if staged is None:
            raise TryAgain(f"Spark reported a commit to {place.table} that the catalog does not show")
        added = int(staged.summary.get("added-records", 0))
        if expected is not None and added != expected(tally):
            # A task that ran twice counts twice; files count once. What is committed is what the files hold.
            self.watch.log.warning("counts_differ", table=place.table, counted=expected(tally), written=added)
        if not added:
            return tally, Receipt(place.table)  # an empty snapshot stays on our branch, unseen
        with self.watch.commit(place.table):
            landing.place = self.lake.publish(place, staged.id, mark)
        landing.place = self.tidy(landing.place)
        files = int(staged.summary.get("added-data-files", 0))
        return tally, Receipt(place.table, landing.place.main, added, files, landing.place.schema)

    def _mark(self, place: Place, batch: Range, token: Token, trace: str) -> Mark:
        before: Mapping[tuple[str, int], int] = place.mark.complete if place.mark else {}
        return Mark(
            token,
            self.source,
            batch.start,
            ledger.highest([place.held, batch.end]),
            # Batches follow one another: all before this one is done in every table.
            ledger.highest([before, batch.start]),
            self.settings_hash,
            trace,
        )

    def _tell(self, number: int, started_at: dt.datetime, tally: Tally, receipts: list[Receipt]) -> None:
        self.watch.events.batch_landed(
            stream=self.name,
            batch=number,
            received=tally.received,
            duration_s=(dt.datetime.now(dt.UTC) - started_at).total_seconds(),
            landed={each.table: each.rows for each in receipts if each.rows and each.table != self.dead.place.table},
            files={receipt.table: receipt.files for receipt in receipts if receipt.files},
            dead=tally.dead,
            trimmed=tally.total(accounting.TRIMMED),
            freshness_s=max(0.0, time() - tally.oldest_ms / 1000) if tally.oldest_ms else None,
        )
