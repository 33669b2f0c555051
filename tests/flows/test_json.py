"""JSON to rows: each bad value gets exactly its reason, each good one lands as it was, and nothing raises."""

import base64
import datetime as dt
import json
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan, declared
from lakehouse_ingest.stages.faults import faulty
from lakehouse_ingest.stages.formats import json_object
from lakehouse_ingest.stages.shaping import shape
from tests.flows.conftest import FEW, RECEIVED, Records, Value

DECLARED = {
    "utf8": "Utf8",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float32": "Float32",
    "float64": "Float64",
    "boolean": "Boolean",
    "timestamp": "Timestamp",
    "binary": "Binary",
    "price": "decimal(5,2)",
    "huge": "decimal(38,0)",
    "date": "date",
    "place": "struct<lat: double, tags: list<string>>",
    "counts": "list<int>",
    "sizes": "map<string, int>",
}
COLUMNS = tuple(declared(name, kind, required=False) for name, kind in DECLARED.items())
PLAN = TablePlan("t", COLUMNS, None, "iso")


def shaped(frame: DataFrame, plan: TablePlan = PLAN) -> list[Row]:
    return shape(json_object.decode(frame, plan.columns), plan).orderBy(f"{SOURCE}.offset").collect()


def one(name: str, text: str) -> str:
    return f"{{{json.dumps(name)}: {text}}}"


def reasons(rows: Iterable[Row]) -> list[str | None]:
    return [row[FAULT] and row[FAULT]["reason"] for row in rows]


# -- whole records ----------------------------------------------------------------------------------------

GOOD = '{"utf8": "neighbour", "int64": 5}'
WHOLE: dict[str, tuple[Value, Reason]] = {
    "tombstone": (None, Reason.EMPTY),
    "empty": ("", Reason.EMPTY),
    "spaces": ("   ", Reason.EMPTY),
    "other whitespace": ("\n\t \r\n", Reason.EMPTY),
    "not JSON": ("hello", Reason.BROKEN),
    "cut": ('{"int64": 5', Reason.BROKEN),
    "cut in a name": ('{"int', Reason.BROKEN),
    "cut in a text": ('{"utf8": "abc', Reason.BROKEN),
    "garbage behind": ('{"int64": 5}x', Reason.BROKEN),
    "garbage behind a space": ('{"int64": 5} }', Reason.BROKEN),
    "a comma behind": ('{"int64": 5},', Reason.BROKEN),
    "two objects": ('{"int64": 5}{"int64": 6}', Reason.BROKEN),
    "two objects in two lines": ('{"int64": 5}\n{"int64": 6}', Reason.BROKEN),
    "two objects and a comma": ('{"int64": 5},{"int64": 6}', Reason.BROKEN),
    "two lists' worth": ('{"int64": 5}],"x":[6', Reason.BROKEN),
    "closes what we put around it": ('{"int64": 5}]}', Reason.BROKEN),
    "garbage before": ('x{"int64": 5}', Reason.BROKEN),
    "a byte order mark": ('\ufeff{"int64": 5}', Reason.BROKEN),
    "a comma too many": ('{"int64": 5,}', Reason.BROKEN),
    "single quotes": ("{'int64': 5}", Reason.BROKEN),
    "no quotes": ("{int64: 5}", Reason.BROKEN),
    "a comment": ('/* c */ {"int64": 5}', Reason.BROKEN),
    "a literal of nobody's": ('{"boolean": yes}', Reason.BROKEN),
    "a control character in a text": ('{"utf8": "a\x01b"}', Reason.BROKEN),
    "nested beyond any parser": ('{"utf8": ' + "[" * 5000 + "]" * 5000 + "}", Reason.BROKEN),
    "nested beyond it in an unknown field": ('{"zzz": ' + "[" * 5000 + "]" * 5000 + "}", Reason.BROKEN),
    "a number of 1500 digits": ('{"int64": ' + "9" * 1500 + "}", Reason.BROKEN),
    "an array": ("[]", Reason.NOT_OBJECT),
    "an array of objects": ('[{"int64": 5}]', Reason.NOT_OBJECT),
    "an integer": ("5", Reason.NOT_OBJECT),
    "a fraction": ("1.5", Reason.NOT_OBJECT),
    "a text": ('"abc"', Reason.NOT_OBJECT),
    "an empty text": ('""', Reason.NOT_OBJECT),
    "true": ("true", Reason.NOT_OBJECT),
    "null": ("null", Reason.NOT_OBJECT),
    "bytes of no encoding": (b"\xff\xfe\x00", Reason.NOT_TEXT),
    "latin-1 in a text": ('{"utf8": "é"}'.encode("latin-1"), Reason.NOT_TEXT),
    "half a pair of code units": (r'{"utf8": "\ud83d!"}', Reason.NOT_TEXT),
    "half a character": ('{"utf8": "é"}'.encode()[:-3] + b'"}', Reason.NOT_TEXT),
}


