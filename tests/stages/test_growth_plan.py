"""What a table lacks of the fields that were seen: new columns, wider types, and what may not become one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from catalog import Relax, Widen
from lakehouse_ingest.records import RECORD, SOURCE
from lakehouse_ingest.schema.column_types import width
from lakehouse_ingest.schema.columns import (
    EVENT_TIME,
    HINTED,
    MEETS,
    NO_NAME,
    TOO_MANY,
    TOO_MANY_NEW,
    ColumnPlan,
    RefusedField,
    TablePlan,
)
from lakehouse_ingest.schema.planning.growth import Growth, new_fields
from lakehouse_ingest.schema.planning.widening import outgrown
from lakehouse_ingest.settings import TableSettings
from tests.services.seen_fields import fields_in

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


def growth(*records: Any, plan: TablePlan = PLAN, **settings: Any) -> Growth:
    return new_fields(plan, TableSettings.model_validate(settings), fields_in(records).fields)


def added(*records: Any, plan: TablePlan = PLAN, **settings: Any) -> list[tuple[str, str, str, str | None]]:
    found = growth(*records, plan=plan, **settings)
    assert found.refused == ()
    return [(path, column.name, column.type, column.doc) for path, column in found.columns]


class TestNewField:
    def test_is_none_where_all_are_known(self) -> None:
        assert added({"id": 1, "place": {"lat": 1.5, "more": {"a": 1}}, "parts": [{"n": 1}], SOURCE: "x"}) == []
        assert added() == []

    def test_becomes_a_column(self) -> None:
        assert added({"id": 1, "unit": "K"}, {"ok": True}) == [
            ("", "ok", "boolean", None),
            ("", "unit", "string", None),
        ]

    def test_is_found_at_any_depth(self) -> None:
        assert added({"place": {"lon": 1.5, "more": {"b": "x"}}, "parts": [{"n": 1}, {"m": {"deep": [1]}}]}) == [
            ("parts.element", "m", "struct<deep: list<long>>", None),
            ("place", "lon", "double", None),
            ("place.more", "b", "string", None),
        ]

    def test_is_hidden_by_no_value_of_another_kind(self) -> None:
        """Or what is new in an object would be lost in each batch that has one broken record."""
        assert added({"place": 5}, {"place": {"lon": 1.5}}, {"parts": [5]}, {"parts": [{"m": 1}]}) == [
            ("parts.element", "m", "long", None),
            ("place", "lon", "double", None),
        ]

    def test_of_mixed_kinds_has_the_usual_one(self) -> None:
        values = [{"x'[]\"": each, "y": each} for each in [1] * 9 + ["broken"]] + [{"y": "text"}]
        assert added(*values) == [("", "x____", "long", "field x'[]\""), ("", "y", "string", None)]

    def test_within_an_object_has_no_usual_kind(self) -> None:
        values = [{"place": {"x": each}} for each in [1] * 99 + ["broken"]]
        assert added(*values) == [("place", "x", "string", None)]

    def test_without_a_value_waits(self) -> None:
        assert added({"later": None, "place": {"later": []}, "parts": [{"later": {}}]}) == []

    def test_is_no_field_of_another_type(self) -> None:
        assert added({"id": "text", "place": 5, "parts": {"n": 1}}) == []
        assert added({"id": {"new": 1}}, {"id": 1}) == []

    def test_never_takes_the_name_of_a_column(self) -> None:
        plan = replace(PLAN, partitions=frozenset({"id_bucket"}))
        found = added({EVENT_TIME: 1, f"{SOURCE}_": 2, "ID": 3, RECORD: 4, "id_bucket": 5}, plan=plan)
        assert [(kind, doc) for _, _, kind, doc in found] == [
            ("long", f"field {name}") for name in ("ID", RECORD, f"{SOURCE}_", EVENT_TIME, "id_bucket")
        ]
        names = {name.casefold() for _, name, _, _ in found}
        assert len(names) == 5
        assert not names & {EVENT_TIME, RECORD, "id", "id_bucket", *(column.name for column in PLAN.columns)}

    def test_of_text_becomes_a_time_only_at_the_top(self) -> None:
        value = {"day": "2024-05-06", "id": 1, "place": {"since": "2024-05-06"}, "days": ["2024-05-06"]}
        assert [(path, name, kind) for path, name, kind, _ in added(value)] == [
            ("place", "since", "string"),
            ("", "day", "date"),
            ("", "days", "list<string>"),
        ]
        assert ("", "day", "string", None) in added(value, infer_times=False)
        assert ("", "day", "string", None) in added(value, hints={"day": "string"})

    def test_is_no_deeper_than_it_may_be(self) -> None:
        found = added({"deep": {"a": {"b": 1}}, "place": {"new": {"a": {"b": 1}}}}, max_depth=2)
        assert {name: kind for _, name, kind, _ in found} == {
            "deep": "struct<a: struct<b: long>>",
            "new": "struct<a: string>",
        }


WITHIN: list[tuple[Any, Sequence[str | None], str, str]] = [
    # a record with a new field that can't be one, where that is, its name, and why
    ({"place": {"": 1}}, ("place",), "", NO_NAME),
    ({"place": {"a.b": 1}}, ("place",), "a.b", NO_NAME),
    ({"place": {"LAT": 1}}, ("place",), "LAT", MEETS),
    ({"place": {"more": {"A": 1}}}, ("place", "more"), "A", MEETS),
    ({"parts": [{"n": 1}, {"N": 1}]}, ("parts", None), "N", MEETS),
    ({"parts": [{"o": 1}, {"n": 1, "q\"'[": 1, "O": 2}]}, ("parts", None), "o", MEETS),
]


class TestFieldThatMayNotBecomeAColumn:
    def test_is_refused_with_the_keys_that_lead_to_it(self) -> None:
        empty = [{"place": {"": None, "a.b": None, "LAT": None, "lat": 1.5}}, {"parts": [{"N": None, "n": 1}, None]}]
        found = growth(*(each for each, *_ in WITHIN), *empty)
        assert set(found.refused) == {RefusedField(tuple(where), name, why) for _, where, name, why in WITHIN}
        assert [(path, column.name) for path, column in found.columns] == [
            ("parts.element", "O"),
            ("parts.element", "q\"'["),
        ]
        assert found.whence == ((("parts", None), "O"), (("parts", None), "q\"'["))
        assert growth(*empty) == Growth([], ())

    def test_has_no_room(self) -> None:
        wide = sum(width(column.iceberg) for column in PLAN.columns)
        assert wide == 8
        value = {"place": {"p": {"q": 1}, "r": 1}, "parts": [{"m": 1}], "x": 1}
        assert len(added(value, max_columns=wide + 5)) == 4
        found = growth(value, max_columns=wide + 1)
        assert [(path, column.name, column.type) for path, column in found.columns] == [("parts.element", "m", "long")]
        assert {(each.within, each.name) for each in found.refused} == {(("place",), "p"), (("place",), "r"), ((), "x")}
        assert {each.why for each in found.refused} == {TOO_MANY}
        assert not growth(value, max_columns=1).columns

    def test_is_one_of_too_many_in_a_batch(self) -> None:
        found = growth({f"f{n}": n for n in range(9)}, max_new=3)
        assert [column.name for _, column in found.columns] == ["f0", "f1", "f2"]
        assert found.refused == tuple(RefusedField((), f"f{n}", TOO_MANY_NEW) for n in range(3, 9))


class TestHintedField:
    def test_has_its_hint_when_it_comes_and_no_other_type_for_want_of_room(self) -> None:
        hints = {"new": "uint8", "object": "struct<a: int>"}
        value = {"new": None, "object": {"a": 1}}
        assert added(value, hints=hints) == [
            ("", "new", "int", "declared uint8"),
            ("", "object", "struct<a: int>", None),
        ]
        found = growth(value, hints=hints, max_columns=9)
        assert [column.name for _, column in found.columns] == ["new"]
        assert [each.name for each in found.refused] == ["object"]

    def test_has_the_fields_of_its_hint(self) -> None:
        hints = {"place": "struct<lat: double, more: struct<a: long>>"}
        found = growth({"place": {"lat": 1, "lon": 2}}, {"place": "no object"}, hints=hints)
        assert (found.columns, found.refused) == ([], (RefusedField(("place",), "lon", HINTED),))


THINGS = TablePlan(
    "t",
    (
        ColumnPlan("things", "things", "map<string, struct<a: long>>"),
        ColumnPlan("deep", "deep", "list<map<string, map<string, struct<a: long>>>>"),
    ),
    None,
    "iso",
)
MORE_THINGS: list[Any] = [
    {"things": {"x": {"a": 1, "b": 1}, "y": {"b": 2.5, "c": [{"d": 1}]}, "z": {"c": [{"e": "f"}], "b": None}}},
    {"things": {"x": {"b": 2**70, "m": 1}, "y": {"m": "one"}}, "deep": [{"i": {"j": {"k": True}}}, {}, None]},
]


class TestMap:
    def test_grows_by_what_all_its_objects_bring(self) -> None:
        found = growth(*MORE_THINGS, {"things": "no object", "deep": {"x": {"y": {"hidden": 1}}}}, plan=THINGS)
        assert {f"{path}.{column.name}": column.type for path, column in found.columns} == {
            "things.value.b": "double",
            "things.value.c": "list<struct<d: long, e: string>>",
            "things.value.m": "string",
            "deep.element.value.value.k": "boolean",
        }
        assert found.refused == ()

    def test_without_room_refuses_their_fields(self) -> None:
        found = growth(*MORE_THINGS, plan=THINGS, max_columns=4)
        assert found.columns == []
        assert set(found.refused) == {
            *(RefusedField(("things", None), name, TOO_MANY) for name in "bcm"),
            RefusedField(("deep", None, None, None), "k", TOO_MANY),
        }


FOUND: dict[str, Any] = {"color": 1, "place": {"zone": 1, "more": {"b": 1}}, "parts": [{"m": 1}]}


class TestContract:
    def grown(self, *records: Any, plan: TablePlan = PLAN, **settings: Any) -> list[str]:
        return sorted(f"{path}.{name}".strip(".") for path, name, *_ in added(*records, plan=plan, **settings))

    @pytest.mark.parametrize("rule", ["freeze", "widen", "refuse"])
    def test_that_does_not_evolve_lets_no_field_become_a_column(self, rule: str) -> None:
        assert growth(FOUND, contract=rule) == Growth([], ())

    def test_holds_for_single_fields(self) -> None:
        assert self.grown(FOUND, contract="evolve") == ["color", "parts.element.m", "place.more.b", "place.zone"]
        some = {"place": "freeze", "place.more": "evolve", "parts.element.m": "refuse"}
        assert self.grown(FOUND, contracts=some) == ["color", "place.more.b"]
        assert self.grown(FOUND, contract="freeze", contracts={"color": "evolve"}) == ["color"]

    def test_holds_for_parts_of_a_new_field(self) -> None:
        value = {"ne w": {"ok": 1, "no": 2, "more": [{"ok": 1, "no": {"x": 1}}]}, "place": {"in": {"no": 1, "ok": 1}}}
        no = dict.fromkeys(("ne w.no", "ne w.more.element.no", "place.in.no", "only.no"), "freeze")
        assert {name: kind for _, name, kind, _ in added(value, {"only": {"no": 1}}, contracts=no)} == {
            "ne_w": "struct<more: list<struct<ok: long>>, ok: long>",
            "in": "struct<ok: long>",
        }

    def test_is_for_fields_whatever_their_columns_are_called(self) -> None:
        columns = (
            ColumnPlan("pla_ce", "pla ce", "struct<lat: double, n: int>"),
            ColumnPlan("a_b", "a.b", "struct<n: int>"),
            ColumnPlan("x_y", "x.y", "long"),
        )
        value = {"pla ce": {"lon": 1, "n": 2**40}, "a.b": {"m": 1, "n": 2**40}, "x.y": 1, "new one": 1, "x.z": 1}
        plan = TablePlan("t", columns, None, "iso")

        def follows(**changes: Any) -> tuple[list[str], list[str]]:
            """What would be added, and what be widened."""
            wider = outgrown(plan, TableSettings.model_validate(changes), fields_in([value]).fields)
            return self.grown(value, plan=plan, **changes), [each.path for each in wider]

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
LARGE: dict[str, Any] = {
    "n": 2**31,
    "f": 1e39,
    "d": 12345.5,
    "s": {"int": 2**40, "parts": [1, -(2**40)]},
    "m": {"x": {"float": 1e39, "d": 12345.5}, "y": {"d": 1.25}},
}
WANTED = [
    Widen("n", "int", "long"),
    Widen("f", "float", "double"),
    Widen("d", "decimal(4,2)", "decimal(7,2)"),
    Widen("s.int", "int", "long"),
    Widen("s.parts.element", "int", "long"),
    Widen("m.value.d", "decimal(4,2)", "decimal(7,2)"),
    Widen("m.value.float", "float", "double"),
]


def wider(*records: Any, lacking: Sequence[str] = (), **changes: Any) -> list[Any]:
    plan = TablePlan("t", NARROW, None, "iso")
    found = outgrown(plan, TableSettings.model_validate(changes), fields_in(records).fields, lacking)
    return sorted(
        found,
        key=lambda each: (
            isinstance(each, Relax),
            [column.name for column in NARROW].index(each.path.partition(".")[0]),
            isinstance(each, Widen) and each.path,
        ),
    )


class TestType:
    def test_is_wide_enough_for_what_fits_and_what_never_will(self) -> None:
        assert (
            wider(FITTING, {"n": "x", "f": "y"}, {"n": 1.5, "d": 1.555, "f": [1e39]}, {"n": 2**70, "d": 10**37}) == []
        )

    def test_is_widened_by_a_value_that_needs_it(self) -> None:
        assert wider(FITTING, LARGE) == WANTED
        assert wider(FITTING, {**LARGE, "n": 2**31, "color": 1}, {"n": 2**70}, {"d": 0.001}, {"f": 10**400}) == WANTED

    def test_is_widened_by_a_value_whatever_else_its_record_holds(self) -> None:
        assert wider({"n": 2**31, "s": "no object"}) == [Widen("n", "int", "long")]

    def test_of_whole_numbers_takes_more_digits(self) -> None:
        assert wider({"d": 10**35}) == [Widen("d", "decimal(4,2)", "decimal(38,2)")]
        assert wider({"d": 10**36}) == []

    def test_follows_the_contract(self) -> None:
        assert wider(LARGE, contract="widen") == WANTED
        assert wider(LARGE, contract="freeze") == []
        some = {"n": "freeze", "s": "refuse", "s.parts": "widen", "m.value.d": "freeze"}
        assert wider(LARGE, contracts=some) == [WANTED[each] for each in (1, 2, 4, 6)]

    def test_that_a_person_chose_stays(self) -> None:
        hints = {"n": "int", "f": "float", "d": "decimal(4,2)", "s": "string", "m": "string"}
        assert wider(LARGE, hints=hints) == []
        column = ColumnPlan("small", "small", "int", low=0, high=255, declared="uint8")
        plan = TablePlan("t", (column,), None, "iso")
        assert outgrown(plan, TableSettings(), fields_in([{"small": 2**40}]).fields) == []

    def test_of_the_event_time_stays(self) -> None:
        plan = TablePlan("t", (ColumnPlan(EVENT_TIME, EVENT_TIME, "int"),), EVENT_TIME, "s")
        assert outgrown(plan, TableSettings(), fields_in([{EVENT_TIME: 2**40}]).fields) == []


class TestRequiredColumn:
    def test_becomes_optional_only_by_a_contract_that_is_set(self) -> None:
        assert wider(FITTING, lacking=["needed", "n", "unknown"]) == []
        assert wider(lacking=["needed"], contract="widen") == [Relax("needed")]
        assert wider(lacking=["needed"], contract="freeze") == []
        assert wider(lacking=["needed"], contracts={"needed": "evolve"}) == [Relax("needed")]
        assert wider(lacking=["needed"], contract="widen", contracts={"needed": "freeze"}) == []
        assert wider(contract="widen") == []

    def test_comes_after_the_wider_types(self) -> None:
        assert wider(LARGE, lacking=["needed"], contract="widen") == [*WANTED, Relax("needed")]
