"""Columns from the data, by the written rule; and columns in their three spellings."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from catalog import canonical
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.schema.column_types import to_iceberg, to_spark, width
from lakehouse_ingest.schema.columns import (
    EVENT_TIME,
    HINTED,
    MEETS,
    NO_NAME,
    TOO_MANY,
    ColumnPlan,
    RefusedField,
    TablePlan,
    declared,
    from_table,
    named,
)
from lakehouse_ingest.schema.declared import plan_from_settings, spec
from lakehouse_ingest.schema.existing import plan_from_table
from lakehouse_ingest.schema.names import readable
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import infer, json_object
from lakehouse_ingest.stages.shaping import shape
from lakehouse_ingest.tables import TableState
from lakehouse_ingest.tables.first_batch import Planned, plan_from_records
from lakehouse_ingest.tables.growth import Growth, new_fields
from tests.flows.conftest import FEW, Records


def texts_of(values: Sequence[Any]) -> list[Any]:
    return [value if isinstance(value, str | bytes) or value is None else json.dumps(value) for value in values]


def types_of(records: Records, values: Sequence[Any]) -> dict[str, str | None]:
    """The fields of these objects with their Iceberg types; None for what holds no value yet."""
    return {name: to_iceberg(kind) for name, kind in infer(json_object, records(texts_of(values)))}


def first(frame: DataFrame, *, refuse_names: bool = False, **settings: Any) -> Planned:
    """The plan of a table whose first batch this is."""
    of_table = TableSettings.model_validate(settings)
    return plan_from_records("t", of_table, json_object, infer(json_object, frame), frame, refuse_names=refuse_names)


def rows_of(frame: DataFrame, planned: Planned) -> list[Row]:
    rows = shape(json_object.decode(frame, planned.plan.columns, planned.refused), planned.plan)
    return rows.orderBy(f"{SOURCE}.offset").collect()


def as_table(plan: TablePlan, **settings: Any) -> TableState:
    """The table as the next start finds it."""
    made = spec(plan, TableSettings.model_validate(settings))
    return TableState("t", "u", "", 2, 0, made.columns, made.partitions or (), made.sort, made.properties, {}, {}, "")


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
    "objects with an empty key": (['{"": 1, "b": 2}'], "string"),
    "objects with a dot in a key": (['{"a.b": 1}'], "string"),
    "objects with keys that differ by case": (['{"a": 1}', '{"A": 2}'], "string"),
    "objects with such an object": (['{"a": {"x": 1, "X": 2}, "b": 1}'], "struct<a: string, b: long>"),
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


def test_any_key_lands_in_a_column_of_a_readable_name(records: Records) -> None:
    """Below the top a key is a name as it is; an object with keys that can't be names keeps its JSON text."""
    below = [name for name in NAMES if name and "." not in name and name != "A"]
    top = [*NAMES, "k" * 300, "Schlüssel", "ключ", "_file"]
    frame = records(
        [
            json.dumps({name: number for number, name in enumerate(top)}),
            json.dumps({"inner": dict.fromkeys(below, 1), "dotted": {"x.y": 1}, "empty": {"": 1}}),
        ]
    )
    planned = first(frame)
    columns = {column.field: column for column in planned.plan.columns}
    names = [column.name for column in columns.values()]
    assert all(readable(name) == name for name in names)
    assert len({name.casefold() for name in names}) == len(names) == len(top) + 3
    (row, other) = rows_of(frame, planned)
    assert row[FAULT] is None
    assert [row[columns[name].name] for name in top] == list(range(len(top)))
    assert (other["dotted"], other["empty"]) == ('{"x.y":1}', '{"":1}')
    struct = T.DataType.fromDDL(columns["inner"].spark)
    assert isinstance(struct, T.StructType)
    assert sorted(struct.names) == sorted(below)
    assert plan_from_table(as_table(planned.plan), TableSettings()) == planned.plan, "the doc strings keep the keys"


def test_what_cannot_be_told_from_another_parsers_view_is_seen_as_the_columns_are_read(records: Records) -> None:
    """NaN, a key that comes twice, many tables at once: the fields are those that from_json finds."""
    assert types_of(records, ['{"a": NaN, "b": 1}', '{"c": 1, "c": 2, "d": true}']) == {
        "a": "double",
        "b": "long",
        "c": "long",
        "d": "boolean",
    }