def test_each_broken_value_gets_its_reason_and_its_neighbours_land(records: Records) -> None:
    values = [each for value, _ in WHOLE.values() for each in (GOOD, value)]
    rows = shaped(records(values))
    found = dict(zip(WHOLE, reasons(rows[1::2]), strict=True))
    assert found == {name: str(reason) for name, (_, reason) in WHOLE.items()}
    assert all(row[FAULT]["detail"] for row in rows[1::2])
    assert {row[FAULT]["stage"] for row in rows[1::2]} == {"decode"}
    for row in rows[::2]:
        assert (row[FAULT], row["utf8"], row["int64"]) == (None, "neighbour", 5)


def test_a_faulty_row_keeps_its_record_to_the_byte(records: Records) -> None:
    values = [value for value, _ in WHOLE.values()]
    rows = shaped(records(values))
    kept = [None if row[RECORD]["value"] is None else bytes(row[RECORD]["value"]) for row in rows]
    assert kept == [value.encode() if isinstance(value, str) else value for value in values]
    assert [row[SOURCE]["offset"] for row in rows] == list(range(len(values)))


def test_what_is_an_object_is_sound_whatever_it_holds(records: Records) -> None:
    values: list[Value] = [
        "{}",
        '{"zzz": [1, {"deep": null}]}',
        '{"int64": null}',
        ' \n{"int64": 1}\t ',
        '{"utf8": "two\\nlines \\ud83d\\ude00 \\u0000"}',
        '{"zzz": ' + "[" * 199 + "]" * 199 + "}",
        '{"utf8": "' + "x" * 1_000_000 + '"}',
        '{"int64": 1, "int64": 2}',
        '{"INT64": 1}',
        '{"_": 1, "_broken": 2, "_record": 3, "_data": 4, "_fault": 5, "_source": 6, "_parsed": 7}',
    ]
    rows = shaped(records(values))
    assert reasons(rows) == [None] * len(values)
    assert rows[4]["utf8"] == "two\nlines 😀 \x00"
    assert len(rows[6]["utf8"]) == 1_000_000
    assert rows[7]["int64"] == 2, "of a name that comes twice the last one counts, as in most parsers"
    assert rows[8]["int64"] is None, "names that differ by case are two"
    assert {row[EVENT_TIME] for row in rows} == {RECEIVED.replace(tzinfo=None)}


# -- values of declared columns ---------------------------------------------------------------------------


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)  # without a zone: Spark hands out the session's, UTC, without saying so


SOUND: list[tuple[str, str, Any]] = [
    ("utf8", '"é😀"', "é😀"),
    ("utf8", '""', ""),
    ("utf8", "12", "12"),
    ("utf8", "true", "true"),
    ("utf8", '{"a": [1]}', '{"a":[1]}'),
    *(
        (name, str(edge), edge)
        for name, edges in {
            "int8": (-128, 127),
            "int16": (-32768, 32767),
            "int32": (-(2**31), 2**31 - 1),
            "int64": (-(2**63), 2**63 - 1),
            "uint8": (0, 255),
            "uint16": (0, 65535),
            "uint32": (0, 2**32 - 1),
        }.items()
        for edge in edges
    ),
    ("uint64", "0", Decimal(0)),
    ("uint64", str(2**64 - 1), Decimal(2**64 - 1)),
    ("float32", "1.5", 1.5),
    ("float32", "-3e38", pytest.approx(-3e38)),
    ("float64", "0.1", 0.1),
    ("float64", "7", 7.0),
    ("float64", "1.7976931348623157e308", 1.7976931348623157e308),
    ("boolean", "false", False),
    ("timestamp", "1714979289000001", utc("2024-05-06T07:08:09.000001")),
    ("timestamp", '"2024-05-06T09:08:09.5+02:00"', utc("2024-05-06T07:08:09.5")),
    ("binary", json.dumps(base64.b64encode(b"\x00\xff").decode()), bytearray(b"\x00\xff")),
    ("price", "999.99", Decimal("999.99")),
    ("price", "-0.5", Decimal("-0.50")),
    ("price", "1e2", Decimal("100.00")),
    ("huge", "9" * 38, Decimal("9" * 38)),
    ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
    ("place", '{"lat": 1.5, "tags": ["a", null], "more": 1}', Row(lat=1.5, tags=["a", None])),
    ("counts", "[1, null, 3]", [1, None, 3]),
    ("counts", "[]", []),
    ("sizes", '{"a": 1}', {"a": 1}),
    *((name, "null", None) for name in DECLARED),
]


