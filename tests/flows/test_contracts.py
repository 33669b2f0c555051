"""What the columns have no place for, by contract: set aside, never lost, or the reason of a dead letter."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pydantic import ValidationError
from pyspark.sql import DataFrame, Row

from lakehouse_ingest.errors import TableChanged
from lakehouse_ingest.operations.promote.json_values import fitted, holds, parts_of, value_of
from lakehouse_ingest.pipeline.split_by_table import _decoded
from lakehouse_ingest.records import FAULT, RESCUED, SOURCE
from lakehouse_ingest.schema.column_types import to_iceberg
from lakehouse_ingest.schema.columns import TOO_MANY, TOO_MANY_NEW, ColumnPlan, RefusedField, TablePlan
from lakehouse_ingest.schema.contract import aside_of, has_beyond
from lakehouse_ingest.schema.declared import spec
from lakehouse_ingest.schema.existing import plan_that_stands
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import infer, json_object
from lakehouse_ingest.stages.shaping import shape
from lakehouse_ingest.tables import Relax, TableState, Widen, arrow_type
from lakehouse_ingest.tables.first_batch import Planned, plan_from_records
from lakehouse_ingest.tables.growth import new_fields
from lakehouse_ingest.tables.widening import outgrown
from tests.flows.conftest import FEW, Records

COLUMNS = (
    ColumnPlan("id", "id", "long"),
    ColumnPlan("small", "small", "int", low=0, high=255, declared="uint8"),
    ColumnPlan("at", "at", "timestamptz"),
    ColumnPlan("price", "price", "decimal(5,2)"),
    ColumnPlan("name_", "na me", "string"),
    ColumnPlan("place", "place", "struct<lat: double, more: struct<a: long>>"),
    ColumnPlan("parts", "parts", "list<struct<n: long>>"),
    ColumnPlan("tags", "tags", "map<string, long>"),
)
SOUND: dict[str, Any] = {
    "id": 1,
    "small": 5,
    "at": "2024-05-06T07:08:09Z",
    "price": 1.5,
    "na me": {"any": "thing"},
    "place": {"lat": 1, "more": {"a": 1}},
    "parts": [{"n": 1}, {}],
    "tags": {"x": 1},
}


FOLLOWS = TableSettings()


def settings_of(**changes: Any) -> TableSettings:
    return TableSettings.model_validate({"contract": "freeze", **changes})


def landed(
    frame: DataFrame, settings: TableSettings, columns: Sequence[ColumnPlan] = COLUMNS, **plan: Any
) -> list[Row]:
    planned = Planned(TablePlan("t", tuple(columns), None, "iso", aside=aside_of(settings)), **plan)
    return shape(_decoded(frame, json_object, planned), planned.plan).orderBy(f"{SOURCE}.offset").collect()


def texts(values: Sequence[Any]) -> list[str]:
    return [each if isinstance(each, str) else json.dumps(each) for each in values]


def rescued(row: Row) -> Any:
    assert row[FAULT] is None, row[FAULT]
    return None if row[RESCUED] is None else json.loads(row[RESCUED])


# -- what comes back of it --------------------------------------------------------------------------------

DAY, HOURS, SECONDS = "2024-05-06", "2024-05-06T07:08", "2024-05-06T07:08:09"
FRACTIONS = (".5", ",25", ".123456", ".1234560", ".123456999", ".1234567890")
ZONES = ("Z", "z", "UTC", "+02:00", "+0200", "+02", "+2", "-05:30", "-00:00", "+24:00", "+02:60", "+18:00", "+18:01")
TIMES = [
    *(f"{SECONDS}{each}" for each in ("", *FRACTIONS, *ZONES, " Z", "  Z", "\tZ", " +02", "\n", "Z\n", " ")),
    *(f"{DAY}{each}" for each in ("", " ", "\n", "Z", "T07", "T24:00:00Z", "T07:08:60Z", "T07:60:00Z", "x07:08:09Z")),
    *(HOURS, f"{HOURS}Z", f"{HOURS}+02:00", f"{HOURS} ", f" {DAY}", f"{DAY} 07:08:09", f"{DAY}t07:08:09Z", "20240506"),
    *("2024-02-29", "2023-02-29", "2024-13-01", "2024-W19-1", "2024-5-6", "2024-05", "2024", "0000-01-01"),
    *("0001-01-01", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "+12024-01-01", "٢٠٢٤-05-06", ""),
    *("9999-12-31", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-05:00", "yesterday", "now", "epoch"),
    *("1714979289", 1714979289, True),
]
NUMBERS = [
    *(0, -1, 255, 256, 2**31, -(2**31), 2**53 + 1, 2**63, 2**64, 10**28, -(10**37), 10**38 - 1, 10**38),
    *("1", True, [1]),
]
WORDS = "1.5 -0.0 1.50 1.555 999.99 999.995 1e2 1.0 0.1e1 1e30 1e38 1e308 1.7976931348623157e308 1e309 3.5e38 1e-400"
KINDS = ("int", "long", "float", "double", "boolean", "decimal(5,2)", "decimal(38,0)", "decimal(38,10)", "string")
ASKED = [(kind, json.dumps(each)) for kind in ("timestamptz", "date") for each in TIMES]
ASKED += [(kind, text) for kind in KINDS for text in (*map(json.dumps, NUMBERS), *WORDS.split())]


def test_what_promote_fills_is_what_would_have_landed(records: Records) -> None:
    """Of each value that was set aside and that the column takes at all."""
    columns = {kind: ColumnPlan(f"c{number}", f"c{number}", kind) for number, kind in enumerate(dict(ASKED))}
    planned = Planned(TablePlan("t", (*columns.values(),), None, "iso", aside=aside_of(settings_of())))
    frame = records([f'{{"{columns[kind].field}": {text}, "aside": {text}}}' for kind, text in ASKED])
    rows = shape(_decoded(frame, json_object, planned), planned.plan).orderBy(f"{SOURCE}.offset")
    landed = rows.select(FAULT, RESCUED, *(column.name for column in columns.values())).toArrow().to_pylist()
    found = []
    for (kind, text), row in zip(ASKED, landed, strict=True):
        value = value_of(parts_of(row[RESCUED])["aside"]) if row[FAULT] is None else None
        if str(value) == str(
            value_of(text)
        ):  # numbers may be written in another way there: see docs/concepts/limits.md
            with suppress(ValueError):
                filled = pa.array([fitted(value, arrow_type(kind))], arrow_type(kind))[0].as_py()
                found.append((kind, text, filled, row[columns[kind].name]))
    assert [(kind, text, filled, lands) for kind, text, filled, lands in found if filled != lands] == []
    assert {kind for kind, *_ in found} == columns.keys()


# -- set aside --------------------------------------------------------------------------------------------

# What is beside the sound fields, or in place of them, and what of it is set aside.
ASIDE: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = [
    ({}, None),
    ({"color": None, "empty": [], "nothing": {}, "less": [[], [None]], "id": {"a": [None]}}, None),
    ({"color": "red"}, {"color": "red"}),
    ({"color": {"deep": [1, {"x": None}]}, "n": 1.25}, {"color": {"deep": [1, {"x": None}]}, "n": 1.25}),
    ({"id": "one"}, {"id": "one"}),
    ({"id": {"new": 1}, "color": True}, {"id": {"new": 1}, "color": True}),
    ({"id": 2**70}, {"id": 2**70}),
    ({"small": 300}, {"small": 300}),
    ({"at": "yesterday"}, {"at": "yesterday"}),
    ({"price": 1.555}, {"price": 1.555}),
    ({"price": 12345.5}, {"price": 12345.5}),
    ({"price": "12"}, {"price": "12"}),
    ({"place": 5}, {"place": 5}),
    ({"place": {"lat": 2, "zone": "x"}}, {"place": {"lat": 2, "zone": "x"}}),
    ({"place": {"lat": "no", "more": {"a": 3}}}, {"place": {"lat": "no", "more": {"a": 3}}}),
    ({"place": {"more": {"a": 1, "b": [0]}}}, {"place": {"more": {"a": 1, "b": [0]}}}),
    ({"place": {"lat": 2, "zone": None}}, None),
    ({"parts": [{"n": 1}, {"m": 2}]}, {"parts": [{"n": 1}, {"m": 2}]}),
    ({"parts": [{"n": 1}, 7]}, {"parts": [{"n": 1}, 7]}),
    ({"parts": {"n": 1}}, {"parts": {"n": 1}}),
    ({"tags": {"x": 1, "y": "z"}}, {"tags": {"x": 1, "y": "z"}}),
    ({RESCUED: 1, "_source": 2}, {RESCUED: 1, "_source": 2}),
]


def test_what_has_no_place_is_set_aside_whole_and_the_rest_lands(records: Records) -> None:
    rows = landed(records(texts([{**SOUND, **given} for given, _ in ASIDE])), settings_of())
    for row, (given, wanted) in zip(rows, ASIDE, strict=True):
        assert rescued(row) == wanted, given
        assert row["name_"] == '{"any":"thing"}'
        assert (row["id"] == 1) is ("id" not in given), given
        assert (row["small"] == 5) is ("small" not in given)
        assert (row["at"] is not None) is ("at" not in given)
        assert (row["price"] is not None) is ("price" not in given)
    by = {json.dumps(given): row for row, (given, _) in zip(rows, ASIDE, strict=True)}
    assert by['{"place": {"lat": 2, "zone": "x"}}']["place"]["lat"] == 2, "what has a place is there"
    assert by['{"parts": [{"n": 1}, {"m": 2}]}']["parts"][0]["n"] == 1


def test_without_fields_beyond_the_columns_only_misfits_are_looked_for(records: Records) -> None:
    frame = records(texts([{"id": 1}, {"id": "x"}, {"small": 300}]))
    assert [rescued(row) for row in landed(frame, settings_of(), beyond=False)] == [None, {"id": "x"}, {"small": 300}]


def test_what_is_broken_stays_broken(records: Records) -> None:
    values = ["", "5", '{"id": 1', '{"id": "x"} more', "null", '{"a": "\\ud83d"}', "[]"]
    rows = landed(records(values), settings_of())
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [
        "empty_value",
        "not_an_object",
        "broken_json",
        "broken_json",
        "not_an_object",
        "not_utf8",
        "not_an_object",
    ]


def test_what_a_row_can_not_be_without_is_not_set_aside(records: Records) -> None:
    columns = (ColumnPlan("id", "id", "long", required=True), ColumnPlan("at", "at", "timestamptz"))
    planned = Planned(TablePlan("t", columns, "at", "iso", aside=aside_of(settings_of())))
    frame = records(texts([{"id": "x", "at": "2024-05-06"}, {"id": 1, "at": {}}, {"id": 1, "at": "2024-05-06"}]))
    rows = shape(_decoded(frame, json_object, planned), planned.plan).orderBy(f"{SOURCE}.offset").collect()
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == ["wrong_type", "wrong_type", None]


def test_a_refused_field_makes_its_record_a_dead_letter(records: Records) -> None:
    frame = records(texts([{"id": 1}, {"color": 1}, {"id": "x"}, {"place": {"zone": 1}}, {"small": 300}, {"e": []}]))
    rows = landed(frame, settings_of(contract="refuse"))
    faults = [row[FAULT] and (row[FAULT]["reason"], row[FAULT]["detail"].partition(":")[0]) for row in rows]
    assert faults == [
        None,
        ("no_column", "color"),
        ("wrong_type", "id"),
        ("no_column", "place"),
        ("out_of_range", "small"),
        None,
    ]
    assert RESCUED not in rows[0]


def test_the_nearest_rule_holds(records: Records) -> None:
    values = [{"color": 1}, {"place": {"zone": 1}}, {"place": {"more": {"b": 1}}}, {"place": {"lat": "x"}}, {"x": 1}]
    contracts = {"place": "refuse", "place.more": "freeze", "x": "refuse"}
    rows = landed(records(texts(values)), settings_of(contracts=contracts))
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == [None, "no_column", None, "wrong_type", "no_column"]
    assert [rescued(rows[number]) for number in (0, 2)] == [values[0], values[2]]


KEYS = st.sampled_from(["id", "small", "na me", "place", "parts", "tags", "color", "x.y", ""])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=3).filter(str.isprintable),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["lat", "n", "a", "zone"]), inner, max_size=2)
    ),
    max_leaves=4,
)


# Not made smaller: a frame a second makes that a matter of minutes, and the rows are told one by one.
@hypothesis.settings(FEW, phases=[hypothesis.Phase.reuse, hypothesis.Phase.generate])
@hypothesis.given(st.lists(st.dictionaries(KEYS, ANY, max_size=4), min_size=30, max_size=60))
def test_no_value_is_lost(records: Records, objects: list[dict[str, Any]]) -> None:
    """Each that holds something is in its column as it came, or among what was set aside as it came."""
    for row, given in zip(landed(records(texts(objects)), settings_of()), objects, strict=True):
        aside = rescued(row) or {}
        assert all(aside[key] == given[key] for key in aside)
        for key, value in given.items():
            if key in aside or not holds(value):
                continue
            column = {"na me": "name_"}.get(key, key)
            assert column in row.__fields__, (key, value)
            assert same(row[column], value), (key, value, row[column])


def same(got: Any, value: Any) -> bool:
    """What holds nothing may be missing."""
    if isinstance(got, Row):
        got = got.asDict()
    match value:
        case dict() if isinstance(got, dict):
            return all(same(got.get(key), each) for key, each in value.items() if holds(each))
        case list() if isinstance(got, list):
            return len(got) == len(value) and all(
                same(*pair) for pair in zip(got, value, strict=True) if holds(pair[1])
            )
        case _ if isinstance(got, str) and not isinstance(value, str):
            return bool(json.loads(got) == value)
    return bool(got == value)


# -- what becomes a column --------------------------------------------------------------------------------


def growing(records: Records, *values: Any, **changes: Any) -> tuple[list[str], tuple[RefusedField, ...]]:
    frame, settings = records(texts(values)), settings_of(**changes)
    plan = TablePlan("t", COLUMNS, None, "iso")
    found = new_fields(plan, settings, json_object, infer(json_object, frame), frame)
    return sorted(f"{path}.{column.name}".strip(".") for path, column in found.columns), found.refused


def test_columns_follow_by_contract(records: Records) -> None:
    value = {"color": 1, "place": {"zone": 1, "more": {"b": 1}}, "parts": [{"m": 1}]}
    for rule in ("freeze", "widen", "refuse"):
        assert growing(records, value, contract=rule) == ([], ())
    assert growing(records, value, contract="evolve")[0] == ["color", "parts.element.m", "place.more.b", "place.zone"]
    some = {"place": "freeze", "place.more": "evolve", "parts.element.m": "refuse"}
    assert growing(records, value, contract="evolve", contracts=some)[0] == ["color", "place.more.b"]
    assert growing(records, value, contracts={"color": "evolve"})[0] == ["color"]


def test_of_a_new_field_only_what_may_be_added_becomes_a_column(records: Records) -> None:
    value = {"ne w": {"ok": 1, "no": 2, "more": [{"ok": 1, "no": {"x": 1}}]}, "place": {"in": {"no": 1, "ok": 1}}}
    frame = records(texts([value, {"only": {"no": 1}}]))
    no = dict.fromkeys(("ne w.no", "ne w.more.element.no", "place.in.no", "only.no"), "freeze")
    settings = TableSettings.model_validate({"contracts": no})
    fields = infer(json_object, frame)
    found = new_fields(TablePlan("t", COLUMNS, None, "iso"), settings, json_object, fields, frame)
    assert {column.name: column.type for _, column in found.columns} == {
        "ne_w": "struct<more: list<struct<ok: long>>, ok: long>",
        "in": "struct<ok: long>",
    }


THINGS = (
    ColumnPlan("things", "things", "map<string, struct<a: long>>"),
    ColumnPlan("deep", "deep", "list<map<string, map<string, struct<a: long>>>>"),
)
MORE_THINGS = [
    {"things": {"x": {"a": 1, "b": 1}, "y": {"b": 2.5, "c": [{"d": 1}]}, "z": {"c": [{"e": "f"}], "b": None}}},
    {"things": {"x": {"b": 2**70, "m": 1}, "y": {"m": "one"}}, "deep": [{"i": {"j": {"k": True}}}, {}, None]},
]


def test_objects_in_maps_grow_by_what_all_of_them_bring(records: Records) -> None:
    frame = records(texts([*MORE_THINGS, {"things": "no object", "deep": {"x": {"y": {"hidden": 1}}}}]))
    found = new_fields(TablePlan("t", THINGS, None, "iso"), FOLLOWS, json_object, infer(json_object, frame), frame)
    assert {f"{path}.{column.name}": column.type for path, column in found.columns} == {
        "things.value.b": "double",
        "things.value.c": "list<struct<d: long, e: string>>",
        "things.value.m": "string",
        "deep.element.value.value.k": "boolean",
    }
    assert found.refused == ()


def test_a_field_that_may_not_become_one_in_a_map_makes_its_record_a_dead_letter(records: Records) -> None:
    frame = records(texts([*MORE_THINGS, {"things": {"x": {"a": 1}}}]))
    settings = TableSettings.model_validate({"max_columns": 4})
    planned = TablePlan("t", THINGS, None, "iso")
    found = new_fields(planned, settings, json_object, infer(json_object, frame), frame)
    assert found.columns == []
    rows = shape(_decoded(frame, json_object, Planned(planned, refused=found.refused)), planned).collect()
    assert [row[FAULT] and row[FAULT]["detail"] for row in rows] == [
        f"things[].b: {TOO_MANY}",
        f"deep[][][].k: {TOO_MANY}",
        None,
    ]


HINTED = {
    "place": "struct<lat: double, more: struct<a: long>>",
    "tags": "map<string, struct<a: long>>",
    "parts": "list<struct<n: long>>",
}
BEYOND_HINTS: list[tuple[dict[str, Any], str | None]] = [
    ({"place": {"lat": 1, "more": {"a": 1}, "zone": None}, "tags": {"x": {"a": 1}}, "parts": [{"n": 1}, {}]}, None),
    ({"place": {"lat": 1, "zone": "x"}}, "place.zone"),
    ({"place": {"more": {"b": [0]}}}, "place.more.b"),
    ({"tags": {"x": {"a": 1}, "y": {"b": 1}}}, "tags[].b"),
    ({"parts": [{"n": 1}, {"m": 2}]}, "parts[].m"),
    ({"place": "no object", "tags": 5, "parts": [[]]}, "parts"),
]


@pytest.mark.parametrize("there", [False, True])
def test_what_is_beyond_a_hint_is_a_misfit(records: Records, there: bool) -> None:  # noqa: FBT001 - a column by then
    """Whatever hides it in other records: the first ones, and those of a table that is there."""
    frame = records(texts([value for value, _ in BEYOND_HINTS]))
    settings = TableSettings.model_validate({"hints": HINTED})
    planned = plan_from_records("t", settings, json_object, infer(json_object, frame), frame)
    if there:
        found = new_fields(planned.plan, settings, json_object, infer(json_object, frame), frame)
        assert found.columns == []
        planned = replace(planned, refused=found.refused)
    rows = shape(_decoded(frame, json_object, planned), planned.plan).orderBy(f"{SOURCE}.offset").collect()
    assert [row[FAULT] and row[FAULT]["detail"].partition(":")[0] for row in rows] == [
        where for _, where in BEYOND_HINTS
    ]
    settings = TableSettings.model_validate({"hints": HINTED, "rescue": True})
    rescuing = plan_from_records("t", settings, json_object, infer(json_object, frame), frame)
    rows = shape(_decoded(frame, json_object, rescuing), rescuing.plan).orderBy(f"{SOURCE}.offset").collect()
    assert [rescued(row) for row in rows][:-1] == [value if where else None for value, where in BEYOND_HINTS][:-1]


def test_a_contract_is_for_fields_whatever_their_columns_are_called(records: Records) -> None:
    columns = (
        ColumnPlan("pla_ce", "pla ce", "struct<lat: double, n: int>"),
        ColumnPlan("a_b", "a.b", "struct<n: int>"),
        ColumnPlan("x_y", "x.y", "long"),
    )
    value = {"pla ce": {"lon": 1, "n": 2**40}, "a.b": {"m": 1, "n": 2**40}, "x.y": 1, "new one": 1, "x.z": 1}
    frame, plan = records(texts([value])), TablePlan("t", columns, None, "iso")

    def follows(**changes: Any) -> tuple[list[str], list[str]]:
        """What would be added, and what be widened."""
        settings, fields = TableSettings.model_validate(changes), infer(json_object, frame)
        found = new_fields(plan, settings, json_object, fields, frame)
        wider = outgrown(plan, settings, json_object, fields, frame)
        return sorted(f"{path}.{each.name}".strip(".") for path, each in found.columns), [each.path for each in wider]

    assert follows() == (["a_b.m", "new_one", "pla_ce.lon", "x_z"], ["pla_ce.n", "a_b.n"])
    assert follows(contracts={"pla ce": "freeze", "a": "freeze", "x": "freeze"}) == (
        ["a_b.m", "new_one", "x_z"],
        ["a_b.n"],
    )
    assert follows(contracts={"a.b": "freeze", "pla_ce": "freeze", "x.z": "refuse"}) == (
        ["new_one", "pla_ce.lon"],
        ["pla_ce.n"],
    )
    some = {"pla ce.lon": "evolve", "a.b.n": "widen", "new one": "evolve"}
    assert follows(contract="freeze", contracts=some) == (["new_one", "pla_ce.lon"], ["a_b.n"])
    refused = {"contract": "freeze", "contracts": {"x.y": "refuse", "a.b.m": "refuse"}}
    rows = landed(records(texts([{"a.b": {"m": 1}}, {"x.y": "z"}, {"a": 1}])), settings_of(**refused), columns)
    assert [row[FAULT] and row[FAULT]["reason"] for row in rows] == ["no_column", "wrong_type", None]


def test_a_batch_may_bring_so_many_new_columns(records: Records) -> None:
    columns, refused = growing(records, {f"f{n}": n for n in range(9)}, contract="evolve", max_new=3)
    assert columns == ["f0", "f1", "f2"]
    assert {each.why for each in refused} == {TOO_MANY_NEW}
    assert [each.name for each in refused] == [f"f{n}" for n in range(3, 9)]


def test_what_lies_deeper_keeps_its_json_text(records: Records) -> None:
    ((_, kind),) = infer(json_object, records(['{"a": {"b": [{"c": 1}], "d": {"e": {"f": null}}}}']))
    assert [to_iceberg(kind, depth) for depth in (0, 1, 2, 3)] == [
        "string",
        "struct<b: string>",
        "struct<b: list<string>>",
        "struct<b: list<struct<c: long>>>",
    ]


def test_new_columns_are_no_deeper_than_they_may_be(records: Records) -> None:
    frame = records(texts([{"deep": {"a": {"b": 1}}, "place": {"new": {"a": {"b": 1}}}}]))
    settings = TableSettings.model_validate({"max_depth": 2})
    found = new_fields(TablePlan("t", COLUMNS, None, "iso"), settings, json_object, infer(json_object, frame), frame)
    assert {column.name: column.type for _, column in found.columns} == {
        "deep": "struct<a: struct<b: long>>",
        "new": "struct<a: string>",
    }


def test_under_evolve_what_finds_no_place_is_rescued_where_that_is_asked_for(records: Records) -> None:
    frame = records(texts([{"id": "x"}, {"color": 1}, {"id": 1}]))
    rows = landed(frame, settings_of(contract="evolve", rescue=True))
    assert [rescued(row) for row in rows] == [{"id": "x"}, {"color": 1}, None]
    assert aside_of(settings_of(contract="evolve")) is None


def test_a_table_is_looked_into_only_where_there_may_be_more(records: Records) -> None:
    def beyond(value: Any) -> bool:
        return has_beyond(TablePlan("t", COLUMNS, None, "iso"), infer(json_object, records(texts([value]))))

    assert not beyond({**SOUND, "color": None, "place": {"zone": []}})
    assert all(map(beyond, ({"color": 1}, {"place": {"zone": 1}}, {"parts": [{"m": 1}]}, {"place": 5})))


# -- what takes more --------------------------------------------------------------------------------------

NARROW = (
    ColumnPlan("n", "n", "int"),
    ColumnPlan("f", "f", "float"),
    ColumnPlan("d", "d", "decimal(4,2)"),
    ColumnPlan("s", "s", "struct<int: int, parts: list<int>>"),
    ColumnPlan("m", "m", "map<string, struct<float: float, d: decimal(4, 2)>>"),
    ColumnPlan("needed", "needed", "string", required=True),
)
FITTING: dict[str, Any] = {
    "n": 2**31 - 1,
    "f": 1.5,
    "d": 99.99,
    "s": {"int": -(2**31), "parts": [1]},
    "m": {"x": {"d": 99.99}, "y": {}},
    "needed": "x",
}


def wider(records: Records, *values: Any, **changes: Any) -> list[Any]:
    frame = records(texts(values))
    settings = TableSettings.model_validate(changes)
    return outgrown(TablePlan("t", NARROW, None, "iso"), settings, json_object, infer(json_object, frame), frame)


def test_a_type_is_widened_by_a_value_that_needs_it(records: Records) -> None:
    assert wider(records, FITTING, {"n": "x", "f": "y"}) == []
    large = {"n": 2**31, "f": 1e39, "d": 12345.5, "s": {"int": 2**40, "parts": [1, -(2**40)]}}
    large["m"] = {"x": {"float": 1e39, "d": 12345.5}, "y": {"d": 1.25}}
    wanted = [
        Widen("n", "int", "long"),
        Widen("f", "float", "double"),
        Widen("d", "decimal(4,2)", "decimal(7,2)"),
        Widen("s.int", "int", "long"),
        Widen("s.parts.element", "int", "long"),
        Widen("m.value.float", "float", "double"),
        Widen("m.value.d", "decimal(4,2)", "decimal(7,2)"),
    ]
    assert wider(records, FITTING, large) == wanted
    assert wider(records, FITTING, large, contract="widen") == [*wanted, Relax("needed")]
    assert wider(records, large, contract="freeze") == []
    some = {"n": "freeze", "s": "refuse", "s.parts": "widen", "m.value.d": "freeze"}
    assert wider(records, large, contracts=some) == [wanted[each] for each in (1, 2, 4, 5)]
    hints = {"n": "int", "f": "float", "d": "decimal(4,2)", "s": "string", "m": "string"}
    assert wider(records, large, hints=hints) == []


# -- the settings -----------------------------------------------------------------------------------------


def test_declared_columns_do_not_follow() -> None:
    columns = [{"name": "a", "type": "long"}]
    for changes in ({"contract": "evolve"}, {"contract": "widen"}, {"rescue": True}, {"contracts": {"a": "freeze"}}):
        with pytest.raises(ValidationError, match="freeze or refuse"):
            TableSettings.model_validate({"columns": columns, **changes})
    assert TableSettings.model_validate({"columns": columns, "contract": "freeze"}).rescues
    assert not TableSettings.model_validate({"columns": columns, "contract": "refuse"}).rescues
    assert aside_of(TableSettings.model_validate({"columns": columns})) is None


def test_a_first_batch_makes_the_table_with_its_rescue_column(records: Records) -> None:
    frame = records(texts([{"id": 1}]))
    settings = settings_of()
    planned = plan_from_records("t", settings, json_object, infer(json_object, frame), frame)
    made = spec(planned.plan, settings)
    assert [column.name for column in made.columns] == ["id", "event_time", RESCUED, SOURCE]
    assert planned.plan.aside == aside_of(settings)
    state = TableState("t", "u", "", 2, 0, made.columns, made.partitions or (), made.sort, made.properties, {}, {}, "")
    assert plan_that_stands(state, settings) == planned.plan
    assert not plan_that_stands(state, TableSettings()).aside
    other = tuple(replace(each, type="long") if each.name == RESCUED else each for each in made.columns)
    with pytest.raises(TableChanged, match=RESCUED):
        plan_that_stands(replace(state, columns=other), settings)
