"""Messages of the Kafka client become columns, whatever they hold."""

import datetime as dt
import gc

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.stages.records import RECORD_SCHEMA
from lakehouse_ingest.stages.sources.kafka.reader import (
    FIRST_MS,
    LAST_MS,
    record_batch,
    record_batches,
    without_collector,
)

MANY = 2**62


def message(
    offset: int = 0,
    value: bytes | None = b"{}",
    key: bytes | None = None,
    headers: list[tuple[str, str | bytes | None]] | None = None,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 0),
) -> Message:
    return Message(
        topic="t", partition=0, offset=offset, value=value, key=key, headers=headers or None, timestamp=timestamp
    )


def times(*stamps: tuple[int, int]) -> list[dt.datetime | None]:
    found = record_batch([message(at, timestamp=stamp) for at, stamp in enumerate(stamps)])
    values: list[dt.datetime | None] = found["timestamp"].to_pylist()
    return values


class TestColumns:
    def test_hold_what_the_records_hold(self) -> None:
        rows = record_batch([message(7, b"v", b"k"), message(9, None, None), message(10, b"", b"")])
        assert rows.schema == RECORD_SCHEMA
        assert rows["offset"].to_pylist() == [7, 9, 10]
        assert rows["value"].to_pylist() == [b"v", None, b""]
        assert rows["key"].to_pylist() == [b"k", None, b""]

    def test_refuse_offsets_that_do_not_rise(self) -> None:
        for offsets in ((1, 1), (2, 1), (1, 3, 2)):
            with pytest.raises(TryAgain, match="wrong order"):
                record_batch([message(at) for at in offsets])


class TestTime:
    def test_is_in_utc_to_the_millisecond(self) -> None:
        moment = dt.datetime(2026, 11, 19, 1, 2, 3, 456_000, dt.UTC)
        stamp = int(moment.timestamp() * 1000)
        assert times((TIMESTAMP_CREATE_TIME, stamp), (TIMESTAMP_LOG_APPEND_TIME, stamp)) == [moment, moment]

    def test_may_lie_before_1970(self) -> None:
        assert times((TIMESTAMP_CREATE_TIME, -2)) == [dt.datetime(1969, 12, 31, 23, 59, 59, 998_000, dt.UTC)]

    def test_is_absent_if_the_record_has_none(self) -> None:
        found = times((TIMESTAMP_NOT_AVAILABLE, 0), (TIMESTAMP_CREATE_TIME, 0), (TIMESTAMP_CREATE_TIME, -1))
        assert found == [None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC), None]

    def test_is_absent_if_no_engine_can_show_it(self) -> None:
        """A producer may write any number, and that must not end the batch."""
        stamps = (-(2**63), FIRST_MS - 1, FIRST_MS, LAST_MS, LAST_MS + 1, 2**63 - 1)
        found = times(*((TIMESTAMP_CREATE_TIME, each) for each in stamps))
        assert [each and each.year for each in found] == [None, None, 1, 9999, None, None]


class TestHeaders:
    def test_keep_their_order_and_repeat_names(self) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("b", b"1"), ("a", None), ("b", b"")]
        rows = record_batch([message(1), message(2, headers=headers)])
        wanted = [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}]
        assert rows["headers"].to_pylist() == [None, wanted]

    def test_are_null_where_there_are_none(self) -> None:
        rows = record_batch([message(1), message(2)])
        assert rows["headers"].null_count == 2
        assert rows.schema == RECORD_SCHEMA


class TestBatches:
    def test_hold_no_more_records_than_asked_for(self) -> None:
        found = list(record_batches([message(at) for at in range(25)], 10, MANY))
        assert [each.num_rows for each in found] == [10, 10, 5]
        assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(25))

    def test_hold_no_more_bytes_than_asked_for_unless_a_record_alone_does(self) -> None:
        sizes = [40, 60, 1, 500, 99, 2, 100]
        found = list(record_batches([message(at, b"x" * size) for at, size in enumerate(sizes)], 10, 100))
        assert [[len(value) for value in each["value"].to_pylist()] for each in found] == [
            [40, 60],
            [1],
            [500],
            [99],
            [2],
            [100],
        ]

    def test_are_one_if_all_fits(self) -> None:
        assert [each.num_rows for each in record_batches([message(at) for at in range(10)], 10, 20)] == [10]


class TestCollector:
    def test_is_as_it_was_afterwards(self) -> None:
        with without_collector():
            assert not gc.isenabled()
            with without_collector():
                pass
            assert not gc.isenabled()
        assert gc.isenabled()
