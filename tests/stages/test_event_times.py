"""The event time: epoch numbers of a stated or an inferred unit and ISO text, or a fault; never another time."""

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan, declared
from lakehouse_ingest.schema.times import PER_SECOND
from lakehouse_ingest.stages.event_time import instant_of, instants
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, RECEIVED, outcomes

TS = declared("ts", "Utf8", required=False)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def times(
    values: Sequence[str],
    unit: str,
    *,
    given_unit: bool = True,
    column: ColumnPlan = TS,
    form: Format | None = None,
) -> list[str | None]:
    """As text in UTC; None for a fault of the right kind."""
    plan = TablePlan("t", (column,), "ts", unit, given_unit)
    found: list[str | None] = []
    for row in outcomes(values, plan, form or FORMATS["fast"]):
        if isinstance(row, Fault):
            assert (row.reason, row.stage) == (Reason.EVENT_TIME, "shape")
            found.append(None)
        else:
            assert row is not None
            found.append(row[EVENT_TIME].strftime("%Y-%m-%dT%H:%M:%S.%f").zfill(26))
    return found


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
    "2024-05-07T01:08:09+18:00": "2024-05-06T07:08:09.000000",
    "2024-05-06T07:08:09": "2024-05-06T07:08:09.000000",  # without a zone: UTC
    "2024-05-06T07:08": "2024-05-06T07:08:00.000000",
    "2024-05-06": "2024-05-06T00:00:00.000000",
    "2024-02-29": "2024-02-29T00:00:00.000000",
    "2024-01-31T00:00:00Z": "2024-01-31T00:00:00.000000",
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
    '"2023-02-29T00:00:00Z"',
    '"2024-05-06T25:00:00Z"',
    '"2024-05-06T24:00:00Z"',
    '"2024-05-06T07:60:00Z"',
    '"2024-05-06T07:08:60Z"',
    '"2024-05-06T07Z"',
    '"2024-05-06T07"',
    '"2024-05-06T07+02:00"',
    '"2024-05-06T07:08:09+18:01"',
    '"2024-05-06T07:08:09+19:00"',
    '"2024-05-06T07:08:09+02:60"',
    '"2024-05-06T07:08:09Z\\n"',
    '"06.05.2024"',
    '"May 6, 2024"',
    '"07:08:09"',
    '"2024-05"',
    '"0000-01-01"',
    '"0000-01-01T00:00:00Z"',
    '"0001-01-01T00:00:00+01:00"',
    '"9999-12-31T23:59:59-01:00"',
    '"+12024-01-01"',
    '"٢٠٢٤-05-06"',
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


class TestIsoText:
    @pytest.mark.parametrize(("unit", "given_unit"), [("iso", True), ("ms", True), ("s", False)])
    def test_is_understood_whatever_the_unit_of_numbers(self, unit: str, given_unit: bool, form: Format) -> None:  # noqa: FBT001
        found = times(values(json.dumps(text) for text in ISO), unit, given_unit=given_unit, form=form)
        assert dict(zip(ISO, found, strict=True)) == ISO

    @pytest.mark.parametrize("text", ISO)
    def test_is_understood_alone(self, text: str) -> None:
        """Columns of one kind of text have a way of their own."""
        assert times(values([json.dumps(text)] * 3), "iso") == [ISO[text]] * 3


class TestNoTime:
    @pytest.mark.parametrize("unit", ["iso", "s", "ns"])
    def test_is_a_fault(self, unit: str, form: Format) -> None:
        found = times(values(NO_TIME), unit, form=form)
        assert dict(zip(NO_TIME, found, strict=True)) == dict.fromkeys(NO_TIME)

    @pytest.mark.parametrize("text", NO_TIME)
    def test_is_a_fault_alone(self, text: str) -> None:
        assert times(values([text]), "s") == [None]

    def test_is_told_with_field_value_and_unit(self, form: Format) -> None:
        plan = TablePlan("t", (TS,), "ts", "ms")
        found = outcomes(['{"ts": "yesterday"}', "{}", '{"ts": null}', '{"ts": "' + "x" * 500 + '"}'], plan, form)
        assert [(each.detail, each.told) for each in found if isinstance(each, Fault)] == [
            ("ts: yesterday is no time in ms", "ts is no time in ms"),
            ("ts is missing", "ts is missing"),
            ("ts is missing", "ts is missing"),
            ("ts: " + "x" * 60 + " is no time in ms", "ts is no time in ms"),
        ]


