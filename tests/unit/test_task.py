"""What a task keeps in memory, and what Spark's query is told while it ends."""

import json
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog import CatalogClient, Column, TableSpec, create_table, ensure_namespace, table_files
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline import task
from lakehouse_ingest.pipeline.one_start import OneStart
from lakehouse_ingest.pipeline.task import Receipt, Work, do
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Share
from tests.services.sqlite_catalog import sqlite_catalog

TYPES, EACH = 5, 40


class Given:
    """A reader of records that are there already, in chunks of ten."""

    def read_all(self, shares: list[Share]) -> Any:
        (share,) = shares
        for first in range(share.start, share.end, 10):
            values = [json.dumps({"type": f"kind_{n % TYPES}"}).encode() for n in range(first, first + 10)]
            columns = {"offset": range(first, first + 10), "timestamp": [0] * 10, "value": values}
            rows = [pa.array(columns.get(each.name, [None] * 10), each.type) for each in RECORD_SCHEMA]
            yield Records(share.topic, share.partition, "log", pa.RecordBatch.from_arrays(rows, schema=RECORD_SCHEMA))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    client = CatalogClient(sqlite_catalog(tmp_path))
    ensure_namespace(client, "ns")
    columns = tuple(Column(each.name, each.iceberg, each.required) for each in dead_letters.COLUMNS)
    create_table(client, TableSpec("ns.dead_letters", columns))
    stream = {"topics": ["t"], "type_from": "field:type", "tables": [{"table": "{type}"}]}
    settings = Settings.model_validate({"name": "plant", "streams": [stream]}).streams[0]
    nowhere = Fault(Reason.TOO_MANY_TABLES, "no more tables", "route", "")
    letters = table_files(client, "ns.dead_letters")
    return Work("plant", 1, 0, settings, cast("Any", Given()), {}, letters, unasked=nowhere, imagined=True)


class TestDeadLettersOfATask:
    def done(self, work: Work) -> Receipt:
        found = do(work, 0, 0, [Share("t", 0, 0, TYPES * EACH)])
        assert found.error is None
        return found

    @pytest.mark.parametrize("most", [0, 2_000, 2**30])
    def test_are_kept_up_to_a_bound_over_all_tables(
        self, work: Work, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(task, "KEPT_LETTERS", most)
        parts = self.done(work).parts
        assert len(parts) == TYPES
        kept = {way: sum(map(len, part.letters)) for way, part in parts.items()}
        written = {way: sum(file.record_count for file in part.letter_files) for way, part in parts.items()}
        assert {kept[way] + written[way] for way in parts} == {EACH}
        assert sum(rows.nbytes for part in parts.values() for rows in part.letters) <= most
        assert bool(sum(written.values())) == (most < 2**30)


class TestQueryThatIsToEnd:
    @pytest.mark.parametrize("number", [0, 3])
    def test_may_call_for_more_batches(self, number: int) -> None:
        start = cast("OneStart", SimpleNamespace(_closing=Event(), of=SimpleNamespace(has_enough=False)))
        start._closing.set()
        assert OneStart._next(start, cast("Any", SimpleNamespace(batches=0)), number) is None

    def test_otherwise_runs_no_batch_out_of_turn(self) -> None:
        start = cast("OneStart", SimpleNamespace(_closing=Event()))
        with pytest.raises(TryAgain, match="Spark runs batch 3 of a query that has finished 0"):
            OneStart._next(start, cast("Any", SimpleNamespace(batches=0)), 3)
