"""What the columns have no place for, by contract: rescued and never lost, or the reason of a dead-letter record."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog import arrow_type
from lakehouse_ingest.operations.promote.json_values import fitted, holds, parts_of, value_of
from lakehouse_ingest.records import RESCUED, Reason
from lakehouse_ingest.schema.columns import HINTED, TOO_MANY, ColumnPlan, RefusedField, TablePlan
from lakehouse_ingest.schema.contract import aside_of, contract_of
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.fitting import NOT_TAKEN, TOO_OFTEN
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, Outcome, outcomes, shaped, texts

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


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def settings_of(**changes: Any) -> TableSettings:
    return TableSettings.model_validate({"contract": "freeze", **changes})


def route_of(
    given_settings: TableSettings,
    columns: Sequence[ColumnPlan] = COLUMNS,
    refused: Sequence[RefusedField] = (),
    event_time: str | None = None,
) -> RoutePlan:
    plan = TablePlan("t", tuple(columns), event_time, "iso", aside=aside_of(given_settings))
    following = Following(contract_of(given_settings), frozenset(given_settings.hints), final=True)
    return RoutePlan(plan, tuple(refused), following)


def rescued(row: Outcome) -> Any:
    assert isinstance(row, dict), row
    return None if row[RESCUED] is None else json.loads(row[RESCUED])


def faults(found: Sequence[Outcome]) -> list[tuple[str, str] | None]:
    return [(each.reason, each.detail.partition(":")[0]) if isinstance(each, Fault) else None for each in found]


# What is beside the sound fields, or in place of them, and what of it is rescued.
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
    ({"at": 1.5e30}, {"at": 1.5e30}),
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


class TestValueWithoutAPlace:
    def test_is_rescued_whole_and_the_rest_is_in_its_columns(self, form: Format) -> None:
        rows = outcomes(texts([{**SOUND, **more} for more, _ in ASIDE]), route_of(settings_of()), form)
        for row, (more, wanted) in zip(rows, ASIDE, strict=True):
            assert rescued(row) == wanted, more
            assert isinstance(row, dict)
            assert row["name_"] == '{"any":"thing"}'
            assert (row["id"] == 1) is ("id" not in more), more
            assert (row["small"] == 5) is ("small" not in more)
            assert (row["at"] is not None) is ("at" not in more)
            assert (row["price"] is not None) is ("price" not in more)
        by = {json.dumps(more): row for row, (more, _) in zip(rows, ASIDE, strict=True) if isinstance(row, dict)}
        assert by['{"place": {"lat": 2, "zone": "x"}}']["place"]["lat"] == 2, "what has a place is there"
        assert by['{"place": {"lat": "no", "more": {"a": 3}}}']["place"] == {"lat": None, "more": {"a": 3}}
        assert by['{"parts": [{"n": 1}, {"m": 2}]}']["parts"][0]["n"] == 1
        assert by['{"tags": {"x": 1, "y": "z"}}']["tags"] == [("x", 1), ("y", None)]

    def test_is_counted_in_rows(self, form: Format) -> None:
        made = shaped(
            texts([{"id": 1}, {"id": "x"}, {"at": "soon"}, {"a": 1, "b": 2}, 5]), route_of(settings_of()), form
        )
        assert made.rescued == 3

    @pytest.mark.parametrize(
        "text",
        ["1.50", "1e2", "100000000000000000000.10", "-0.0", "1e400", "12345678901234567890123456789012345678901"],
    )
    def test_keeps_the_digits_of_its_numbers(self, text: str, form: Format) -> None:
        (row,) = outcomes(
            [
                f'{{"color": [{text}], "id": {text}.0}}'
                if "." not in text and "e" not in text
                else f'{{"color": [{text}]}}'
            ],
            route_of(settings_of()),
            form,
        )
        assert isinstance(row, dict)
        assert f'"color":[{text}]' in row[RESCUED]

    def test_is_json_whatever_it_is(self, form: Format) -> None:
        values = ['{"a": NaN, "b\\"": "\\u0001\\n\\u2028é", "c": [-Infinity]}', '{"id": NaN}']
        rows = outcomes(values, route_of(settings_of()), form)
        assert [rescued(row) for row in rows] == [
            {"a": "NaN", 'b"': "\x01\n\u2028é", "c": ["-Infinity"]},
            {"id": "NaN"},
        ]

    def test_of_a_broken_record_is_not_rescued(self, form: Format) -> None:
        values = ["", "5", '{"id": 1', '{"id": "x"} more', "null", '{"a": "\\ud83d"}', "[]"]
        found = outcomes(values, route_of(settings_of()), form)
        assert [each.reason for each in found if isinstance(each, Fault)] == [
            "empty_value",
            "not_an_object",
            "broken_json",
            "broken_json",
            "not_an_object",
            "not_utf8",
            "not_an_object",
        ]

    def test_is_a_fault_if_a_row_can_not_be_without_it(self, form: Format) -> None:
        columns = (ColumnPlan("id", "id", "long", required=True), ColumnPlan("at", "at", "timestamptz"))
        values = texts([{"id": "x", "at": "2024-05-06"}, {"id": 1, "at": {}}, {"id": 1, "at": "2024-05-06"}])
        found = outcomes(values, route_of(settings_of(), columns, event_time="at"), form)
        assert [each.reason if isinstance(each, Fault) else None for each in found] == [
            "wrong_type",
            "wrong_type",
            None,
        ]

    def test_is_rescued_under_evolve_where_that_is_asked_for(self, form: Format) -> None:
        route = route_of(settings_of(contract="evolve", rescue=True))
        rows = outcomes(texts([{"id": "x"}, {"color": 1}, {"id": 1}]), route, form)
        assert [rescued(row) for row in rows] == [{"id": "x"}, {"color": 1}, None]

    def test_is_dropped_by_declared_columns_without_a_contract(self, form: Format) -> None:
        plan = TablePlan("t", COLUMNS, None, "iso")
        (row,) = outcomes(texts([{"id": 1, "color": 1, "place": {"zone": 1}}]), plan, form)
        assert isinstance(row, dict)
        assert RESCUED not in row
        assert row["id"] == 1


class TestRefusedField:
    def test_makes_its_record_a_dead_letter(self, form: Format) -> None:
        values = texts([{"id": 1}, {"color": 1}, {"id": "x"}, {"place": {"zone": 1}}, {"small": 300}, {"e": []}])
        rows = outcomes(values, route_of(settings_of(contract="refuse")), form)
        assert faults(rows) == [
            None,
            ("no_column", "color"),
            ("wrong_type", "id"),
            ("no_column", "place"),
            ("out_of_range", "small"),
            None,
        ]
        assert rows[1] == Fault(Reason.NO_COLUMN, f"color: {NOT_TAKEN}", "rescue", f"a field: {NOT_TAKEN}")
        assert isinstance(rows[0], dict)
        assert RESCUED not in rows[0]

    def test_is_so_by_the_nearest_rule(self, form: Format) -> None:
        values = [
            {"color": 1},
            {"place": {"zone": 1}},
            {"place": {"more": {"b": 1}}},
            {"place": {"lat": "x"}},
            {"x": 1},
        ]
        contracts = {"place": "refuse", "place.more": "freeze", "x": "refuse"}
        found = outcomes(texts(values), route_of(settings_of(contracts=contracts)), form)
        assert [each and each[0] for each in faults(found)] == [None, "no_column", None, "wrong_type", "no_column"]
        assert [rescued(found[number]) for number in (0, 2)] == [values[0], values[2]]

    def test_is_named_by_its_own_name_whatever_its_column_is_called(self, form: Format) -> None:
        columns = (
            ColumnPlan("pla_ce", "pla ce", "struct<lat: double, n: int>"),
            ColumnPlan("a_b", "a.b", "struct<n: int>"),
            ColumnPlan("x_y", "x.y", "long"),
        )
        route = route_of(settings_of(contracts={"x.y": "refuse", "a.b.m": "refuse"}), columns)
        found = outcomes(texts([{"a.b": {"m": 1}}, {"x.y": "z"}, {"a": 1}]), route, form)
        assert [each and each[0] for each in faults(found)] == ["no_column", "wrong_type", None]


THINGS = (
    ColumnPlan("things", "things", "map<string, struct<a: long>>"),
    ColumnPlan("deep", "deep", "list<map<string, map<string, struct<a: long>>>>"),
)
HINTS = {
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
    ({"place": "no object", "tags": 5, "parts": [[]]}, "place"),
]


class TestFieldThatMayNotBecomeAColumn:
    def test_makes_its_record_a_dead_letter(self, form: Format) -> None:
        refused = (
            RefusedField(("things", None), "b", TOO_MANY),
            RefusedField(("deep", None, None, None), "k", TOO_MANY),
            RefusedField((), "color", TOO_MANY),
        )
        values = [
            {"things": {"x": {"a": 1, "b": 1}}},
            {"deep": [{"i": {"j": {"k": True}}}, {}, None]},
            {"color": 1},
            {"color": "x" * 99, "things": {"x": {"a": "bad"}}},
            {"things": {"x": {"a": 1, "b": None}}, "color": {}},
        ]
        found = outcomes(texts(values), route_of(TableSettings(), THINGS, refused), form)
        assert [each.detail if isinstance(each, Fault) else None for each in found] == [
            f"things[].b: {TOO_MANY}",
            f"deep[][][].k: {TOO_MANY}",
            f"color: {TOO_MANY}",
            'things: {"x":{"a":"bad"}} is not map<string, struct<a: long>>',
            None,
        ]
        assert next(each.told for each in found if isinstance(each, Fault)) == f"a field: {TOO_MANY}"

    def test_is_rescued_where_the_contract_does_that(self, form: Format) -> None:
        route = route_of(settings_of(contract="evolve", rescue=True), THINGS, [RefusedField((), "color", TOO_MANY)])
        assert [rescued(row) for row in outcomes(texts([{"color": 1}]), route, form)] == [{"color": 1}]

    @pytest.mark.parametrize("final", [False, True])
    def test_is_one_beyond_a_hint(self, final: bool, form: Format) -> None:  # noqa: FBT001
        given_settings = TableSettings.model_validate({"hints": HINTS})
        columns = [ColumnPlan(name, name, kind) for name, kind in HINTS.items()]
        route = route_of(given_settings, columns)
        route = RoutePlan(route.plan, (), Following(contract_of(given_settings), frozenset(HINTS), final=final))
        found = outcomes(texts([value for value, _ in BEYOND_HINTS]), route, form)
        assert [each.detail.partition(":")[0] if isinstance(each, Fault) else None for each in found] == [
            where for _, where in BEYOND_HINTS
        ]
        assert isinstance(found[1], Fault)
        assert found[1].detail.endswith(HINTED)
        rescuing = route_of(TableSettings.model_validate({"hints": HINTS, "rescue": True}), columns)
        found = outcomes(texts([value for value, _ in BEYOND_HINTS]), rescuing, form)
        whole = [value if where else None for value, where in BEYOND_HINTS]
        assert [rescued(row) for row in found] == [*whole[:-1], {"place": "no object", "tags": 5}]

    def test_is_a_new_one_when_the_batch_may_change_the_table_no_more(self, form: Format) -> None:
        (found,) = outcomes(texts([{"place": {"zone": 1}}]), route_of(TableSettings()), form)
        assert found == Fault(Reason.NO_COLUMN, f"place.zone: {TOO_OFTEN}", "decode", f"a field: {TOO_OFTEN}")


# -- any values -------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["id", "small", "na me", "place", "parts", "tags", "color", "x.y", ""])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=3).filter(str.isprintable),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["lat", "n", "a", "zone"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def same(got: Any, value: Any) -> bool:
    """Values that hold nothing may be missing."""
    match value:
        case dict() if isinstance(got, dict | list):
            got = dict(got)
            return all(same(got.get(key), each) for key, each in value.items() if holds(each))
        case list() if isinstance(got, list):
            return len(got) == len(value) and all(
                same(*pair) for pair in zip(got, value, strict=True) if holds(pair[1])
            )
        case _ if isinstance(got, str) and not isinstance(value, str):
            return bool(json.loads(got) == value)
    return bool(got == value)


class TestAnyValue:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.dictionaries(KEYS, ANY, max_size=4), min_size=1, max_size=40))
    def test_is_never_lost(self, objects: list[dict[str, Any]]) -> None:
        """Each that holds something is in its column as it came, or rescued as it came."""
        fast, exact = (outcomes(texts(objects), route_of(settings_of()), each) for each in FORMATS.values())
        assert fast == exact
        for row, whole in zip(fast, objects, strict=True):
            assert isinstance(row, dict)
            aside = rescued(row) or {}
            assert all(aside[key] == whole[key] for key in aside)
            for key, value in whole.items():
                if key in aside or not holds(value):
                    continue
                column = {"na me": "name_"}.get(key, key)
                assert column in row, (key, value)
                assert same(row[column], value), (key, value, row[column])


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


class TestWhatPromoteFills:
    def test_is_what_the_column_would_have_got(self, form: Format) -> None:
        """Of each value that was rescued and that the column takes at all."""
        columns = {kind: ColumnPlan(f"c{number}", f"c{number}", kind) for number, kind in enumerate(dict(ASKED))}
        values = [f'{{"{columns[kind].field}": {text}, "aside": {text}}}' for kind, text in ASKED]
        rows = outcomes(values, route_of(settings_of(), [*columns.values()]), form)
        found = []
        for (kind, text), row in zip(ASKED, rows, strict=True):
            assert isinstance(row, dict)
            value = value_of(parts_of(row[RESCUED])["aside"])
            assert str(value) == str(value_of(text)), "numbers are written as they came"
            with suppress(ValueError):
                filled = pa.array([fitted(value, arrow_type(kind))], arrow_type(kind))[0].as_py()
                found.append((kind, text, filled, row[columns[kind].name]))
        assert [(kind, text, filled, got) for kind, text, filled, got in found if filled != got] == []
        assert {kind for kind, *_ in found} == columns.keys()
