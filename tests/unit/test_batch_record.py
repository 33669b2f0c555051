"""When the batch record is written: seldom, but at once where nothing else tells what became of an offset."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Range, SourceIdentity, Token
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, Tally
from lakehouse_ingest.tables import Position
from lakehouse_ingest.tables.batch_log import BatchLog, LandedBatch
from lakehouse_ingest.tables.effects import TableEffects as Effects

AT = ("t", 0)
START = Token("plant", 1, 1, -1)


def written(counts: Mapping[str, int]) -> list[str]:
    """The kinds of rows that a second batch of ten offsets puts into the record, an hour before the next writing."""
    rows: list[str] = []

    def append(place: Position, new: list[dict[str, Any]], *_: object) -> Position:
        rows.extend(row["kind"] for row in new)
        return place

    place = Position("ns.batches", "ingest_plant_1", None, None, {}, known=True)
    effects = cast("Effects", SimpleNamespace(record=append, expire=lambda each: each))
    mark = Mark(START, SourceIdentity(), {AT: 0}, {AT: 0}, {AT: 0})
    record = BatchLog(effects, place, mark, "{}", 3600.0, {}, 1_000, 15)
    record.started(START)
    now = dt.datetime.now(dt.UTC)
    rows.clear()
    record.add(LandedBatch(replace(START, batch=0), Range({AT: 0}, {AT: 5}), now, Tally({AT: {LANDED: 5}}), {}, []))
    assert rows == ["batch"], "the next start would not know that this one has landed anything"
    rows.clear()
    record.add(LandedBatch(replace(START, batch=1), Range({AT: 5}, {AT: 15}), now, Tally({AT: dict(counts)}), {}, []))
    assert record.complete == {AT: 15}
    return rows


class TestBatchLog:
    def test_is_not_written_at_once_for_what_tables_also_hold(self) -> None:
        """Of holes, which transactions leave in every batch, the broker knows."""
        assert written({LANDED: 7, "broken_json": 2}) == []

    @pytest.mark.parametrize(
        "counts", [{LANDED: 9, FILTERED: 1}, {LANDED: 9, DISCARDED: 1}], ids=["filtered", "discarded"]
    )
    def test_is_written_at_once_for_what_is_in_no_table(self, counts: Mapping[str, int]) -> None:
        assert written(counts) == ["batch"]
