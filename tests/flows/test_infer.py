"""Columns from the data, by the written rule; and columns in their three spellings."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from catalog import canonical
from lakehouse_ingest.columns import EVENT_TIME, ColumnPlan, declared, from_table, inferred, to_iceberg, to_spark
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.formats import json_object
from lakehouse_ingest.planning import new_fields, plan_from_records, plan_from_settings
from lakehouse_ingest.records import FAULT, RECORD, SOURCE
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.shaping import TablePlan, shape
from tests.flows.conftest import FEW, Records


def types_of(records: Records, values: Sequence[Any]) -> dict[str, str | None]:
    """The fields of these objects with their Iceberg types; None for what holds no value yet."""
    texts = [value if isinstance(value, str | bytes) or value is None else json.dumps(value) for value in values]
    return {name: to_iceberg(kind) for name, kind in json_object.infer(records(texts))}


# -- from data --------------------------------------------------------------------------------------------

BY_RULE: dict[str, tuple[list[str], str | None]] = {
    "integers": (["1", "-5", "0"], "long"),
    "integers of 64 bits": ([str(2**63 - 1), str(-(2**63))], "long"),
    "integers beyond them": ([str(2**63), "1"], "decimal(38,0)"),
    "integers beyond any": (["9" * 60], "double"),
    "fractions": (["1.5", "0.25"], "double"),
    "fractions and integers": (["1", "1.5"], "double"),
    "fractions and big integers": (["1.5", str(2**70)], "double"),
    "exponents": (["1e3"], "double"),
    "booleans": (["true", "false"], "boolean"),
    "text": (['"a"', '""'], "string"),
    "dates stay text": (['"2024-05-06"', '"2024-05-06T07:08:09Z"'], "string"),
    "digits in quotes stay text": (['"12"'], "string"),
    "a value and nulls": (["null", "1", "null"], "long"),
    "nulls only": (["null"], None),
    "empty lists": (["[]"], None),
    "empty objects": (["{}"], None),
    "lists of nulls": (["[null]"], None),
    "objects of nulls": (['{"a": null, "b": []}'], None),
    "lists": (["[1, 2]", "[]", "null"], "list<long>"),
    "lists of fractions and integers": (["[1]", "[1.5]"], "list<double>"),
    "lists in lists": (["[[1]]", "[[]]"], "list<list<long>>"),
    "lists of objects": (['[{"a": 1}, {"b": "x"}]'], "list<struct<a: long, b: string>>"),
    "objects": (['{"a": 1}', '{"b": true}'], "struct<a: long, b: boolean>"),
    "objects with something empty": (['{"a": 1, "b": null, "c": []}'], "struct<a: long>"),
    "objects in objects": (['{"a": {"b": {"c": 1.5}}}'], "struct<a: struct<b: struct<c: double>>>"),
    "numbers and text in equal parts": (["1", '"x"'], "string"),
    "objects and numbers in equal parts": (["1", '{"a": 1}'], "string"),
    "lists and objects in equal parts": (["[1]", '{"a": 1}'], "string"),
    "mixed within a list": (['[1, "x"]'], "list<string>"),
    "mixed within an object": (['{"a": 1}', '{"a": "x"}'], "struct<a: string>"),
    "nine of ten numbers": (["1"] * 8 + ["2.5", '"broken"'], "double"),
    "eight of ten numbers": (["1"] * 8 + ['"x"', '"y"'], "string"),
    "nine of ten texts": (['"x"'] * 9 + ["5"], "string"),
    "nine of ten objects": (['{"a": 1}'] * 9 + ["5"], "struct<a: long>"),
    "nine of ten numbers, nulls not counted": (["1"] * 9 + ["null"] * 50 + ["true"], "long"),
}


def test_a_field_gets_the_narrowest_type_that_takes_its_values(records: Records) -> None:
    texts = [f"{{{json.dumps(name)}: {value}}}" for name, (values, _) in BY_RULE.items() for value in values]
    found = types_of(records, texts)
    assert {name: found[name] for name in BY_RULE} == {name: iceberg for name, (_, iceberg) in BY_RULE.items()}


def test_what_is_no_object_tells_nothing(records: Records) -> None:
    assert types_of(records, ["", None, "5", "[]", '["a"]', "null", '{"a": 1', b"\xff", "{}"]) == {}
    assert types_of(records, ["", None, "5", "[]", {"a": 1}, '{"b": 2', b"\xff"]) == {"a": "long"}
    assert types_of(records, []) == {}


NAMES = [
    *("what?", "a b", "a'b", 'a"b', "a`b", "``", "a.b", "", "x[0]", "é😀", "null", "struct", "OBJECT", "OBJECT<a"),
    *("a\nb", "a\\b", "a:b>", "9", "A", "a", "select", "timestamp", "decimal(1,2)", "_", "_broken", "$.a", "element"),
]


def test_any_name_may_be_a_field_and_lands_under_its_name(records: Records) -> None:
    """But for dots, which to Iceberg lead into a struct: at the top they become _, below the object stays JSON text."""
    below = [name for name in NAMES if "." not in name]
    frame = records(
        [
            json.dumps({name: number for number, name in enumerate(NAMES)}),
            json.dumps({"inner": dict.fromkeys(below, 1), "dotted": {"x.y": 1}}),
        ]
    )
    fields = {name: to_iceberg(kind) for name, kind in json_object.infer(frame)}
    inner = fields.pop("inner")
    assert fields.pop("dotted") == "string"
    assert fields == dict.fromkeys(NAMES, "long")
    plan = plan_from_records("t", TableSettings(), frame).plan
    (row, other) = shape(json_object.decode(frame, plan.columns), plan).orderBy(f"{SOURCE}.offset").collect()
    assert row[FAULT] is None
    assert [row[name.replace(".", "_")] for name in NAMES] == list(range(len(NAMES)))
    assert other["dotted"] == '{"x.y":1}'
    named = T.DataType.fromDDL(to_spark(inner or ""))
    assert isinstance(named, T.StructType)
    assert sorted(named.names) == sorted(below)


def test_what_lies_too_deep_keeps_its_json_text(records: Records) -> None:
    """Some hundred levels would exceed what a schema can be walked through."""
    deep = '{"a":' * 200 + "1" + "}" * 200
    found = types_of(records, [deep])["a"] or ""
    assert 0 < found.count("struct<") < 50
    assert "string" in found


def test_fields_that_meet_our_columns_get_an_underscore_and_their_values(records: Records) -> None:
    ours = (SOURCE, RECORD, FAULT, EVENT_TIME)
    frame = records([json.dumps({**dict.fromkeys(ours, "theirs"), f"{SOURCE}_": "second", "ts": "2024-05-06"})])
    plan = plan_from_records("t", TableSettings.model_validate({"event_time": "ts"}), frame).plan
    names = {column.field: column.name for column in plan.columns}
    assert names == {
        **{name: f"{name}_" for name in ours},
        SOURCE: f"{SOURCE}__",
        f"{SOURCE}_": f"{SOURCE}_",
        "ts": "ts",
    }
    (row,) = shape(json_object.decode(frame, plan.columns), plan).collect()
    assert row[FAULT] is None
    assert [row[names[name]] for name in ours] == ["theirs"] * 4
    assert (row[f"{SOURCE}_"], row[SOURCE]["offset"], row[EVENT_TIME].day) == ("second", 0, 6)


def test_a_first_batch_that_tells_nothing_settles_nothing(records: Records) -> None:
    for values in ([], ["{}"], ['{"a": null}'], ["broken"]):
        assert not plan_from_records("t", TableSettings(), records(values)).settled


LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=5),
    st.none(),
)
FIELDS = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_size=4,
)


@FEW
@given(objects=st.lists(FIELDS, min_size=5, max_size=15))
def test_a_batch_whose_kinds_agree_lands_whole_in_its_own_columns(
    records: Records, objects: list[dict[str, Any]]
) -> None:
    """And where they do not agree, a record is set aside with its reason; nothing raises."""
    frame = records([json.dumps(each) for each in objects])
    planned = plan_from_records("t", TableSettings(event_time_unit="iso"), frame)
    names = {column.field: column for column in planned.plan.columns}
    for column in planned.plan.columns:
        assert canonical(column.iceberg)
        assert T.DataType.fromDDL(column.spark) is not None
    rows = shape(json_object.decode(frame, planned.plan.columns), planned.plan).orderBy(f"{SOURCE}.offset").collect()
    for row, each in zip(rows, objects, strict=True):
        if row[FAULT] is not None:
            assert row[FAULT]["detail"]
            continue
        for field, value in each.items():
            if isinstance(value, bool | str) and field in names and names[field].iceberg in ("boolean", "string"):
                assert row[names[field].name] == (
                    str(value).lower() if isinstance(value, bool) and names[field].iceberg == "string" else value
                )
            elif isinstance(value, int | float) and field in names and names[field].iceberg in ("long", "double"):
                assert math.isclose(row[names[field].name], value)


# -- fields that come later -------------------------------------------------------------------------------

PLAN = TablePlan(
    "t",
    (
        ColumnPlan("id", "id", "long"),
        ColumnPlan("place", "place", "struct<lat: double, more: struct<a: long>>"),
        ColumnPlan("parts", "parts", "list<struct<n: long>>"),
        ColumnPlan(f"{SOURCE}_", SOURCE, "string"),
    ),
    None,
    "iso",
)


def added(records: Records, *values: Any, plan: TablePlan = PLAN) -> list[tuple[str, str, str, str | None]]:
    found = new_fields(plan, records([json.dumps(value) for value in values]))
    return [(path, column.name, column.type, column.doc) for path, column in found]


def test_nothing_new_adds_nothing(records: Records) -> None:
    assert added(records, {"id": 1, "place": {"lat": 1.5, "more": {"a": 1}}, "parts": [{"n": 1}], SOURCE: "x"}) == []
    assert added(records) == []


def test_a_new_field_becomes_a_column(records: Records) -> None:
    assert added(records, {"id": 1, "unit": "K"}, {"ok": True}) == [
        ("", "ok", "boolean", None),
        ("", "unit", "string", None),
    ]


def test_new_fields_are_found_at_any_depth(records: Records) -> None:
    value = {"place": {"lon": 1.5, "more": {"b": "x"}}, "parts": [{"n": 1}, {"m": {"deep": [1]}}]}
    assert sorted(added(records, value)) == [
        ("parts.element", "m", "struct<deep: list<long>>", None),
        ("place", "lon", "double", None),
        ("place.more", "b", "string", None),
    ]


def test_a_field_without_a_value_waits(records: Records) -> None:
    assert added(records, {"later": None, "place": {"later": []}, "parts": [{"later": {}}]}) == []


def test_a_field_of_another_type_is_no_new_field(records: Records) -> None:
    assert added(records, {"id": "text", "place": 5, "parts": {"n": 1}}) == []


def test_a_new_field_never_takes_the_name_of_a_column(records: Records) -> None:
    assert added(records, {EVENT_TIME: 1, f"{SOURCE}_": 2, f"{EVENT_TIME}_": 3, RECORD: 4}) == [
        ("", f"{RECORD}_", "long", f"field {RECORD}"),
        ("", f"{SOURCE}__", "long", f"field {SOURCE}_"),
        ("", f"{EVENT_TIME}_", "long", f"field {EVENT_TIME}"),
        ("", f"{EVENT_TIME}__", "long", f"field {EVENT_TIME}_"),
    ]


# -- columns in their spellings ---------------------------------------------------------------------------

SPELLINGS = {
    # declared: (Iceberg, Spark, read as, range)
    "Utf8": ("string", "string", "string", None),
    "Int8": ("int", "int", "bigint", (-128, 127)),
    "Int16": ("int", "int", "bigint", (-32768, 32767)),
    "Int32": ("int", "int", "int", None),
    "Int64": ("long", "bigint", "bigint", None),
    "UInt8": ("int", "int", "bigint", (0, 255)),
    "UInt16": ("int", "int", "bigint", (0, 65535)),
    "UInt32": ("long", "bigint", "bigint", (0, 2**32 - 1)),
    "UInt64": ("decimal(20,0)", "decimal(20,0)", "decimal(38,18)", (0, 2**64 - 1)),
    "Float32": ("float", "float", "float", None),
    "Float64": ("double", "double", "double", None),
    "Boolean": ("boolean", "boolean", "boolean", None),
    "Timestamp": ("timestamptz", "timestamp", "string", None),
    "Binary": ("binary", "binary", "binary", None),
    "string": ("string", "string", "string", None),
    "bigint": ("long", "bigint", "bigint", None),
    "date": ("date", "date", "date", None),
    " Decimal( 10, 2 ) ": ("decimal(10,2)", "decimal(10,2)", "decimal(38,30)", None),
    "struct<Lat: double, at: timestamptz>": (
        "struct<Lat: double, at: timestamptz>",
        "struct<Lat: double, at: timestamp>",
        "struct<Lat: double, at: timestamp>",
        None,
    ),
    'list<struct<"odd: <name": decimal(9, 2)>>': (
        'list<struct<"odd: <name": decimal(9, 2)>>',
        "array<struct<`odd: <name`: decimal(9, 2)>>",
        "array<struct<`odd: <name`: decimal(9, 2)>>",
        None,
    ),
    "list<map<string, long>>": (
        "list<map<string, long>>",
        "array<map<string, bigint>>",
        "array<map<string, bigint>>",
        None,
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("required", [True, False])
def test_a_declared_type_in_all_its_spellings(name: str, *, required: bool) -> None:
    iceberg, spark, wire, bounds = SPELLINGS[name]
    column = declared("c", name, required=required)
    assert (column.iceberg, column.spark, column.wire, column.required) == (iceberg, spark, wire, required)
    assert ((column.low, column.high) if column.low is not None else None) == bounds


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_column_is_the_same_when_it_comes_back_from_the_table(name: str) -> None:
    column = declared("c", name, required=True)
    assert canonical(column.iceberg)
    assert from_table("c", column.iceberg, column.doc, required=True) == column


def test_a_renamed_field_survives_in_the_table() -> None:
    (column,) = inferred([(SOURCE, "string")], ())
    assert from_table(column.name, column.iceberg, column.doc, required=False) == column


def test_a_strangers_doc_string_means_nothing() -> None:
    assert from_table("c", "int", "declared by finance", required=False) == ColumnPlan("c", "c", "int")


@pytest.mark.parametrize(
    "name",
    [
        *("Int128", "varchar(5)", "struct", "", "decimal", "decimal(10)", "time stamp"),
        *("decimal(39,0)", "decimal(5,6)", "decimal(0,0)"),
        *("list<>", "list<Int8>", "struct<a: text>", "map<string, list<long>", "list<decimal(50,2)>"),
    ],
)
def test_an_unknown_type_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(SettingsRefused, match=r"of column c is not known; there are string, .*uint64"):
        declared("c", name, required=False)


@pytest.mark.parametrize("kind", ["Timestamp", "boolean", "UINT8", "utf8"])
def test_a_types_case_means_nothing(kind: str) -> None:
    assert declared("c", kind, required=False) == declared("c", kind.lower(), required=False)


TYPES = st.recursive(
    st.sampled_from(["long", "int", "double", "string", "timestamptz", "timestamp", "date", "binary", "decimal(38,0)"]),
    lambda inner: st.one_of(
        inner.map(lambda each: f"list<{each}>"),
        inner.map(lambda each: f"map<string, {each}>"),
        st.dictionaries(
            st.text(min_size=1, max_size=5) | st.sampled_from(["long", "list", "timestamp"]),
            inner,
            min_size=1,
            max_size=3,
        ).map(
            lambda fields: (
                "struct<"
                + ", ".join('"{}": {}'.format(name.replace('"', '""'), each) for name, each in fields.items())
                + ">"
            )
        ),
    ),
    max_leaves=5,
)


@FEW
@given(iceberg=TYPES)
def test_any_iceberg_type_is_read_by_spark_with_its_fields_names_as_they_were(spark: object, iceberg: str) -> None:
    def names(kind: T.DataType) -> list[str]:
        match kind:
            case T.StructType():
                return [name for field in kind.fields for name in (field.name, *names(field.dataType))]
            case T.ArrayType():
                return names(kind.elementType)
            case T.MapType():
                return names(kind.valueType)
        return []

    def written(text: str) -> list[str]:
        found, at = [], 0
        while at < len(text):
            if text[at] == '"':
                end = at + 1
                while text[end] != '"' or text[end : end + 2] == '""':
                    end += 2 if text[end] == '"' else 1
                found.append(text[at + 1 : end].replace('""', '"'))
                at = end
            at += 1
        return found

    del spark
    assert names(T.DataType.fromDDL(to_spark(iceberg))) == written(iceberg)


# -- declared columns of a table --------------------------------------------------------------------------


def planned(*names: str, **settings: Any) -> tuple[ColumnPlan, ...]:
    columns = [{"name": name, "type": "Int64"} for name in names]
    return plan_from_settings("ns.t", TableSettings.model_validate({"columns": columns, **settings}))


@pytest.mark.parametrize("name", [SOURCE, RECORD, FAULT])
def test_a_declared_column_may_not_take_the_name_of_one_of_ours(name: str) -> None:
    with pytest.raises(SettingsRefused, match=f"column name {name} is taken"):
        planned("a", name)


def test_a_column_declared_twice_is_refused() -> None:
    with pytest.raises(SettingsRefused, match=r"column a is declared twice for table ns\.t"):
        planned("a", "b", "a")


def test_an_event_time_beside_the_declared_columns_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="`event_time` names ts, which is not among the columns"):
        planned("a", event_time="ts")


def test_a_column_named_like_the_event_time_must_be_it() -> None:
    with pytest.raises(SettingsRefused, match="column name event_time is taken by the time found in ts"):
        planned("ts", EVENT_TIME, event_time="ts")
    assert [column.name for column in planned(EVENT_TIME, event_time=EVENT_TIME)] == [EVENT_TIME]
