"""Values of JSON records in columns: each good one as it was, each other one with its reason, and nothing raises."""

import base64
import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan, declared
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, RECEIVED, Value, one, outcomes

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
    "moments": "struct<at: timestamptz, days: list<date>, price: decimal(4,2), share: float, local: timestamp>",
}
COLUMNS = tuple(declared(name, kind, required=False) for name, kind in DECLARED.items())
PLAN = TablePlan("t", COLUMNS, None, "iso")


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def plan_of(*columns: ColumnPlan) -> TablePlan:
    return TablePlan("t", columns, None, "iso")


def reason(found: Any) -> Reason | None:
    return found.reason if isinstance(found, Fault) else None


def detail(found: Any) -> str:
    assert isinstance(found, Fault), found
    return found.detail


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


NOTHING = {"at": None, "days": None, "price": None, "share": None, "local": None}
SOUND: list[tuple[str, str, Any]] = [
    ("utf8", '"é😀"', "é😀"),
    ("utf8", '""', ""),
    ("utf8", "12", "12"),
    ("utf8", "1.50", "1.50"),
    ("utf8", "1e2", "1e2"),
    ("utf8", "true", "true"),
    ("utf8", '{"a": [1, 1.50, "é\\n", null, true, {}]}', '{"a":[1,1.50,"é\\n",null,true,{}]}'),
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
    ("float64", "NaN", pytest.approx(math.nan, nan_ok=True)),
    ("boolean", "false", False),
    ("timestamp", "1714979289000001", utc("2024-05-06T07:08:09.000001")),
    ("timestamp", '"1714979289000001"', utc("2024-05-06T07:08:09.000001")),
    ("timestamp", '"2024-05-06T09:08:09.5+02:00"', utc("2024-05-06T07:08:09.5")),
    ("binary", json.dumps(base64.b64encode(b"\x00\xff").decode()), b"\x00\xff"),
    ("binary", '""', b""),
    ("price", "999.99", Decimal("999.99")),
    ("price", "-0.5", Decimal("-0.50")),
    ("price", "1e2", Decimal("100.00")),
    ("huge", "9" * 38, Decimal("9" * 38)),
    ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
    ("place", '{"lat": 1.5, "tags": ["a", null], "more": 1}', {"lat": 1.5, "tags": ["a", None]}),
    ("place", '{"tags": [1.50]}', {"lat": None, "tags": ["1.50"]}),
    ("counts", "[1, null, 3]", [1, None, 3]),
    ("counts", "[]", []),
    ("sizes", '{"a": 1}', [("a", 1)]),
    ("moments", '{"at": "2024-05-06T07:08:09Z"}', {**NOTHING, "at": utc("2024-05-06T07:08:09")}),
    ("moments", '{"at": 1714979289000001}', {**NOTHING, "at": utc("2024-05-06T07:08:09.000001")}),
    ("moments", '{"days": ["2024-02-29"]}', {**NOTHING, "days": [dt.date(2024, 2, 29)]}),
    ("moments", '{"price": 99.9}', {**NOTHING, "price": Decimal("99.90")}),
    ("moments", '{"local": "2024-05-06 07:08"}', {**NOTHING, "local": dt.datetime(2024, 5, 6, 7, 8)}),  # noqa: DTZ001
    *((name, "null", None) for name in DECLARED),
]


