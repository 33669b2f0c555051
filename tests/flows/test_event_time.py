"""The event time: epoch numbers of a stated or a found unit and ISO text, or a fault; never another time."""

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import FAULT, SOURCE, Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, TablePlan, declared
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import infer, json_object
from lakehouse_ingest.stages.shaping import PER_SECOND, shape, unit_of
from lakehouse_ingest.tables.first_batch import Planned, plan_from_records
from tests.flows.conftest import FEW, RECEIVED, Records

TS = declared("ts", "Utf8", required=False)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NOW = 1_714_979_289  # 2024-05-06T07:08:09Z


def times(frame: DataFrame, unit: str, *, told: bool = True) -> list[str | None]:
    """As text in UTC, because Spark's times may lie where Python has none; None for a fault of the right kind."""
    plan = TablePlan("t", (TS,), "ts", unit, told)
    rows = shape(json_object.decode(frame, plan.columns), plan).orderBy(f"{SOURCE}.offset")
    found = rows.select(FAULT, F.date_format(EVENT_TIME, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")).collect()
    for fault, at in found:
        assert (fault is None) == (at is not None)
        assert fault is None or (fault["reason"], fault["stage"]) == (Reason.EVENT_TIME, "shape")
    return [at for _, at in found]


def values(texts: Iterable[str]) -> list[str]:
    return [f'{{"ts": {text}}}' for text in texts]


ISO = {
    "2024-05-06T07:08:09Z": "2024-05-06T07:08:09.000000",
    "2024-05-06 07:08:09Z": "2024-05-06T07:08:09.000000",
    "2024-05-06T07:08:09 Z": "2024-05-06T07:08:09.000000",
    "2024-05-06T07:08:09.5Z": "2024-05-06T07:08:09.500000",
    "2024-05-06T07:08:09,25Z": "2024-05-06T07:08:09.250000",
    "2024-05-06T07:08:09.123456Z": "2024-05-06T07:08:09.123456",
    "2024-05-06T07:08:09.123456999Z": "2024-05-06T07:08:09.123456",
    "2024-05-06T09:08:09+02:00": "2024-05-06T07:08:09.000000",
    "2024-05-06T09:08:09+0200": "2024-05-06T07:08:09.000000",
    "2024-05-06T09:08:09+02": "2024-05-06T07:08:09.000000",
    "2024-05-06T01:38:09-05:30": "2024-05-06T07:08:09.000000",
    "2024-05-06T07:08:09": "2024-05-06T07:08:09.000000",  # without a zone: UTC
    "2024-05-06T07:08": "2024-05-06T07:08:00.000000",
    "2024-05-06": "2024-05-06T00:00:00.000000",
    "2024-02-29": "2024-02-29T00:00:00.000000",
    "1969-12-31T23:59:59.999999Z": "1969-12-31T23:59:59.999999",
    "0001-01-01": "0001-01-01T00:00:00.000000",
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999",
}
NO_TIME = (
    '"yesterday"',
    '""',
    '" 2024-05-06"',
    '"2024-13-01"',
    '"2023-02-29"',
    '"2024-05-06T25:00:00Z"',
    '"2024-05-06T07:60:00Z"',
    '"06.05.2024"',
    '"May 6, 2024"',
    '"07:08:09"',
    '"2024-05"',
    '"0000-01-01"',
    '"0001-01-01T00:00:00+01:00"',
    '"9999-12-31T23:59:59-01:00"',
    '"+12024-01-01"',
    '"now"',
    '"epoch"',
    "true",
    "{}",
    "[1714979289]",
    "null",
    '"NaN"',
    "1e28",
    "-1e28",
    "1e400",
    "9" * 60,
)


@pytest.mark.parametrize(("unit", "told"), [("iso", True), ("ms", True), ("s", False)])
def test_iso_text_is_understood_whatever_the_unit_of_numbers(records: Records, unit: str, *, told: bool) -> None:
    frame = records(values(json.dumps(text) for text in ISO))
    assert dict(zip(ISO, times(frame, unit, told=told), strict=True)) == ISO


@pytest.mark.parametrize("unit", ["iso", "s", "ns"])
def test_what_is_no_time_is_a_fault(records: Records, unit: str) -> None:
    found = times(records(values(NO_TIME)), unit)
    assert dict(zip(NO_TIME, found, strict=True)) == dict.fromkeys(NO_TIME)


def test_the_detail_names_field_value_and_unit(records: Records) -> None:
    plan = TablePlan("t", (TS,), "ts", "ms")
    frame = records(['{"ts": "yesterday"}', "{}", '{"ts": null}', '{"ts": "' + "x" * 500 + '"}'])
    details = [row[FAULT]["detail"] for row in shape(json_object.decode(frame, plan.columns), plan).collect()]
    assert details == [
        "ts: yesterday is no time in ms",
        "ts is missing",
        "ts is missing",
        "ts: " + "x" * 60 + " is no time in ms",
    ]


def test_without_an_event_time_it_is_the_records_own(records: Records) -> None:
    plan = TablePlan("t", (TS,), None, "iso")
    (row,) = shape(json_object.decode(records(["{}"]), plan.columns), plan).collect()
    assert (row[FAULT], row[EVENT_TIME]) == (None, RECEIVED.replace(tzinfo=None))


NUMBERS: dict[str, dict[str, str | None]] = {
    "s": {
        "1714979289": "2024-05-06T07:08:09.000000",
        '"1714979289"': "2024-05-06T07:08:09.000000",
        "1714979289.5": "2024-05-06T07:08:09.500000",
        "1714979289.123456": "2024-05-06T07:08:09.123456",
        '"1714979289.123456789"': "2024-05-06T07:08:09.123456",
        "1.714979289e9": "2024-05-06T07:08:09.000000",
        "0": "1970-01-01T00:00:00.000000",
        "-0.000001": "1969-12-31T23:59:59.999999",
        "-62135596800": "0001-01-01T00:00:00.000000",
        "-62135596801": None,
        "253402300799": "9999-12-31T23:59:59.000000",
        "253402300800": None,
        "1714979289000": None,  # beyond the year 9999: it was in ms
    },
    "ms": {
        "1714979289123": "2024-05-06T07:08:09.123000",
        '"1714979289123"': "2024-05-06T07:08:09.123000",
        "1714979289123.5": "2024-05-06T07:08:09.123500",
        "-1": "1969-12-31T23:59:59.999000",
        "1714979289": "1970-01-20T20:22:59.289000",  # stated is stated, plausible or not
    },
    "us": {
        "1714979289123456": "2024-05-06T07:08:09.123456",
        '"1714979289123456.9"': "2024-05-06T07:08:09.123456",
        "1714979289": "1970-01-01T00:28:34.979289",
    },
    "ns": {
        "1714979289123456789": "2024-05-06T07:08:09.123456",
        '"1714979289123456999"': "2024-05-06T07:08:09.123456",
        "-1": "1969-12-31T23:59:59.999999",
        "1714979289": "1970-01-01T00:00:01.714979",
        "253402300799999999999": "9999-12-31T23:59:59.999999",
        "253402300800000000000": None,
    },
}


@pytest.mark.parametrize("unit", NUMBERS)
def test_numbers_of_a_stated_unit_are_exact_also_outside_the_plausible_years(records: Records, unit: str) -> None:
    assert dict(zip(NUMBERS[unit], times(records(values(NUMBERS[unit])), unit), strict=True)) == NUMBERS[unit]


def test_a_unit_that_was_found_takes_only_plausible_times(records: Records) -> None:
    """The years 1990 to 2100, in which no two units meet."""
    edges = {
        "631152000000": True,
        "631151999999": False,
        "4102444799999": True,
        "4102444800000": False,
        "1714979289": False,
    }
    found = times(records(values(edges)), "ms", told=False)
    assert {text: at is not None for text, at in zip(edges, found, strict=True)} == edges


@FEW
@given(st.data())
def test_every_microsecond_of_the_calendar_survives(records: Records, data: st.DataObject) -> None:
    low, high = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1
    micros = data.draw(st.lists(st.integers(low, high), min_size=30, max_size=60))
    unit = data.draw(st.sampled_from(sorted(PER_SECOND)))
    exact = [Decimal(each) * PER_SECOND[unit] / 10**6 for each in micros]
    expected = [(EPOCH + dt.timedelta(microseconds=each)).strftime("%Y-%m-%dT%H:%M:%S.%f").zfill(26) for each in micros]
    assert times(records(values(f'"{each:f}"' for each in exact)), unit) == expected


# -- which unit -------------------------------------------------------------------------------------------


def unit(records: Records, texts: Sequence[str], kind: str = "Utf8") -> str | None:
    columns = (declared("ts", kind, required=False),)
    return unit_of(json_object.decode(records([*values(texts), "broken", "{}"]), columns), "ts")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["1714979289", "1714979290.5"], "s"),
        (["1714979289123", '"1714979289123"'], "ms"),
        (["1714979289123456"], "us"),
        (["1714979289123456789"], "ns"),
        (['"2024-05-06T07:08:09Z"', '"2024-05-06"'], "iso"),
        (["1714979289123", '"2024-05-06"'], "ms"),  # numbers have a unit, text needs none
        (["1714979289123", "5", '"hello"'], "ms"),  # implausible ones say nothing
        (["5", "-1", '"hello"', "null"], None),
        ([], None),
    ],
)
def test_the_unit_is_told_from_the_magnitude(records: Records, texts: list[str], found: str | None) -> None:
    assert unit(records, texts) == found


