"""From records to a plan and from the plan to rows: what was planned takes the records, or says why it does not."""

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, MEETS, NO_NAME, TOO_MANY, ColumnPlan, RefusedField, TablePlan
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.table_plans import Planned, first_fields, plan_from_seen
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.formats.json_object import tree
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, Outcome, outcomes, texts


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def first(values: Sequence[Any], *, refuse_names: bool = False, **settings: Any) -> Planned:
    """The plan of a table whose first batch this is, as tasks and the driver make it."""
    of_table = TableSettings.model_validate(settings)
    seen = SeenFields(first_fields(of_table))
    for text in texts(values):
        if not isinstance(found := tree(text.encode()), Fault):
            seen.add(found)
    return plan_from_seen("t", of_table, seen.fields, refuse_names=refuse_names)


def rows_of(values: Sequence[Any], planned: Planned, form: Format) -> list[Outcome]:
    return outcomes(texts(values), RoutePlan(planned.plan, planned.refused, Following()), form)


def faults(found: Sequence[Outcome]) -> list[tuple[str, str] | None]:
    return [(each.reason, each.detail) if isinstance(each, Fault) else None for each in found]


def row(found: Outcome) -> dict[str, Any]:
    assert isinstance(found, dict), found
    return found


NAMES = [
    *("what?", "a b", "a'b", 'a"b', "a`b", "``", "a.b", "", "x[0]", "é😀", "null", "struct", "OBJECT", "OBJECT<a"),
    *("a\nb", "a\\b", "a:b>", "9", "A", "a", "select", "timestamp", "decimal(1,2)", "_", "_broken", "$.a", "element"),
    *("k" * 300, "Schlüssel", "ключ", "_file"),
]


class TestAnyKey:
    def test_has_its_value_in_its_column(self, form: Format) -> None:
        """Below the top a key is a name as it is; an object with keys that can't be names keeps its JSON text."""
        below = [name for name in NAMES if name and "." not in name and name != "A"]
        values = [
            {name: number for number, name in enumerate(NAMES)},
            {"inner": dict.fromkeys(below, 1), "dotted": {"x.y": 1}, "empty": {"": 1}},
        ]
        planned = first(values)
        columns = {column.field: column.name for column in planned.plan.columns}
        one, other = map(row, rows_of(values, planned, form))
        assert [one[columns[name]] for name in NAMES] == list(range(len(NAMES)))
        assert (other["dotted"], other["empty"]) == ('{"x.y":1}', '{"":1}')
        assert other["inner"] == dict.fromkeys(below, 1)

    def test_that_meets_ours_or_another_keeps_its_value(self, form: Format) -> None:
        of_partitions = ("event_time_day", "A_bucket", "part")
        ours = (SOURCE, RECORD, FAULT, EVENT_TIME, "Event_Time", "a", "A", "a b", "a_b", "", "site", *of_partitions)
        layout = ["day(event_time)", "site", "bucket(4, a_b)", "bucket(8, A) as A_bucket", "truncate(2, A) as part"]
        values = [{**{name: f"of {name}" for name in ours}, "ts": "2024-05-06"}]
        planned = first(values, event_time="ts", partition_by=layout)
        names = {column.field: column.name for column in planned.plan.columns}
        found = row(rows_of(values, planned, form)[0])
        assert {name: found[names[name]] for name in ours} == {name: f"of {name}" for name in ours}
        assert (found[SOURCE]["offset"], found[EVENT_TIME].day) == (0, 6)

    def test_that_meets_another_makes_its_record_a_dead_letter_where_that_is_set(self, form: Format) -> None:
        values = [{"a": 1}, {"A": 2}, {"A": None, "b": 1}, {SOURCE: 1}, {"x y": 1}, {"x_y": 1}, {"event_time_day": 1}]
        assert faults(rows_of(values, first(values, refuse_names=True), form)) == [
            ("no_column", f"a: {MEETS}"),
            None,
            None,
            ("no_column", f"{SOURCE}: {MEETS}"),
            None,
            ("no_column", f"x_y: {MEETS}"),
            ("no_column", f"event_time_day: {MEETS}"),
        ]