class TestSoundValue:
    def test_is_in_its_column_as_it_was(self, form: Format) -> None:
        found = outcomes([one(name, text) for name, text, _ in SOUND], PLAN, form)
        values = [
            (name, text, row[name] if isinstance(row, dict) else row)
            for (name, text, _), row in zip(SOUND, found, strict=True)
        ]
        assert values == SOUND

    def test_is_the_last_of_a_name_that_comes_twice(self, form: Format) -> None:
        (row,) = outcomes(['{"int64": 1, "int64": 2}'], PLAN, form)
        assert isinstance(row, dict)
        assert row["int64"] == 2

    def test_is_not_taken_for_a_field_whose_name_differs_by_case(self, form: Format) -> None:
        (row,) = outcomes(['{"INT64": 1}'], PLAN, form)
        assert isinstance(row, dict)
        assert row["int64"] is None
        assert row[EVENT_TIME] == RECEIVED

    def test_keeps_the_neighbours_of_broken_records(self, form: Format) -> None:
        good = '{"utf8": "neighbour", "int64": 5}'
        found = outcomes([good, None, good, '{"int64": 5', good, "[]", b"\xff", good], PLAN, form)
        assert list(map(reason, found)) == [
            None, Reason.EMPTY, None, Reason.BROKEN, None, Reason.NOT_OBJECT, Reason.NOT_TEXT, None,
        ]  # fmt: skip
        rows = [row for row in found if isinstance(row, dict)]
        assert {(row["utf8"], row["int64"]) for row in rows} == {("neighbour", 5)}
        assert [row["_source"]["offset"] for row in rows] == [0, 2, 4, 7]

    def test_needs_no_columns(self, form: Format) -> None:
        found = outcomes(['{"a": 1}', "{}", "[]", "x", None], plan_of(), form)
        assert list(map(reason, found)) == [None, None, Reason.NOT_OBJECT, Reason.BROKEN, Reason.EMPTY]


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
            "float64": ("1e309", "-1e400", "-Infinity", "9" * 400),
            "price": ("1000", "-1000.01", "1.234", "1e-3", "9" * 45, "NaN"),
            "huge": ("9" * 39, "1.5", "1e39"),
            "counts": (f"[{2**31}]",),
            "sizes": (f'{{"a": {2**70}}}',),
            "moments": ('{"days": ["0000-12-31"]}', '{"price": 1.234}', '{"price": 100}', '{"share": 3.5e38}'),
        }.items()
        for text in texts
    ),
    *(
        (name, text, Reason.WRONG_TYPE)
        for name, texts in {
            "float32": ('"1.5"', "true", "[]", '"NaN"'),
            "float64": ('"1.5"', "false", "{}", '"Infinity"'),
            "boolean": ("1", '"true"', "[]"),
            "timestamp": ('"yesterday"', "true", "{}", "1e30", '"2024-13-01T00:00:00Z"', '""'),
            "binary": ('"%%%"', "5", "[]", '"AA"', '"AA=A"', '"é"'),
            "date": (
                *('"2024-02-30"', "19000", '"19000"', '"soon"', "true", '""', '"2024-05"', '"2024-05-06 "'),
                *('"2024-05-06T07:08:09Z"', '"2024-5-6"', '"2024-05-06\\n"', '"+12024-01-01"', '"0001-00-01"'),
            ),
            "place": ("5", '"x"', '{"lat": "north"}', '{"tags": "a"}', "[]"),
            "counts": ("5", '["a"]', "[1.5]", "{}"),
            "sizes": ("5", '{"a": "b"}', "[]"),
            "moments": ('{"at": "soon"}', '{"at": true}', '{"days": ["2024"]}', '{"local": "2024-05-06T07:08:09Z"}'),
        }.items()
        for text in texts
    ),
]


class TestMisfit:
    def test_has_a_reason_and_a_detail_that_names_field_value_and_type(self, form: Format) -> None:
        found = outcomes([one(name, text) for name, text, _ in MISFITS], PLAN, form)
        reasons = [(name, text, reason(fault)) for (name, text, _), fault in zip(MISFITS, found, strict=True)]
        assert reasons == MISFITS
        by_name = {column.name: column for column in COLUMNS}
        for (name, _, _), fault in zip(MISFITS, found, strict=True):
            column = by_name[name]
            assert detail(fault).startswith(f"{name}: ")
            assert detail(fault).endswith(f" is not {column.declared or column.iceberg}")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('{"int64": "12"}', 'int64: "12" is not long'),
            ('{"int64": 1.0}', "int64: 1.0 is not long"),
            ('{"int8": 300}', "int8: 300 is not int8"),
            ('{"price": 1.2340}', "price: 1.234 is not decimal(5,2)"),
            ('{"int64": "a", "int32": true, "utf8": "ok"}', 'int32: true is not int; int64: "a" is not long'),
            ('{"int32": "' + "x" * 500 + '"}', 'int32: "' + "x" * 59 + " is not int"),
            ('{"int64": "a", "zzz": NaN, "zzz": 1}', 'int64: "a" is not long'),
            ('{"int64": [1, {"a": 1.50}]}', 'int64: [1,{"a":1.50}] is not long'),
            ('{"timestamp": "soon"}', "timestamp: soon is not timestamptz"),
        ],
    )
    def test_is_shown_in_part(self, text: str, words: str, form: Format) -> None:
        """A value may be of any size."""
        assert detail(outcomes([text], PLAN, form)[0]) == words

    def test_is_never_shown_in_logs(self, form: Format) -> None:
        columns = (
            declared("someone@example.com", "long", required=True),
            declared("place", DECLARED["place"], required=False),
        )
        found = outcomes(
            ['{"someone@example.com": "secret"}', "{}", '{"someone@example.com": 1, "place": "secret"}'],
            plan_of(*columns),
            form,
        )
        told = [each.told for each in found if isinstance(each, Fault)]
        assert told == ["a field is not long", "a field is missing", "place is not struct"]

    def test_is_shown_with_a_day_that_python_does_not_have(self, form: Format) -> None:
        assert outcomes(['{"date": "0000-12-31"}'], PLAN, form) == [
            Fault(Reason.OUT_OF_RANGE, "date: 0000-12-31 is not date", "shape", "date is not date")
        ]

    def test_is_not_named_if_there_are_too_many(self, form: Format) -> None:
        columns = [declared(f"c{number}", "long", required=False) for number in range(60)]
        found = outcomes([json.dumps({each.name: "x" for each in columns}), '{"c59": "x"}'], plan_of(*columns), form)
        assert detail(found[0]).count(";") == 49
        assert detail(found[1]) == 'c59: "x" is not long'