@pytest.mark.parametrize("kind", ["Int64", "Float64", "UInt64", "decimal(20,3)"])
def test_the_unit_is_told_whatever_the_column_is_declared_as(records: Records, kind: str) -> None:
    assert unit(records, ["1714979289123"], kind) == "ms"


def test_units_that_disagree_are_refused_with_both_and_the_setting(records: Records) -> None:
    with pytest.raises(SettingsRefused, match="ts look like s and like ms: set `event_time_unit`"):
        unit(records, ["1714979289", "1714979289123"])


# -- which field ------------------------------------------------------------------------------------------


def first(frame: DataFrame, **settings: Any) -> Planned:
    return plan_from_records("t", TableSettings.model_validate(settings), json_object, infer(json_object, frame), frame)


def planned(records: Records, texts: Sequence[str], **settings: Any) -> tuple[str | None, str, bool]:
    plan = first(records(texts), **settings).plan
    return plan.event_time, plan.unit, plan.unit_was_given


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        (f'{{"ts_ms": {NOW}000, "other": {NOW}}}', {}, ("ts_ms", "ms", False)),
        (f'{{"ts_ms": {NOW}000, "other": {NOW}}}', {"event_time": "other"}, ("other", "s", False)),
        (f'{{"other": {NOW}}}', {"event_time": "other", "event_time_unit": "ns"}, ("other", "ns", True)),
        ('{"event_time": "2024-05-06", "ts_ms": 5}', {}, ("event_time", "iso", False)),
        ('{"a": 1}', {}, (None, "auto", True)),
    ],
)
def test_the_event_time_is_the_field_of_the_settings_or_a_usual_one(
    records: Records, text: str, settings: dict[str, Any], expected: tuple[str | None, str, bool]
) -> None:
    assert planned(records, [text], **settings) == expected