def test_values_that_fit_land_exactly(records: Records) -> None:
    rows = shaped(records([one(name, text) for name, text, _ in SOUND]))
    found = [
        (name, text, row[name] if row[FAULT] is None else row[FAULT])
        for (name, text, _), row in zip(SOUND, rows, strict=True)
    ]
    assert found == SOUND


NO_INTEGER = ('"12"', "1.5", "1.0", "1e3", "true", "[1]", '{"a": 1}', '""')
MISFITS: list[tuple[str, str, Reason]] = [
    *(
        (name, text, Reason.WRONG_TYPE)
        for name in DECLARED
        if "int" in name and name != "uint64"
        for text in NO_INTEGER
    ),
    *(
        (name, text, Reason.WRONG_TYPE)
        for name in ("uint64", "price", "huge")
        for text in ('"12"', '"1,5"', "true", "[1]", "{}", '""')
    ),
    *(
        (name, text, Reason.OUT_OF_RANGE)
        for name, texts in {
            "int8": ("-129", "128", str(2**70)),
            "int16": ("-32769", "32768", str(-(2**70))),
            "int32": (str(-(2**31) - 1), str(2**31), str(2**70)),
            "int64": (str(-(2**63) - 1), str(2**63), "9" * 60),
            "uint8": ("-1", "256", str(2**70)),
            "uint16": ("-1", "65536"),
            "uint32": ("-1", str(2**32)),
            "uint64": ("-1", str(2**64), "9" * 30, "9" * 60, "1e30", "1.5", "0." + "0" * 30 + "1"),
            "float32": ("3.5e38", "-1e39", "1e400", "Infinity"),
            "float64": ("1e309", "-1e400", "-Infinity"),
            "price": ("1000", "-1000.01", "1.234", "1e-3", "9" * 45),
            "huge": ("9" * 39, "1.5", "1e39"),
        }.items()
        for text in texts
    ),
    *(
        (name, text, Reason.WRONG_TYPE)
        for name, texts in {
            "float32": ('"1.5"', "true", "[]"),
            "float64": ('"1.5"', "false", "{}"),
            "boolean": ("1", '"true"', "[]"),
            "timestamp": ('"yesterday"', "true", "{}", "1e30", '"2024-13-01T00:00:00Z"', '""'),
            "binary": ('"%%%"', "5", "[]"),
            "date": (
                *('"2024-02-30"', "19000", '"19000"', '"soon"', "true", '""', '"2024-05"', '"2024-05-06 "'),
                *('"2024-05-06T07:08:09Z"', '"2024-5-6"', '"2024-05-06\\n"'),
            ),
            "place": ("5", '"x"', '{"lat": "north"}', '{"tags": "a"}', "[]"),
            "counts": ("5", '["a"]', "[1.5]", "{}"),
            "sizes": ("5", '{"a": "b"}', "[]"),
        }.items()
        for text in texts
    ),
]


def test_values_that_do_not_fit_are_set_aside_with_a_detail_that_names_field_value_and_type(records: Records) -> None:
    rows = shaped(records([one(name, text) for name, text, _ in MISFITS]))
    found = [
        (name, text, row[FAULT] and row[FAULT]["reason"]) for (name, text, _), row in zip(MISFITS, rows, strict=True)
    ]
    assert found == [(name, text, str(reason)) for name, text, reason in MISFITS]
    by_name = {column.name: column for column in COLUMNS}
    for (name, _, _), row in zip(MISFITS, rows, strict=True):
        detail = row[FAULT]["detail"]
        column = by_name[name]
        assert detail.startswith(f"{name}: "), detail
        assert detail.endswith(f" is not {column.declared or column.iceberg}"), detail


