"""Columns from what was seen of the first records, by the written rule."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import TableState, canonical
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.records import FAULT, RECORD, RESCUED, SOURCE
from lakehouse_ingest.schema import seen as seen_module
from lakehouse_ingest.schema.columns import EVENT_TIME, HINTED, MEETS, TOO_MANY, RefusedField, TablePlan, declared
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.names import readable
from lakehouse_ingest.schema.planning.inference import column_type, unit_of
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.schema.table_plans import (
    Planned,
    first_fields,
    plan_from_seen,
    plan_from_table,
    plan_that_stands,
    spec,
)
from lakehouse_ingest.settings import TableSettings
from tests.services.seen_fields import fields_in, value_of

NOW = 1_714_979_289  # 2024-05-06T07:08:09Z


def first(records: Sequence[Any], *, refuse_names: bool = False, **settings: Any) -> Planned:
    """The plan of a table whose first batch this is."""
    of_table = TableSettings.model_validate(settings)
    fields = fields_in(records, first_fields(of_table)).fields
    return plan_from_seen("t", of_table, fields, refuse_names=refuse_names)


def types(planned: Planned) -> dict[str, str]:
    return {column.field: column.iceberg for column in planned.plan.columns}


def as_table(plan: TablePlan, **settings: Any) -> TableState:
    """The table as the next start finds it."""
    made = spec(plan, TableSettings.model_validate(settings))
    return TableState("t", "u", "", 2, 0, made.columns, made.partitions or (), made.sort, made.properties, {}, {}, "")


BY_RULE: dict[str, tuple[list[str], str | None]] = {
    "integers": (["1", "-5", "0"], "long"),
    "integers of 64 bits": ([str(2**63 - 1), str(-(2**63))], "long"),
    "integers beyond them": ([str(2**63), "1"], "decimal(38,0)"),
    "integers beyond any": (["9" * 60], "double"),
    "fractions": (["1.5", "0.25"], "double"),
    "fractions and integers": (["1", "1.5"], "double"),
    "fractions and big integers": (["1.5", str(2**70)], "double"),
    "exponents": (["1e3"], "double"),
    "no number": (["NaN"], "double"),
    "booleans": (["true", "false"], "boolean"),
    "text": (['"a"', '""'], "string"),
    "dates and times": (['"2024-05-06"', '"2024-05-06T07:08:09Z"'], "string"),
    "digits in quotes stay text": (['"12"'], "string"),
    "a value and nulls": (["null", "1", "null"], "long"),
    "nulls only": (["null"], None),
    "empty lists": (["[]"], None),
    "empty objects": (["{}"], None),
    "lists of nulls": (["[null]"], None),
    "objects of nulls": (['{"a": null, "b": []}'], None),
    "objects of nulls whose keys are no names": (['{"a.b": null, "": [], "x": 1, "X": null}'], "string"),
    "only nulls under keys that are no names": (['{"a.b": null}'], None),
    "only empty lists and objects": (["[]", "{}"], None),
    "empty lists nearly always": (["[]"] * 9 + ["5"], "string"),
    "empty lists and objects with something": (["[]", '{"a": 1}'], "string"),
    "a list of empty lists and a number": (["[[], 5]"], "list<string>"),
    "lists": (["[1, 2]", "[]", "null"], "list<long>"),
    "lists of fractions and integers": (["[1]", "[1.5]"], "list<double>"),
    "lists in lists": (["[[1]]", "[[]]"], "list<list<long>>"),
    "lists of objects": (['[{"a": 1}, {"b": "x"}]'], "list<struct<a: long, b: string>>"),
    "objects": (['{"b": 1}', '{"a": true}'], "struct<a: boolean, b: long>"),
    "objects with something empty": (['{"a": 1, "b": null, "c": []}'], "struct<a: long>"),
    "objects with an empty key": (['{"": 1, "b": 2}'], "string"),
    "objects with a dot in a key": (['{"a.b": 1}'], "string"),
    "objects with keys that differ by case": (['{"a": 1}', '{"A": 2}'], "string"),
    "objects with such an object": (['{"a": {"x": 1, "X": 2}, "b": 1}'], "struct<a: string, b: long>"),
    "objects in objects": (['{"a": {"b": {"c": 1.5}}}'], "struct<a: struct<b: struct<c: double>>>"),
    "dates in objects stay text": (['{"a": "2024-05-06"}'], "struct<a: string>"),
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
    "nine of ten within a list": ([str([1] * 20), '["x"]'], "list<string>"),
}


class TestField:
    @pytest.mark.parametrize("rule", BY_RULE)
    def test_gets_the_narrowest_type_that_takes_its_values(self, rule: str) -> None:
        values, wanted = BY_RULE[rule]
        assert types(first([f'{{"f": {value}, "other": 1}}' for value in values])).get("f") == wanted

    def test_of_what_is_no_object_tells_nothing(self) -> None:
        assert not first(["", None, "5", "[]", '["a"]', "null", '{"a": 1', "{}"]).plan.columns
        assert types(first(["", None, "5", "[]", {"a": 1}, '{"b": 2'])) == {"a": "long"}

    def test_that_comes_twice_has_the_last_value(self) -> None:
        assert types(first(['{"c": 1, "c": "x", "d": true}'])) == {"c": "string", "d": "boolean"}

    @pytest.mark.parametrize("deep", ['{"a":' * 200 + "1" + "}" * 200, '{"a":' + "[" * 199 + "]" * 199 + "}"])
    def test_that_lies_too_deep_keeps_its_json_text(self, deep: str) -> None:
        found = types(first([deep]))["a"]
        assert found.count("<") == 21
        assert "string" in found

    def test_keeps_its_json_text_below_the_depth_that_is_set(self) -> None:
        seen = SeenValues()
        seen.add(value_of('{"b": [{"c": 1}], "d": {"e": {"f": null}}}'))
        assert [column_type(seen, depth) for depth in (0, 1, 2, 3)] == [
            "string",
            "struct<b: string>",
            "struct<b: list<string>>",
            "struct<b: list<struct<c: long>>>",
        ]

    def test_with_keys_without_end_keeps_its_json_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_module, "MOST_WITHIN", 1_000)
        planned = first([{"users": {f"k{number}": {"n": 1}}, "place": {"lat": 1.5}} for number in range(510)])
        assert types(planned) == {"users": "string", "place": "struct<lat: double>"}


NAMES = [
    *("what?", "a b", "a'b", 'a"b', "a`b", "``", "a.b", "", "x[0]", "é😀", "null", "struct", "OBJECT", "OBJECT<a"),
    *("a\nb", "a\\b", "a:b>", "9", "A", "a", "select", "timestamp", "decimal(1,2)", "_", "_broken", "$.a", "element"),
]


class TestAnyKey:
    def test_becomes_a_column_of_a_readable_name(self) -> None:
        """Below the top a key is a name as it is; an object with keys that can't be names keeps its JSON text."""
        below = [name for name in NAMES if name and "." not in name and name != "A"]
        top = [*NAMES, "k" * 300, "Schlüssel", "ключ", "_file"]
        planned = first(
            [
                {name: number for number, name in enumerate(top)},
                {"inner": dict.fromkeys(below, 1), "dotted": {"x.y": 1}, "empty": {"": 1}},
            ]
        )
        columns = {column.field: column for column in planned.plan.columns}
        names = [column.name for column in columns.values()]
        assert all(readable(name) == name for name in names)
        assert len({name.casefold() for name in names}) == len(names) == len(top) + 3
        assert {columns[name].iceberg for name in top} == {"long"}
        assert (columns["dotted"].iceberg, columns["empty"].iceberg) == ("string", "string")
        assert columns["inner"].iceberg == canonical(columns["inner"].iceberg)
        assert plan_from_table(as_table(planned.plan), TableSettings()) == planned.plan, "the doc strings keep the keys"

    def test_that_meets_ours_or_another_is_told_apart(self) -> None:
        """Nor does one have the name of a partition, which Iceberg gives to no column."""
        of_partitions = ("event_time_day", "A_bucket", "part")
        ours = (SOURCE, RECORD, FAULT, EVENT_TIME, "Event_Time", "a", "A", "a b", "a_b", "", "site", *of_partitions)
        layout = ["day(event_time)", "site", "bucket(4, a_b)", "bucket(8, A) as A_bucket", "truncate(2, A) as part"]
        record = {**{name: f"of {name}" for name in ours}, "ts": "2024-05-06"}
        planned = first([record], event_time="ts", partition_by=layout)
        assert plan_from_table(as_table(planned.plan, partition_by=layout), TableSettings()) == planned.plan
        names = {column.field: column.name for column in planned.plan.columns}
        assert names.keys() == {*ours, "ts"}
        assert not {SOURCE, RECORD, FAULT, EVENT_TIME, *of_partitions} & set(names.values())
        assert names["site"] == "site", "a partition as it is has the name of its own column"
        assert len({name.casefold() for name in names.values()}) == len(names)

    def test_that_meets_another_is_refused_where_that_is_set(self) -> None:
        values = [{"a": 1}, {"A": 2}, {"A": None, "b": 1}, {SOURCE: 1}, {"x y": 1}, {"x_y": 1}, {"event_time_day": 1}]
        planned = first(values, refuse_names=True)
        assert [column.name for column in planned.plan.columns] == ["A", "b", "x_y"]
        assert set(planned.refused) == {
            RefusedField((), name, MEETS) for name in ("a", SOURCE, "x_y", "event_time_day")
        }