def test_an_event_time_that_no_record_has_is_refused_with_the_fields_there_are(records: Records) -> None:
    with pytest.raises(SettingsRefused, match=r"`event_time` names when, and no record so far has .*; there are a, b"):
        planned(records, ['{"a": 1, "b": 2}'], event_time="when")


def test_a_table_waits_while_no_record_tells_the_unit(records: Records) -> None:
    assert not first(records(['{"ts": 5}']), event_time="ts").settled
    assert first(records([f'{{"ts": {NOW}}}']), event_time="ts").settled


@pytest.mark.parametrize("field", ["ts", EVENT_TIME])
def test_an_event_time_that_is_text_lands_however_it_is_written_later(records: Records, field: str) -> None:
    """It never becomes a date or a time of its own, which would turn the others away."""
    plan = first(records([f'{{"{field}": "2024-05-06"}}']), event_time=field).plan
    frame = records([f'{{"{field}": {text}}}' for text in ('"2024-05-06"', '"2024-05-06T07:08:09Z"', '"soon"')])
    rows = shape(json_object.decode(frame, plan.columns), plan).orderBy(f"{SOURCE}.offset").collect()
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [None, None, Reason.EVENT_TIME]
    assert [row[EVENT_TIME].isoformat() for row in rows[:2]] == ["2024-05-06T00:00:00", "2024-05-06T07:08:09"]