def test_a_day_that_readers_cannot_take_is_out_of_range(records: Records) -> None:
    rows = shape(json_object.decode(records(['{"date": "0000-12-31"}']), PLAN.columns), PLAN).select(FAULT).collect()
    assert [tuple(row[FAULT]) for row in rows] == [
        ("out_of_range", "date: 0000-12-31 is not date", "shape", "date is not date")
    ]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('{"int64": "12"}', 'int64: "12" is not long'),
        ('{"int64": 1.0}', "int64: 1.0 is not long"),
        ('{"int8": 300}', "int8: 300 is not int8"),
        ('{"price": 1.2340}', "price: 1.234 is not decimal(5,2)"),
        ('{"int64": "a", "int32": true, "utf8": "ok"}', 'int32: true is not int; int64: "a" is not long'),
        ('{"int32": "' + "x" * 500 + '"}', 'int32: "' + "x" * 59 + " is not int"),
        ("[1]", "ARRAY<BIGINT> where an object is expected"),
        ('{"int64": "a", "zzz": NaN, "zzz": 1}', 'int64: "a" is not long'),
        ('{"a":' * 10_000 + "}" * 10_000, "not JSON, or more than 200 levels deep"),
    ],
)
def test_what_a_detail_says(records: Records, text: str, detail: str) -> None:
    """Not too much of it: a value may be of any size."""
    assert shaped(records([text]))[0][FAULT]["detail"] == detail


NAMES = (
    "what?",
    "a b",
    "a'b",
    'a"b',
    "a`b",
    "a.b",
    "x[0]",
    "$",
    "é😀",
    "null",
    "OBJECT<a",
    "a\nb",
    "a\\b",
    "a:b>",
    "9",
    "_broken",
    "_",
    "_parsed",
)


def test_any_name_may_be_a_column_and_is_named_in_the_detail(records: Records) -> None:
    columns = tuple(
        declared(name, kind, required=False) for name, kind in zip(NAMES, ["Int64", "UInt64"] * 9, strict=True)
    )
    plan = TablePlan("t", columns, None, "iso")
    rows = shaped(records([one(name, text) for name in NAMES for text in ("7", '"bad"')]), plan)
    assert [row[name] for name, row in zip(NAMES, rows[::2], strict=True)] == [7] * len(NAMES)
    for name, kind, row in zip(NAMES, ["long", "uint64"] * 9, rows[1::2], strict=True):
        assert (row[FAULT]["reason"], row[FAULT]["detail"]) == ("wrong_type", f'{name}: "bad" is not {kind}')


def test_beyond_the_columns_that_a_detail_looks_at_the_reason_is_still_told(records: Records) -> None:
    columns = tuple(declared(f"c{number}", "long", required=False) for number in range(60))
    (row,) = shaped(records(['{"c59": "x"}']), TablePlan("t", columns, None, "iso"))
    assert row[FAULT]["reason"] == Reason.WRONG_TYPE
    assert row[FAULT]["detail"]


def test_without_columns_every_object_is_sound(records: Records) -> None:
    rows = shaped(records(['{"a": 1}', "{}", "[]", "x", None]), TablePlan("t", (), None, "iso"))
    assert reasons(rows) == [None, None, Reason.NOT_OBJECT, Reason.BROKEN, Reason.EMPTY]


# -- which fault ------------------------------------------------------------------------------------------


def test_a_required_field_that_is_missing_or_null_is_set_aside(records: Records) -> None:
    columns = tuple(declared(name, kind, required=True) for name, kind in (("id", "Int64"), ("total", "UInt64")))
    values: list[Value] = [
        '{"id": 1, "total": 2}',
        '{"total": 2}',
        '{"id": null, "total": 2}',
        '{"id": 1}',
        '{"id": 1, "total": null}',
        "{}",
    ]
    rows = shaped(records(values), TablePlan("t", columns, None, "iso"))
    assert reasons(rows) == [None, *[Reason.MISSING] * 5]
    assert [row[FAULT]["detail"] for row in rows[1:]] == [
        f"{name} is missing" for name in ("id", "id", "total", "total", "id")
    ]
    assert {row[FAULT]["stage"] for row in rows[1:]} == {"shape"}


def test_the_first_fault_wins(records: Records) -> None:
    """In the order of the street, and within a stage in the order of the columns."""
    columns = (declared("small", "UInt8", required=True), declared("id", "Int64", required=True))
    plan = TablePlan("t", columns, "ts", "s")
    values: list[Value] = [
        '{"id": "x"}',
        "{}",
        '{"small": 300}',
        '{"small": 1, "id": 2}',
        '{"small": 1, "id": 2, "ts": 5}',
    ]
    with_ts = TablePlan("t", (*columns, declared("ts", "Int64", required=False)), plan.event_time, plan.unit)
    rows = shaped(records(values), with_ts)
    assert reasons(rows) == [Reason.WRONG_TYPE, Reason.MISSING, Reason.OUT_OF_RANGE, Reason.EVENT_TIME, None]