class TestFirstFault:
    def test_is_the_first_required_field_that_is_missing_or_null(self, form: Format) -> None:
        columns = [declared(name, kind, required=True) for name, kind in (("id", "Int64"), ("total", "UInt64"))]
        values = [
            '{"id": 1, "total": 2}',
            '{"total": 2}',
            '{"id": null, "total": 2}',
            '{"id": 1}',
            '{"id": 1, "total": null}',
            "{}",
        ]
        found = outcomes(values, plan_of(*columns), form)
        assert list(map(reason, found)) == [None, *[Reason.MISSING] * 5]
        assert [detail(each) for each in found[1:]] == [
            f"{name} is missing" for name in ("id", "id", "total", "total", "id")
        ]
        assert {each.stage for each in found if isinstance(each, Fault)} == {"shape"}

    def test_is_that_of_the_first_stage_and_column(self, form: Format) -> None:
        columns = (
            declared("small", "UInt8", required=True),
            declared("id", "Int64", required=True),
            declared("ts", "Int64", required=False),
        )
        values = [
            '{"id": "x"}',
            "{}",
            '{"small": 300}',
            '{"small": 1, "id": 2}',
            '{"small": 1, "id": 2, "ts": 5}',
        ]
        found = outcomes(values, TablePlan("t", columns, "ts", "s"), form)
        assert list(map(reason, found)) == [
            Reason.WRONG_TYPE, Reason.MISSING, Reason.OUT_OF_RANGE, Reason.EVENT_TIME, None,
        ]  # fmt: skip


NAMES = (
    *("what?", "a b", "a'b", 'a"b', "a`b", "a.b", "x[0]", "$", "é😀", "null", "OBJECT<a", "a\nb", "a\\b", "a:b>", "9"),
    *("_broken", "_", "_parsed", "`; DROP TABLE x; --", "{0}", "%s", "$a", ""),
)


class TestOddName:
    def test_is_a_column_and_is_named_in_the_detail(self, form: Format) -> None:
        kinds = [("Int64", "UInt64")[number % 2] for number in range(len(NAMES))]
        columns = [declared(name, kind, required=False) for name, kind in zip(NAMES, kinds, strict=True)]
        found = outcomes([one(name, text) for name in NAMES for text in ("7", '"bad"')], plan_of(*columns), form)
        assert [row[name] for name, row in zip(NAMES, found[::2], strict=True) if isinstance(row, dict)] == [7] * len(
            NAMES
        )
        for column, fault in zip(columns, found[1::2], strict=True):
            assert (reason(fault), detail(fault)) == (Reason.WRONG_TYPE, f'{column.name}: "bad" is not {column.takes}')

    @pytest.mark.parametrize("name", [name for name in NAMES if name and "." not in name])
    def test_is_a_field_of_an_object(self, name: str, form: Format) -> None:
        doubled = name.replace('"', '""')
        plan = plan_of(ColumnPlan("s", "s", f'struct<"{doubled}": long>'))
        found = outcomes([json.dumps({"s": {name: 7}}), json.dumps({"s": {name: "bad"}})], plan, form)
        assert isinstance(found[0], dict)
        assert found[0]["s"] == {name: 7}
        assert reason(found[1]) is Reason.WRONG_TYPE


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
    names = [name for name in draw(FIELDS) if name not in ("_source", EVENT_TIME)] or ["a"]
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


def same(column: ColumnPlan, got: Any, value: Any) -> bool:
    if column.iceberg == "string" and not isinstance(value, str | None):
        return bool(json.loads(got) == value)
    if isinstance(value, int | float) and column.iceberg == "float":
        return math.isclose(got, value, rel_tol=1e-6, abs_tol=1e-37)
    if isinstance(value, int | float) and column.iceberg == "double":
        return bool(got == float(value))
    if isinstance(value, int | float) and column.iceberg.startswith("decimal"):
        return bool(got == Decimal(str(value)))
    return bool(got == value)


class TestAnyObject:
    @settings(max_examples=60, deadline=None)
    @given(batch=batches())
    def test_is_sound_with_its_values_or_faulty_with_a_reason(
        self, batch: tuple[Sequence[ColumnPlan], list[dict[str, Any]]]
    ) -> None:
        columns, objects = batch
        values: list[Value] = [json.dumps(each) for each in objects]
        fast, exact = (outcomes(values, plan_of(*columns), each) for each in FORMATS.values())
        assert fast == exact
        for row, each in zip(fast, objects, strict=True):
            wrong = [column.field for column in columns if not fits(column, each.get(column.field))]
            if wrong:
                assert any(name in detail(row) for name in wrong), (row, wrong)
            else:
                assert isinstance(row, dict), (row, columns, each)
                assert all(same(column, row[column.name], each.get(column.field)) for column in columns), (row, each)