class TestRecordWithoutEventTime:
    def test_has_its_own_timestamp(self, form: Format) -> None:
        (row,) = outcomes(["{}"], TablePlan("t", (TS,), None, "iso"), form)
        assert isinstance(row, dict)
        assert row[EVENT_TIME] == RECEIVED


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
        "1714979289": "1970-01-20T20:22:59.289000",  # a stated unit counts, plausible or not
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


class TestEpochNumber:
    @pytest.mark.parametrize("unit", NUMBERS)
    def test_of_a_stated_unit_is_exact_also_outside_the_plausible_years(self, unit: str, form: Format) -> None:
        assert dict(zip(NUMBERS[unit], times(values(NUMBERS[unit]), unit, form=form), strict=True)) == NUMBERS[unit]

    @pytest.mark.parametrize("kind", ["Int64", "Float64", "UInt64", "decimal(20,3)"])
    def test_is_read_whatever_its_column_is(self, kind: str, form: Format) -> None:
        column = declared("ts", kind, required=False)
        found = times(
            values(["1714979289123", "1714979289124", "-1" if kind != "UInt64" else "0"]),
            "ms",
            column=column,
            form=form,
        )
        assert found[:2] == ["2024-05-06T07:08:09.123000", "2024-05-06T07:08:09.124000"]

    def test_of_an_inferred_unit_is_plausible(self, form: Format) -> None:
        """The years 1990 to 2100, in which no two units meet."""
        edges = {
            "631152000000": True,
            "631151999999": False,
            "4102444799999": True,
            "4102444800000": False,
            "1714979289": False,
        }
        found = times(values(edges), "ms", given_unit=False, form=form)
        assert {text: at is not None for text, at in zip(edges, found, strict=True)} == edges

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_keeps_every_microsecond_of_the_calendar(self, data: st.DataObject) -> None:
        low, high = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1
        micros = data.draw(st.lists(st.integers(low, high), min_size=30, max_size=60))
        unit = data.draw(st.sampled_from(sorted(PER_SECOND)))
        exact = [Decimal(each) * PER_SECOND[unit] / 10**6 for each in micros]
        expected = [
            (EPOCH + dt.timedelta(microseconds=each)).strftime("%Y-%m-%dT%H:%M:%S.%f").zfill(26) for each in micros
        ]
        assert times(values(f'"{each:f}"' for each in exact), unit) == expected


class TestTextField:
    @pytest.mark.parametrize("field", ["ts", EVENT_TIME])
    def test_is_read_however_it_is_written(self, field: str, form: Format) -> None:
        """A field with the name of the event time's column becomes that column."""
        column = ColumnPlan(field, field, "timestamptz" if field == EVENT_TIME else "string")
        plan = TablePlan("t", (column,), field, "iso")
        texts = ('"2024-05-06"', '"2024-05-06T07:08:09Z"', '"soon"', "null")
        found = outcomes([f'{{"{field}": {text}}}' for text in texts], plan, form)
        assert [each.reason for each in found[2:] if isinstance(each, Fault)] == [Reason.EVENT_TIME] * 2
        rows = [row for row in found if isinstance(row, dict)]
        assert [row[EVENT_TIME].isoformat() for row in rows] == [
            "2024-05-06T00:00:00+00:00",
            "2024-05-06T07:08:09+00:00",
        ]
        assert list(rows[0]) == ([] if field == EVENT_TIME else ["ts"]) + [EVENT_TIME, "_source"]