def test_one_aggregate_tells_the_fields_of_many_tables(records: Records) -> None:
    frame = records(['{"a": 1}', '{"a": "x"}', '{"a": [true]}', "broken", "[]"])
    grouped = frame.groupBy((F.col(RECORD)["offset"] % 4).alias("group")).agg(json_object.seen().alias("seen"))
    found = {row["group"]: json_object.fields_of(row["seen"]) for row in grouped.collect()}
    assert found == {
        0: [("a", T.LongType())],
        1: [("a", T.StringType())],
        2: [("a", T.ArrayType(T.BooleanType()))],
        3: [],
    }


def test_what_lies_too_deep_keeps_its_json_text(records: Records) -> None:
    for deep in ('{"a":' * 200 + "1" + "}" * 200, '{"a":' + "[" * 199 + "]" * 199 + "}"):
        frame = records([deep])
        found = types_of(records, [deep])["a"] or ""
        assert 0 < found.count("<") < 50
        assert "string" in found
        (row,) = rows_of(frame, first(frame))
        assert row[FAULT] is None


@pytest.mark.parametrize("levels", [201, 334, 999, 1_000, 10_000])
def test_what_nobody_reads_so_deep_is_set_aside_and_harms_no_neighbour(records: Records, levels: int) -> None:
    deep = ['{"a":' * levels + "1" + "}" * levels, '{"zzz":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"]
    frame = records([*deep, '{"b": 1}'])
    planned = first(frame)
    *dead, sound = rows_of(frame, planned)
    assert [column.field for column in planned.plan.columns] == ["b"]
    assert (sound[FAULT], sound["b"]) == (None, 1)
    for row in dead:
        assert row[FAULT]["reason"] == Reason.BROKEN
        assert "more than 200 levels deep" in row[FAULT]["detail"]


@pytest.mark.parametrize("text", [r'{"\ud800": 1, "\ud801": 2}', r'{"a": 1, "\uDC00x": 2}', r'{"a": "\ud83d"}'])
def test_half_a_character_is_set_aside_and_harms_no_neighbour(records: Records, text: str) -> None:
    frame = records([text, r'{"b": "\\ud800 \ud83d\ude00 \uD83D\uDE00"}'])
    dead, sound = rows_of(frame, first(frame))
    assert dead[FAULT]["reason"] == Reason.NOT_TEXT
    assert (sound[FAULT], sound["b"]) == (None, r"\ud800 😀 😀")


def test_fields_that_meet_our_columns_or_one_another_are_told_apart_and_keep_their_values(records: Records) -> None:
    """Nor does one have the name of a partition, which Iceberg gives to no column."""
    of_partitions = ("event_time_day", "A_bucket", "part")
    ours = (SOURCE, RECORD, FAULT, EVENT_TIME, "Event_Time", "a", "A", "a b", "a_b", "", "site", *of_partitions)
    frame = records([json.dumps({**{name: f"of {name}" for name in ours}, "ts": "2024-05-06"})])
    layout = ["day(event_time)", "site", "bucket(4, a_b)", "bucket(8, A) as A_bucket", "truncate(2, A) as part"]
    planned = first(frame, event_time="ts", partition_by=layout)
    assert plan_from_table(as_table(planned.plan, partition_by=layout), TableSettings()) == planned.plan
    names = {column.field: column.name for column in planned.plan.columns}
    assert not {SOURCE, RECORD, FAULT, EVENT_TIME, *of_partitions} & set(names.values())
    assert names["site"] == "site", "a partition as it is has the name of its own column"
    assert len({name.casefold() for name in names.values()}) == len(names)
    (row,) = rows_of(frame, planned)
    assert row[FAULT] is None
    assert {name: row[names[name]] for name in ours} == {name: f"of {name}" for name in ours}
    assert (row[SOURCE]["offset"], row[EVENT_TIME].day) == (0, 6)


def test_fields_whose_names_meet_are_refused_where_that_is_set(records: Records) -> None:
    values = [{"a": 1}, {"A": 2}, {"A": None, "b": 1}, {SOURCE: 1}, {"x y": 1}, {"x_y": 1}, {"event_time_day": 1}]
    frame = records(texts_of(values))
    planned = first(frame, refuse_names=True)
    assert [column.name for column in planned.plan.columns] == ["A", "b", "x_y"]
    assert set(planned.refused) == {RefusedField((), name, MEETS) for name in ("a", SOURCE, "x_y", "event_time_day")}
    rows = rows_of(frame, planned)
    assert [row[FAULT] and (row[FAULT]["reason"], row[FAULT]["detail"]) for row in rows] == [
        ("no_column", f"a: {MEETS}"),
        None,
        None,
        ("no_column", f"{SOURCE}: {MEETS}"),
        None,
        ("no_column", f"x_y: {MEETS}"),
        ("no_column", f"event_time_day: {MEETS}"),
    ]


def test_a_first_batch_that_tells_nothing_settles_nothing(records: Records) -> None:
    for values in ([], ["{}"], ['{"a": null}'], ["broken"]):
        assert not first(records(values)).settled


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
    planned = first(frame, event_time_unit="iso", infer_times=False)
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


def growth(records: Records, *values: Any, plan: TablePlan = PLAN, **settings: Any) -> Growth:
    frame = records(texts_of(values))
    of_table = TableSettings.model_validate(settings)
    seen = frame.agg(json_object.seen()).collect()[0][0]
    return new_fields(plan, of_table, json_object, json_object.fields_of(seen), frame)


def added(
    records: Records, *values: Any, plan: TablePlan = PLAN, **settings: Any
) -> list[tuple[str, str, str, str | None]]:
    found = growth(records, *values, plan=plan, **settings)
    assert found.refused == ()
    return [(path, column.name, column.type, column.doc) for path, column in found.columns]


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


def test_a_value_of_another_kind_hides_no_field_of_its_neighbours(records: Records) -> None:
    """Or what is new in an object would be lost in each batch that has one broken record."""
    assert added(records, {"place": 5}, {"place": {"lon": 1.5}}, {"parts": [5]}, {"parts": [{"m": 1}]}) == [
        ("parts.element", "m", "long", None),
        ("place", "lon", "double", None),
    ]


def test_a_new_field_of_mixed_kinds_has_the_usual_one(records: Records) -> None:
    values = [{"x'[]\"": each, "y": each} for each in [1] * 9 + ["broken"]] + [{"y": "text"}]
    assert sorted(added(records, *values)) == [("", "x____", "long", "field x'[]\""), ("", "y", "string", None)]


def test_a_field_without_a_value_waits(records: Records) -> None:
    assert added(records, {"later": None, "place": {"later": []}, "parts": [{"later": {}}]}) == []


def test_a_field_of_another_type_is_no_new_field(records: Records) -> None:
    assert added(records, {"id": "text", "place": 5, "parts": {"n": 1}}) == []


def test_a_new_field_never_takes_the_name_of_a_column(records: Records) -> None:
    plan = replace(PLAN, partitions=frozenset({"id_bucket"}))
    found = added(records, {EVENT_TIME: 1, f"{SOURCE}_": 2, "ID": 3, RECORD: 4, "id_bucket": 5}, plan=plan)
    assert [(kind, doc) for _, _, kind, doc in found] == [
        ("long", f"field {name}") for name in ("ID", RECORD, f"{SOURCE}_", EVENT_TIME, "id_bucket")
    ]
    names = {name.casefold() for _, name, _, _ in found}
    assert len(names) == 5
    assert not names & {EVENT_TIME, RECORD, "id", "id_bucket", *(column.name for column in PLAN.columns)}


def test_a_number_today_and_an_object_tomorrow_is_a_dead_letter(records: Records) -> None:
    frame = records(['{"id": {"new": 1}}', '{"id": 1}'])
    assert added(records, '{"id": {"new": 1}}', '{"id": 1}') == []
    dead, sound = rows_of(frame, Planned(PLAN))
    assert (dead[FAULT]["reason"], dead[FAULT]["detail"]) == (Reason.WRONG_TYPE, 'id: {"new":1} is not long')
    assert (sound[FAULT], sound["id"]) == (None, 1)


WITHIN: list[tuple[Any, Sequence[str | None], str, str]] = [
    # a record with a new field that can't be one, where that is, its name, and why
    ({"place": {"": 1}}, ("place",), "", NO_NAME),
    ({"place": {"a.b": 1}}, ("place",), "a.b", NO_NAME),
    ({"place": {"LAT": 1}}, ("place",), "LAT", MEETS),
    ({"place": {"more": {"A": 1}}}, ("place", "more"), "A", MEETS),
    ({"parts": [{"n": 1}, {"N": 1}]}, ("parts", None), "N", MEETS),
    ({"parts": [{"o": 1}, {"n": 1, "q\"'[": 1, "O": 2}]}, ("parts", None), "o", MEETS),
]


def test_a_record_with_a_field_that_can_have_no_place_in_its_object_is_set_aside(records: Records) -> None:
    """Those that hold nothing in it land."""
    values = [
        *(each for each, *_ in WITHIN),
        {"place": {"": None, "a.b": None, "LAT": None, "lat": 1.5}},
        {"parts": [{"N": None, "n": 1}, None], "id": 5},
    ]
    found = growth(records, *values)
    assert set(found.refused) == {RefusedField(tuple(where), name, why) for _, where, name, why in WITHIN}
    assert [(path, column.name) for path, column in found.columns] == [
        ("parts.element", "O"),
        ("parts.element", "q\"'["),
    ]
    *dead, one, other = rows_of(records(texts_of(values)), Planned(PLAN, refused=found.refused))
    assert [row[FAULT]["reason"] for row in dead] == [Reason.NO_COLUMN] * len(WITHIN)
    assert [row[FAULT]["detail"] for row in dead] == [
        f"{where}{name}: {why}"
        for where, (_, _, name, why) in zip(
            ("place.", "place.", "place.", "place.more.", "parts[].", "parts[]."), WITHIN, strict=True
        )
    ]
    assert (one[FAULT], one["place"]["lat"]) == (None, 1.5)
    assert (other[FAULT], other["id"]) == (None, 5)


def test_a_refused_field_costs_nothing_where_there_is_none_and_survives_broken_records(records: Records) -> None:
    values: list[Any] = ["", None, "x", "[]", b"\xff", {"x": 1}, {"id": 1}, {"x": None}, '{"x": 1', '{"x": 1, "x": 2}']
    rows = rows_of(records(texts_of(values)), Planned(PLAN, refused=(RefusedField((), "x", TOO_MANY),)))
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [
        "empty_value",
        "empty_value",
        "broken_json",
        "not_an_object",
        "not_utf8",
        "no_column",
        None,
        None,
        "broken_json",
        "no_column",
    ]


# -- how many ---------------------------------------------------------------------------------------------


def test_beyond_max_columns_a_record_is_set_aside_and_an_object_keeps_its_json_text(records: Records) -> None:
    values = [{"b": 1}, {"a": 1, "z": None}, {"c": {"x": 1, "y": 2}}, {"d": 1}, {"d": None, "a": 2}]
    frame = records(texts_of(values))
    planned = first(frame, max_columns=3)
    assert [(column.name, column.iceberg) for column in planned.plan.columns] == [
        ("a", "long"),
        ("b", "long"),
        ("c", "string"),
    ]
    assert planned.refused == (RefusedField((), "d", TOO_MANY),)
    assert [row[FAULT] and (row[FAULT]["reason"], row[FAULT]["detail"]) for row in rows_of(frame, planned)] == [
        None,
        None,
        None,
        ("no_column", f"d: {TOO_MANY}"),
        None,
    ]


def test_fields_within_objects_count_as_columns(records: Records) -> None:
    wide = sum(width(column.iceberg) for column in PLAN.columns)
    assert wide == 8
    value = {"place": {"p": {"q": 1}, "r": 1}, "parts": [{"m": 1}], "x": 1}
    assert len(added(records, value, max_columns=wide + 5)) == 4
    found = growth(records, value, max_columns=wide + 1)
    assert [(path, column.name, column.type) for path, column in found.columns] == [("parts.element", "m", "long")]
    assert {(each.within, each.name) for each in found.refused} == {(("place",), "p"), (("place",), "r"), ((), "x")}
    assert not growth(records, value, max_columns=1).columns


def test_the_event_time_and_hinted_fields_have_room_before_all_others(records: Records) -> None:
    frame = records(texts_of([{"a": 1, "b": 2, "y": 3, "z": "2024-05-06"}]))
    planned = first(frame, max_columns=2, event_time="z", hints={"y": "int"})
    assert {column.field: column.iceberg for column in planned.plan.columns} == {"y": "int", "z": "string"}
    assert [each.name for each in planned.refused] == ["a", "b"]


def test_ten_thousand_fields_in_a_batch_are_a_matter_of_seconds(records: Records) -> None:
    """Always the same become columns, and the records of all others are set aside."""
    values = [{f"f{number:05}": number, "mixed": [number, str(number)][number % 2]} for number in range(10_000)]
    frame = records(texts_of(values))
    started = monotonic()
    planned = first(frame, max_columns=100)
    print(f"planned in {monotonic() - started:.1f} s")
    assert [column.name for column in planned.plan.columns] == [f"f{number:05}" for number in range(100)]
    assert len(planned.refused) == 9_901
    rows = shape(json_object.decode(frame, planned.plan.columns, planned.refused), planned.plan)
    dead = rows.where(F.col(FAULT).isNotNull()).groupBy(F.col(FAULT)["reason"]).count().collect()
    assert [tuple(row) for row in dead] == [("no_column", 10_000)]


# -- hints ------------------------------------------------------------------------------------------------


def test_a_hint_tells_the_type_of_a_field_from_its_first_appearance_on(records: Records) -> None:
    hints = {
        "price": "decimal(9,2)",
        "small": "UInt8",
        "a b": "Int16",
        "day": "date",
        "at": "timestamptz",
        "no": "long",
    }
    values = [
        {"price": 1, "small": None, "a b": 5, "day": "2024-05-06", "at": 1714979289000001, "z": 1},
        {"small": 300},
        {"price": 1.234},
        {"a b": 70000},
        {"day": "2024-02-30"},
        {"at": "yesterday"},
    ]
    frame = records(texts_of(values))
    planned = first(frame, hints=hints)
    assert {column.name: column.iceberg for column in planned.plan.columns} == {
        "price": "decimal(9,2)",
        "small": "int",
        "a_b": "int",
        "day": "date",
        "at": "timestamptz",
        "z": "long",
    }
    rows = rows_of(frame, planned)
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [
        None,
        "out_of_range",
        "out_of_range",
        "out_of_range",
        "wrong_type",
        "wrong_type",
    ]
    assert (str(rows[0]["price"]), rows[0]["a_b"], rows[0]["at"].microsecond) == ("1.00", 5, 1)
    settings = TableSettings.model_validate({"hints": hints})
    assert plan_from_table(as_table(planned.plan), settings) == planned.plan
    assert plan_from_table(as_table(planned.plan), TableSettings()) == planned.plan, "ranges are kept with the table"


def test_a_later_field_has_its_hint_too_and_takes_no_other_type_for_want_of_room(records: Records) -> None:
    hints = {"new": "uint8", "object": "struct<a: int>"}
    values = [{"new": None, "object": {"a": 1}}]
    assert added(records, *values, hints=hints) == [
        ("", "new", "int", "declared uint8"),
        ("", "object", "struct<a: int>", None),
    ]
    found = growth(records, *values, hints=hints, max_columns=9)
    assert [column.name for _, column in found.columns] == ["new"]
    assert [each.name for each in found.refused] == ["object"]


def test_a_hinted_object_has_the_fields_of_its_hint(records: Records) -> None:
    hints = {"place": "struct<lat: double, more: struct<a: long>>"}
    found = growth(records, {"place": {"lat": 1, "lon": 2}}, hints=hints)
    assert (found.columns, found.refused) == ([], (RefusedField(("place",), "lon", HINTED),))


def test_a_hint_for_a_column_of_another_type_is_refused(records: Records) -> None:
    state = as_table(first(records(['{"a b": 1}'])).plan)
    with pytest.raises(TableChanged, match="the column a_b of t is long, the settings say string"):
        plan_from_table(state, TableSettings.model_validate({"hints": {"a b": "string"}}))


def test_hints_that_say_nothing_or_contradict_declared_columns_are_refused() -> None:
    for settings, said in (
        ({"hints": {"a": "integer"}}, "give a the type 'integer', which is not known; did you mean"),
        ({"hints": {"a": "int"}, "columns": [{"name": "b", "type": "int"}]}, "`hints` are for columns taken from"),
    ):
        with pytest.raises(SettingsRefused, match=said):
            plan_from_settings("t", TableSettings.model_validate(settings))


# -- times ------------------------------------------------------------------------------------------------

TIMES: Mapping[str, tuple[Sequence[str | None], str]] = {
    "dates": (["2024-05-06", None, "2024-02-29"], "date"),
    "times in Z": (["2024-05-06T07:08:09Z", "2024-05-06 07:08:09.123456Z"], "timestamptz"),
    "times with offsets": (
        ["2024-05-06T07:08:09+02:00", "2024-05-06T07:08:09.5-0530", "2024-05-06 07:08:09 +02"],
        "timestamptz",
    ),
    "dates and times": (["2024-05-06", "2024-05-06T07:08:09Z"], "string"),
    "times without zone": (["2024-05-06T07:08:09"], "string"),
    "finer times than a column keeps": (["2024-05-06T07:08:09.123456789Z"], "string"),
    "no such day": (["2024-05-06", "2024-02-30"], "string"),
    "no such hour": (["2024-05-06T25:00:00Z"], "string"),
    "the year 0": (["0000-01-01"], "string"),
    "a line behind": (["2024-05-06\n"], "string"),
    "spaces": ([" 2024-05-06"], "string"),
    "one that is none": (["2024-05-06", "soon"], "string"),
    "one that is empty": (["2024-05-06", ""], "string"),
    "a number among them": (["2024-05-06"] * 20 + ["20240506"], "string"),
    "another spelling": (["06.05.2024"], "string"),
}


def test_text_that_is_a_date_or_a_time_with_its_zone_in_all_records_becomes_one(records: Records) -> None:
    values = [{name: value} for name, (texts, _) in TIMES.items() for value in texts]
    frame = records(texts_of(values))
    found = {column.field: column.iceberg for column in first(frame).plan.columns}
    assert found == {name: kind for name, (_, kind) in TIMES.items()}
    assert {column.iceberg for column in first(frame, infer_times=False).plan.columns} == {"string"}


def test_new_text_fields_become_times_and_those_within_objects_stay_text(records: Records) -> None:
    value = {"day": "2024-05-06", "id": 1, "place": {"since": "2024-05-06"}, "days": ["2024-05-06"]}
    assert [(path, name, kind) for path, name, kind, _ in added(records, value)] == [
        ("place", "since", "string"),
        ("", "day", "date"),
        ("", "days", "list<string>"),
    ]
    assert ("", "day", "string", None) in added(records, value, infer_times=False)
    assert ("", "day", "string", None) in added(records, value, hints={"day": "string"})


def test_what_is_no_time_later_is_a_dead_letter(records: Records) -> None:
    planned = first(records(['{"day": "2024-05-06", "at": "2024-05-06T07:08:09Z"}']))
    bad = ["2024-02-30", "x", "2024-05-06T07:08:09Z", "2024-5-6", "19000", " 2024-05-06", "2024-05-06 ", ""]
    values: list[Any] = [{"day": each} for each in (*bad, 19000, True, {})] + [{"at": each} for each in ("x", "", True)]
    rows = rows_of(records(texts_of(values)), planned)
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [Reason.WRONG_TYPE] * len(values)
    sound = rows_of(
        records(['{"day": "2024-02-29"}', '{"at": "2024-05-06T09:08:09.5+02:00"}', '{"day": null}']), planned
    )
    assert [row[FAULT] for row in sound] == [None] * 3
    assert (sound[0]["day"].isoformat(), sound[1]["at"].isoformat()) == ("2024-02-29", "2024-05-06T07:08:09.500000")


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
    # To Spark's parser a letter beyond ASCII is no letter, and 1d a number.
    "struct<Öl: long, 1d: list<int>, n: int>": (
        "struct<Öl: long, 1d: list<int>, n: int>",
        "struct<`Öl`: bigint, `1d`: array<int>, n: int>",
        "struct<`Öl`: bigint, `1d`: array<int>, n: int>",
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
    fields = (SOURCE, "", "a b", "declared uint8", "field x", "two\nlines", "A", "a")
    columns, _ = named((declared(name, "UInt8", required=False) for name in fields), (), 100, refuse=False)
    more, _ = named((ColumnPlan(name, name, "string") for name in fields), (), 100, refuse=False)
    for column in (*columns, *more):
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
    with pytest.raises(
        SettingsRefused,
        match=r"`columns` or `hints` give c the type .*, which is not known; (did you mean \w|there are string, int, )",
    ):
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
    with pytest.raises(SettingsRefused, match=f"column name {name} of table ns.t is reserved"):
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