def test_a_fault_from_before_stays_as_it_is(records: Records) -> None:
    earlier = faulty(Reason.MISSING, F.lit("found upstream"), "source")
    frame = records(['{"int64": 1}', "broken", None]).withColumn(FAULT, earlier)
    rows = shaped(frame)
    assert {(row[FAULT]["reason"], row[FAULT]["detail"], row[FAULT]["stage"]) for row in rows} == {
        (Reason.MISSING, "found upstream", "source")
    }


# -- any JSON against any columns -------------------------------------------------------------------------

PLAIN = [
    kind for kind in DECLARED.values() if kind not in ("Timestamp", "Binary", "date") and not set(kind) & set("(<")
]
KINDS = [*PLAIN, "decimal(9,3)"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-1000, 1000, places=3).map(float),
    st.text(max_size=10),
)
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4, unique=True)


@st.composite
def batches(draw: st.DrawFn) -> tuple[tuple[ColumnPlan, ...], list[dict[str, Any]]]:
    names = [name for name in draw(FIELDS) if name not in (RECORD, FAULT, SOURCE, EVENT_TIME)] or ["a"]
    columns = tuple(declared(name, draw(st.sampled_from(KINDS)), required=draw(st.booleans())) for name in names)
    objects = st.dictionaries(st.sampled_from(names) | st.text(max_size=3), JSONS, max_size=5)
    return columns, draw(st.lists(objects, min_size=10, max_size=40))


def fits(column: ColumnPlan, value: Any) -> bool:
    if value is None:
        return not column.required
    if column.iceberg == "string":
        return True
    if isinstance(value, bool) or column.iceberg == "boolean":
        return isinstance(value, bool) and column.iceberg == "boolean"
    return isinstance(value, int | float) and number_fits(column, value)


def number_fits(column: ColumnPlan, value: float) -> bool:
    match column.iceberg:
        case "double":
            return True
        case "float":
            return abs(value) < 3.4028235e38
        case "decimal(9,3)":
            exact = Decimal(str(value))
            return abs(exact) < 10**6 and exact == exact.quantize(Decimal("0.001"))
    bits = 31 if column.iceberg == "int" else 63
    low = -(2**bits) if column.low is None else column.low
    high = 2**bits - 1 if column.high is None else column.high
    whole = isinstance(value, int) or (column.declared == "uint64" and value.is_integer())
    return whole and low <= value <= high


def same(column: ColumnPlan, landed: Any, value: Any) -> bool:
    if column.iceberg == "string" and not isinstance(value, str | None):
        return bool(json.loads(landed) == value)
    if isinstance(value, int | float) and column.iceberg == "float":
        return math.isclose(landed, value, rel_tol=1e-6, abs_tol=1e-37)
    if isinstance(value, int | float) and column.iceberg == "double":
        return bool(landed == float(value))
    if isinstance(value, int | float) and column.iceberg.startswith("decimal"):
        return bool(landed == Decimal(str(value)))
    return bool(landed == value)


@FEW
@given(batch=batches())
def test_any_object_is_either_sound_with_its_values_or_faulty_with_a_reason(
    records: Records, batch: tuple[Sequence[ColumnPlan], list[dict[str, Any]]]
) -> None:
    columns, objects = batch
    rows = shaped(records([json.dumps(each) for each in objects]), TablePlan("t", tuple(columns), None, "iso"))
    assert len(rows) == len(objects)
    for row, each in zip(rows, objects, strict=True):
        wrong = [column.field for column in columns if not fits(column, each.get(column.field))]
        if wrong:
            assert row[FAULT] is not None, (columns, each)
            assert any(name in row[FAULT]["detail"] for name in wrong), (row[FAULT], wrong)
        else:
            assert row[FAULT] is None, (row[FAULT], columns, each)
            assert all(same(column, row[column.name], each.get(column.field)) for column in columns), (row, each)


@FEW
@given(
    values=st.lists(
        st.binary(max_size=60) | st.text('{}[]":,-.0123456789aetrufalsn\\ \n', max_size=40), min_size=50, max_size=150
    )
)
def test_any_bytes_are_either_sound_or_faulty_as_another_parser_sees_it(records: Records, values: list[Value]) -> None:
    plan = TablePlan("t", (declared("a", "Utf8", required=False),), None, "iso")
    for value, row in zip(values, shaped(records(values), plan), strict=True):
        try:
            is_object = isinstance(json.loads(value or b""), dict)
        except (ValueError, RecursionError):
            is_object = False
        assert (row[FAULT] is None) == is_object, (value, row[FAULT])
