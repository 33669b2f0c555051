"""Text that is a date or a time: complete, of the calendar, and of a year that readers of tables take."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.schema.times import MICROS, YEAR_1, YEAR_10000, iso_time

UTC = dt.UTC
TIMES = {
    "2024-05-06": dt.datetime(2024, 5, 6, tzinfo=UTC),
    "2024-02-29": dt.datetime(2024, 2, 29, tzinfo=UTC),
    "2024-05-06T07:08": dt.datetime(2024, 5, 6, 7, 8, tzinfo=UTC),
    "2024-05-06T07:08Z": dt.datetime(2024, 5, 6, 7, 8, tzinfo=UTC),
    "2024-05-06T07:08:09": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06 07:08:09Z": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T07:08:09 Z": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T07:08:09.5Z": dt.datetime(2024, 5, 6, 7, 8, 9, 500_000, tzinfo=UTC),
    "2024-05-06T07:08:09,25Z": dt.datetime(2024, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC),
    "2024-05-06T07:08:09.123456999Z": dt.datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC),
    "2024-05-06T09:08:09+02:00": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T09:08:09+0200": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T09:08:09+02": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T01:38:09-05:30": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-06T07:08:09-00:00": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "2024-05-07T01:08:09+18:00": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "1969-12-31T23:59:59.999999Z": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "0001-01-01": dt.datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59.999999999Z": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
}
DAY, SECONDS = "2024-05-06", "2024-05-06T07:08:09"
NO_TIMES = [
    *(f"{SECONDS}{each}" for each in ("z", "UTC", "+2", "+24:00", "+02:60", "+18:01", "  Z", "Z\n", " x", "+", ".")),
    *(
        f"{DAY}{each}"
        for each in ("\n", "Z", "T07", "T24:00:00Z", "T07:08:60Z", "T07:60:00Z", "x07:08:09Z", "t07:08:09Z")
    ),
    *(f" {DAY}", "20240506", "2023-02-29", "2024-13-01", "2024-W19-1", "2024-5-6", "2024-05", "2024", "06.05.2024", ""),
    *("0000-01-01", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "+12024-01-01", "٢٠٢٤-05-06", "now"),
]


class TestIsoTime:
    @pytest.mark.parametrize("text", TIMES)
    def test_is_read_to_the_microsecond(self, text: str) -> None:
        found = iso_time(text)
        assert found
        assert dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=found.micros) == TIMES[text]

    @pytest.mark.parametrize("text", NO_TIMES)
    def test_is_complete_and_of_the_calendar(self, text: str) -> None:
        assert iso_time(text) is None

    @given(st.integers(YEAR_1 * MICROS, YEAR_10000 * MICROS - 1), st.integers(-18 * 60, 18 * 60))
    def test_is_any_microsecond_in_any_zone(self, micros: int, minutes: int) -> None:
        at = dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=micros)
        try:
            text = at.astimezone(dt.timezone(dt.timedelta(minutes=minutes))).isoformat()
        except OverflowError:
            text = at.isoformat()
        found = iso_time(text)
        assert found
        assert found == (micros, False, True, True)