class TestBrokenNeighbour:
    @pytest.mark.parametrize("levels", [201, 334, 999, 1_000, 10_000])
    def test_that_is_too_deep_harms_nobody(self, levels: int, form: Format) -> None:
        deep = ['{"a":' * levels + "1" + "}" * levels, '{"zzz":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"]
        if levels == 201:
            deep = [deep[0], '{"zzz":' + "[" * levels + "]" * levels + "}"]
        values = [*deep, '{"b": 1}']
        planned = first(values)
        assert [column.field for column in planned.plan.columns] == ["b"]
        *dead, sound = rows_of(values, planned, form)
        assert row(sound)["b"] == 1
        assert faults(dead) == [(Reason.BROKEN, "not JSON, or more than 200 levels deep")] * 2

    @pytest.mark.parametrize("text", [r'{"\ud800": 1, "\ud801": 2}', r'{"a": 1, "\uDC00x": 2}', r'{"a": "\ud83d"}'])
    def test_with_half_a_character_harms_nobody(self, text: str, form: Format) -> None:
        values = [text, r'{"b": "\\ud800 \ud83d\ude00 \uD83D\uDE00"}']
        dead, sound = rows_of(values, first(values), form)
        assert isinstance(dead, Fault)
        assert dead.reason is Reason.NOT_TEXT
        assert row(sound)["b"] == r"\ud800 😀 😀"

    @pytest.mark.parametrize("deep", ['{"a":' * 200 + "1" + "}" * 200, '{"a":' + "[" * 199 + "]" * 199 + "}"])
    def test_that_is_just_not_too_deep_has_its_row(self, deep: str, form: Format) -> None:
        assert isinstance(rows_of([deep], first([deep]), form)[0], dict)


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
WITHIN: list[tuple[Any, tuple[str | None, ...], str, str, str]] = [
    # a record with a field that can't be a column, where that is, its name, why, and how the detail begins
    ({"place": {"": 1}}, ("place",), "", NO_NAME, "place."),
    ({"place": {"a.b": 1}}, ("place",), "a.b", NO_NAME, "place.a.b"),
    ({"place": {"LAT": 1}}, ("place",), "LAT", MEETS, "place.LAT"),
    ({"place": {"more": {"A": 1}}}, ("place", "more"), "A", MEETS, "place.more.A"),
    ({"parts": [{"n": 1}, {"N": 1}]}, ("parts", None), "N", MEETS, "parts[].N"),
    ({"parts": [{"o": 1}]}, ("parts", None), "o", MEETS, "parts[].o"),
]


class TestRefusedField:
    def test_makes_its_record_a_dead_letter_wherever_it_is(self, form: Format) -> None:
        """A record in which it holds nothing has its row."""
        values = [
            *(each for each, *_ in WITHIN),
            {"place": {"": None, "a.b": None, "LAT": None, "lat": 1.5}},
            {"parts": [{"N": None, "n": 1}, None], "id": 5},
        ]
        refused = tuple(RefusedField(where, name, why) for _, where, name, why, _ in WITHIN)
        *dead, one, other = rows_of(values, Planned(PLAN, refused=refused), form)
        assert faults(dead) == [(Reason.NO_COLUMN, f"{path}: {why}") for *_, why, path in WITHIN]
        assert row(one)["place"]["lat"] == 1.5
        assert row(other)["id"] == 5

    def test_is_asked_of_sound_records_only(self, form: Format) -> None:
        values: list[Any] = ["", "x", "[]", {"x": 1}, {"id": 1}, {"x": None}, '{"x": 1', '{"x": 1, "x": 2}']
        planned = Planned(PLAN, refused=(RefusedField((), "x", TOO_MANY),))
        assert [each and each[0] for each in faults(rows_of(values, planned, form))] == [
            "empty_value", "broken_json", "not_an_object", "no_column", None, None, "broken_json", "no_column",
        ]  # fmt: skip

    def test_is_one_for_which_the_table_has_no_room(self, form: Format) -> None:
        values = [{"b": 1}, {"a": 1, "z": None}, {"c": {"x": 1, "y": 2}}, {"d": 1}, {"d": None, "a": 2}]
        found = rows_of(values, first(values, max_columns=3), form)
        assert faults(found) == [None, None, None, ("no_column", f"d: {TOO_MANY}"), None]

    def test_may_be_one_of_very_many(self, form: Format) -> None:
        values = [{f"f{number:05}": number, "mixed": [number, str(number)][number % 2]} for number in range(9_999)]
        planned = first(values, max_columns=100)
        assert len(planned.refused) == 9_900
        found = rows_of(values, planned, form)
        assert {each.reason for each in found if isinstance(each, Fault)} == {Reason.NO_COLUMN}
        assert sum(isinstance(each, Fault) for each in found) == 9_999

    def test_does_not_hide_a_value_of_another_type(self, form: Format) -> None:
        dead, sound = rows_of(['{"id": {"new": 1}}', '{"id": 1}'], Planned(PLAN), form)
        assert faults([dead]) == [(Reason.WRONG_TYPE, 'id: {"new":1} is not long')]
        assert row(sound)["id"] == 1


HINTS = {"price": "decimal(9,2)", "small": "UInt8", "a b": "Int16", "day": "date", "at": "timestamptz", "no": "long"}


class TestHint:
    def test_is_what_values_are_held_against(self, form: Format) -> None:
        values = [
            {"price": 1, "small": None, "a b": 5, "day": "2024-05-06", "at": 1714979289000001, "z": 1},
            *({"small": 300}, {"price": 1.234}, {"a b": 70000}, {"day": "2024-02-30"}, {"at": "yesterday"}),
        ]
        planned = first(values, hints=HINTS)
        plan = RoutePlan(planned.plan, planned.refused, Following(hinted=frozenset(HINTS)))
        found = outcomes(texts(values), plan, form)
        assert [each and each[0] for each in faults(found)] == [
            None, "out_of_range", "out_of_range", "out_of_range", "wrong_type", "wrong_type",
        ]  # fmt: skip
        sound = row(found[0])
        assert (sound["price"], sound["a_b"], sound["at"].microsecond) == (Decimal("1.00"), 5, 1)


class TestTime:
    def test_that_is_none_later_is_a_fault(self, form: Format) -> None:
        planned = first(['{"day": "2024-05-06", "at": "2024-05-06T07:08:09Z"}'])
        bad = ["2024-02-30", "x", "2024-05-06T07:08:09Z", "2024-5-6", "19000", " 2024-05-06", "2024-05-06 ", ""]
        values: list[Any] = [{"day": each} for each in (*bad, 19000, True, {"a": 1})]
        values += [{"at": each} for each in ("x", "", True)]
        found = rows_of(values, planned, form)
        assert [each and each[0] for each in faults(found)] == [Reason.WRONG_TYPE] * len(values)
        good = ['{"day": "2024-02-29"}', '{"at": "2024-05-06T09:08:09.5+02:00"}', '{"day": null}']
        sound = [row(each) for each in rows_of(good, planned, form)]
        assert sound[0]["day"].isoformat() == "2024-02-29"
        assert sound[1]["at"].isoformat() == "2024-05-06T07:08:09.500000+00:00"

    def test_of_the_event_time_may_be_written_in_another_way_later(self, form: Format) -> None:
        for field in ("ts", EVENT_TIME):
            planned = first([{field: "2024-05-06"}], event_time=field)
            values = [{field: "2024-05-06"}, {field: "2024-05-06T07:08:09Z"}]
            assert [row(each)[EVENT_TIME].isoformat() for each in rows_of(values, planned, form)] == [
                "2024-05-06T00:00:00+00:00",
                "2024-05-06T07:08:09+00:00",
            ]


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


class TestAnyBatch:
    @given(objects=st.lists(FIELDS, min_size=1, max_size=15))
    def test_has_its_values_in_its_own_columns_or_a_reason(self, objects: list[dict[str, Any]]) -> None:
        planned = first([json.dumps(each) for each in objects], event_time_unit="iso", infer_times=False)
        columns = {column.field: column for column in planned.plan.columns}
        route = RoutePlan(planned.plan, planned.refused, Following(final=True))
        for found, each in zip(outcomes([json.dumps(each) for each in objects], route), objects, strict=True):
            if isinstance(found, Fault):
                assert found.detail
                continue
            for name, value in each.items():
                if (column := columns.get(name)) and value is not None:
                    assert same(column, row(found)[column.name], value), (column, value)


def same(column: ColumnPlan, got: Any, value: Any) -> bool:
    match column.iceberg:
        case "string" if not isinstance(value, str):
            return bool(json.loads(got) == value)
        case "boolean" | "string":
            return bool(got == value)
        case "long" | "double":
            return math.isclose(got, value)
    return True