class TestPartsOfTheTime:
    def test_are_text(self, form: Format) -> None:
        plan = TablePlan("t", (TS,), "ts", "s", derived=("year", "month", "day", "hour"))
        found = outcomes(values(['"0987-01-02T03:59:59Z"', "-1", '"9999-12-31T23:00:00Z"', '"x"']), plan, form)
        rows = [[row[part] for part in plan.derived] for row in found if isinstance(row, dict)]
        assert rows == [["0987", "01", "02", "03"], ["1969", "12", "31", "23"], ["9999", "12", "31", "23"]]


# -- columns against single values ------------------------------------------------------------------------

TEXTS = st.one_of(
    st.sampled_from([*ISO, *(json.loads(text) for text in NO_TIME if text[0] == '"')]),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.datetimes(timezones=st.timezones()).map(dt.datetime.isoformat),
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"[+-]?[0-9]{1,12}\.?[0-9]{0,10}(e[0-9])?", fullmatch=True, alphabet="0123456789+-.e"),
    st.from_regex(
        r"[0-9]{4}-[0-3][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9](:[0-6][0-9](\.[0-9]{0,9})?)?(Z|[+-][0-9:]*)?"
    ),
    st.text(max_size=4),
)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 5 * 10**12),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats() | st.floats(-1e10, 5e9) | st.integers(0, 4 * 10**15).map(lambda each: each / 10**6),
    pa.float32(): st.floats(width=32),
    pa.decimal128(38, 18): st.decimals(-(10**19), 10**19, places=3) | st.integers(-(10**19), 10**19).map(Decimal),
    pa.date32(): st.integers(-800_000, 3_000_000),
    pa.timestamp("us"): st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**15), 10**15),
    pa.bool_(): st.booleans(),
}


class TestColumnOfTimes:
    @pytest.mark.parametrize("kind", VALUES, ids=str)
    @settings(max_examples=150, deadline=None)
    @given(data=st.data())
    def test_agrees_with_single_values_or_asks_them(self, kind: pa.DataType, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from([*PER_SECOND, "iso"]))
        plausible = data.draw(st.booleans())
        given_values = data.draw(st.lists(VALUES[kind] | st.none(), min_size=1, max_size=20))
        array = pa.array(given_values, kind)
        one = instant_of(kind, unit, plausible=plausible)
        plain = array.to_pylist() if not pa.types.is_temporal(kind) else given_values
        found = pc.cast(instants(array, unit, plausible=plausible), pa.int64()).to_pylist()
        for value, at in zip(plain, found, strict=True):
            assert at is None or at == one(value), (value, unit)

    @pytest.mark.parametrize(
        ("kind", "value", "unit"),
        [
            (pa.int64(), 1714979289123, "ms"),
            (pa.int64(), 1714979289123456789, "ns"),
            (pa.string(), "2024-05-06T07:08:09.123Z", "iso"),
            (pa.string(), "2024-05-06T07:08:09.123+02:00", "iso"),
            (pa.string(), "2024-05-31 07:08:09", "iso"),
            (pa.string(), "1714979289123", "ms"),
            (pa.float64(), 1714979289.123456, "s"),
            (pa.float64(), 1714979289123.5, "ms"),
            (pa.decimal128(38, 18), Decimal(1714979289123), "ms"),
        ],
    )
    def test_needs_no_look_at_single_values_that_are_usual(self, kind: pa.DataType, value: Any, unit: str) -> None:
        odd = {pa.string(): "soon"}.get(kind, value)
        at = instant_of(kind, unit, plausible=True)(value)
        assert at is not None
        found = pc.cast(instants(pa.array([value, odd, None], kind), unit, plausible=True), pa.int64()).to_pylist()
        assert (found[0], found[2]) == (at, None)