class TestFirstBatch:
    @pytest.mark.parametrize("records", [[], ["{}"], ['{"a": null}'], ["broken"]])
    def test_that_tells_nothing_settles_nothing(self, records: list[str]) -> None:
        assert not first(records).settled

    def test_makes_the_table_with_its_rescue_column(self) -> None:
        settings = TableSettings.model_validate({"contract": "freeze"})
        planned = plan_from_seen("t", settings, fields_in([{"id": 1}]).fields)
        assert planned.plan.aside == aside_of(settings)
        state = as_table(planned.plan, contract="freeze")
        assert [column.name for column in state.columns] == ["id", "event_time", RESCUED, SOURCE]
        assert plan_that_stands(state, settings) == planned.plan
        assert not plan_that_stands(state, TableSettings()).aside
        other = tuple(replace(each, type="long") if each.name == RESCUED else each for each in state.columns)
        with pytest.raises(TableChanged, match=RESCUED):
            plan_that_stands(replace(state, columns=other), settings)

    @given(
        st.lists(
            st.dictionaries(
                st.text(max_size=3),
                st.recursive(
                    st.integers() | st.floats() | st.booleans() | st.text(max_size=3) | st.none(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
                ),
                max_size=4,
            ),
            max_size=6,
        )
    )
    def test_of_any_records_has_a_table_that_keeps_its_plan(self, records: list[dict[str, Any]]) -> None:
        planned = first(records, event_time_unit="iso")
        assert all(canonical(column.iceberg) == column.iceberg for column in planned.plan.columns)
        if planned.settled:
            assert plan_from_table(as_table(planned.plan), TableSettings(event_time_unit="iso")) == planned.plan


class TestMaxColumns:
    def test_refuses_fields_beyond_them_and_keeps_an_object_as_json_text(self) -> None:
        values = [{"b": 1}, {"a": 1, "z": None}, {"c": {"x": 1, "y": 2}}, {"d": 1}, {"d": None, "a": 2}]
        planned = first(values, max_columns=3)
        assert [(column.name, column.iceberg) for column in planned.plan.columns] == [
            ("a", "long"),
            ("b", "long"),
            ("c", "string"),
        ]
        assert planned.refused == (RefusedField((), "d", TOO_MANY),)

    def test_have_room_for_the_event_time_and_hinted_fields_before_all_others(self) -> None:
        record = {"a": 1, "b": 2, "y": 3, "z": "2024-05-06"}
        planned = first([record], max_columns=2, event_time="z", hints={"y": "int"})
        assert types(planned) == {"y": "int", "z": "string"}
        assert [each.name for each in planned.refused] == ["a", "b"]

    def test_are_always_the_same_of_very_many_fields(self) -> None:
        values = [{f"f{number:05}": number, "mixed": [number, str(number)][number % 2]} for number in range(12_000)]
        started = monotonic()
        one, other = first(values, max_columns=100), first(values[::-1], max_columns=100)
        print(f"planned twice in {monotonic() - started:.1f} s")
        assert one == other
        assert [column.name for column in one.plan.columns] == [f"f{number:05}" for number in range(100)]
        assert len(one.refused) == 9_900


HINTS = {
    "price": "decimal(9,2)",
    "small": "UInt8",
    "a b": "Int16",
    "day": "date",
    "at": "timestamptz",
    "no": "long",
}


class TestHint:
    def test_tells_the_type_of_a_field_from_its_first_appearance_on(self) -> None:
        values = [
            {"price": 1, "small": None, "a b": 5, "day": "2024-05-06", "at": 1714979289000001, "z": 1},
            *({"small": 300}, {"price": 1.234}, {"a b": 70000}, {"day": "2024-02-30"}, {"at": "yesterday"}),
        ]
        planned = first(values, hints=HINTS)
        assert {column.name: column.iceberg for column in planned.plan.columns} == {
            "price": "decimal(9,2)",
            "small": "int",
            "a_b": "int",
            "day": "date",
            "at": "timestamptz",
            "z": "long",
        }
        settings = TableSettings.model_validate({"hints": HINTS})
        assert plan_from_table(as_table(planned.plan), settings) == planned.plan
        assert plan_from_table(as_table(planned.plan), TableSettings()) == planned.plan, "ranges are kept"

    def test_for_a_column_of_another_type_is_refused(self) -> None:
        state = as_table(first(['{"a b": 1}']).plan)
        with pytest.raises(TableChanged, match="the column a_b of t is long, the settings say string"):
            plan_from_table(state, TableSettings.model_validate({"hints": {"a b": "string"}}))

    def test_for_an_object_lists_all_its_fields(self) -> None:
        hints = {
            "place": "struct<lat: double, more: struct<a: long>>",
            "tags": "map<string, struct<a: long>>",
            "parts": "list<struct<n: long>>",
        }
        values: list[dict[str, Any]] = [
            {"place": {"lat": 1, "more": {"a": 1}, "zone": None}, "tags": {"x": {"a": 1}}, "parts": [{"n": 1}, {}]},
            {"place": {"lat": 1, "zone": "x"}},
            {"place": {"more": {"b": [0]}}},
            {"tags": {"x": {"a": 1}, "y": {"b": 1}}},
            {"parts": [{"n": 1}, {"m": 2}]},
            {"place": "no object", "tags": 5, "parts": [[]]},
        ]
        planned = first(values, hints=hints)
        assert types(planned) == hints
        assert set(planned.refused) == {
            RefusedField(("place",), "zone", HINTED),
            RefusedField(("place", "more"), "b", HINTED),
            RefusedField(("tags", None), "b", HINTED),
            RefusedField(("parts", None), "m", HINTED),
        }


TIMES: Mapping[str, tuple[Sequence[Any], str]] = {
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
    "a real number among them": (["2024-05-06"] * 20 + [20240506], "string"),
    "another spelling": (["06.05.2024"], "string"),
}


class TestText:
    def test_that_is_a_date_or_a_time_with_its_zone_in_all_records_becomes_one(self) -> None:
        values = [{name: value} for name, (texts, _) in TIMES.items() for value in texts]
        assert types(first(values)) == {name: kind for name, (_, kind) in TIMES.items()}
        assert set(types(first(values, infer_times=False)).values()) == {"string"}

    @pytest.mark.parametrize("field", ["ts", EVENT_TIME])
    def test_of_the_event_time_stays_text(self, field: str) -> None:
        """It never becomes a date, which would turn other times away."""
        (column,) = first([{field: "2024-05-06"}], event_time=field).plan.columns
        assert column.iceberg == ("timestamptz" if field == EVENT_TIME else "string")


class TestUnit:
    @pytest.mark.parametrize(
        ("texts", "found"),
        [
            (["1714979289", "1714979290.5"], "s"),
            (["1714979289123", '"1714979289123"'], "ms"),
            (["1714979289123456"], "us"),
            (["1714979289123456789"], "ns"),
            (["1.714979289e9"], "s"),
            (['"2024-05-06T07:08:09Z"', '"2024-05-06"'], "iso"),
            (["1714979289123", '"2024-05-06"'], "ms"),  # numbers have a unit, text needs none
            (["1714979289123", "5", '"hello"'], "ms"),  # implausible ones say nothing
            (["5", "-1", '"hello"', "null", "true", "[1714979289]"], None),
            (["631152000", "4102444799"], "s"),
            (["631151999", "4102444800"], None),
            ([], None),
        ],
    )
    def test_is_told_from_the_magnitude(self, texts: list[str], found: str | None) -> None:
        seen = fields_in([f'{{"ts": {text}}}' for text in texts]).fields.get("ts")
        assert unit_of(seen, declared("ts", "Utf8", required=False)) == found

    @pytest.mark.parametrize("kind", ["Int64", "Float64", "UInt64", "decimal(20,3)", "Utf8", "Timestamp"])
    def test_is_told_whatever_the_column_is_declared_as(self, kind: str) -> None:
        seen = fields_in([{"ts": 1714979289123}]).fields["ts"]
        assert unit_of(seen, declared("ts", kind, required=False)) == "ms"

    def test_is_not_told_by_values_that_the_column_does_not_take(self) -> None:
        seen = fields_in([{"ts": "1714979289123"}, {"ts": "2024-05-06"}]).fields["ts"]
        assert unit_of(seen, declared("ts", "Int64", required=False)) is None
        assert unit_of(seen, declared("ts", "date", required=False)) == "ms"

    def test_that_disagrees_is_refused_with_both_and_the_setting(self) -> None:
        seen = fields_in([{"ts": NOW}, {"ts": NOW * 1000}]).fields["ts"]
        with pytest.raises(SettingsRefused, match="ts look like s and like ms: set `event_time_unit`"):
            unit_of(seen, declared("ts", "Utf8", required=False))
        assert (
            unit_of(
                fields_in([{"ts": NOW}] * 9 + [{"ts": NOW * 1000}]).fields["ts"], declared("ts", "Utf8", required=False)
            )
            == "s"
        )


class TestEventTime:
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
    def test_is_the_field_of_the_settings_or_a_usual_one(
        self, text: str, settings: dict[str, Any], expected: tuple[str | None, str, bool]
    ) -> None:
        plan = first([text], **settings).plan
        assert (plan.event_time, plan.unit, plan.unit_was_given) == expected

    def test_that_no_record_has_is_refused_with_the_fields_there_are(self) -> None:
        with pytest.raises(
            SettingsRefused, match=r"`event_time` names when, and no record so far has .*; there are a, b"
        ):
            first(['{"a": 1, "b": 2}'], event_time="when")

    @pytest.mark.parametrize("columns", [[], [{"name": "ts", "type": "Int64"}]])
    def test_lets_a_table_wait_while_no_record_tells_its_unit(self, columns: list[Any]) -> None:
        assert not first(['{"ts": 5}'], event_time="ts", columns=columns).settled
        assert first([f'{{"ts": {NOW}}}'], event_time="ts", columns=columns).settled

    def test_is_known_of_however_many_fields_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_module, "MOST_FIELDS", 100)
        records = [{f"f{number:05}": 1, "zzz": NOW} for number in range(110)]
        plan = first(records, event_time="zzz").plan
        assert (plan.event_time, plan.unit) == ("zzz", "s")

    def test_settings_that_the_records_make_wrong_are_refused(self) -> None:
        with pytest.raises(SettingsRefused, match="the records of t have a field year of their own"):
            first([{"year": 1}], partition_by=["year"])


class TestNumber:
    def test_keeps_its_text(self) -> None:
        assert json.dumps(value_of("[1.50]")) == "[1.5]"
        assert value_of("[1.50]")[0].text == "1.50"
