"""Which records may change their table: new fields, wider types, required columns that may become optional."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakehouse_ingest.records import RESCUED, Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, TOO_MANY, ColumnPlan, RefusedField, TablePlan
from lakehouse_ingest.schema.contract import aside_of, contract_of
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, outcomes, shaped, texts

COLUMNS = (
    ColumnPlan("id", "id", "long"),
    ColumnPlan("place", "place", "struct<lat: double, more: struct<a: long>>"),
    ColumnPlan("parts", "parts", "list<struct<n: long>>"),
    ColumnPlan("things", "things", "map<string, struct<a: long>>"),
)
NARROW = (
    ColumnPlan("n", "n", "int"),
    ColumnPlan("f", "f", "float"),
    ColumnPlan("d", "d", "decimal(4,2)"),
    ColumnPlan("s", "s", "struct<int: int, parts: list<int>>"),
    ColumnPlan("m", "m", "map<string, struct<float: float, d: decimal(4, 2)>>"),
    ColumnPlan("small", "small", "int", low=0, high=255, declared="uint8"),
)


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def route_of(columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = (), **changes: Any) -> RoutePlan:
    settings = TableSettings.model_validate(changes)
    contract = contract_of(settings)
    relaxing = {
        each.field
        for each in columns
        if (settings.contract or each.field in settings.contracts) and contract.rule_of(each.field).widens
    }
    following = Following(contract, frozenset(settings.hints), frozenset(relaxing))
    return RoutePlan(TablePlan("t", tuple(columns), None, "iso", aside=aside_of(settings)), tuple(refused), following)


def news(values: Sequence[Any], route: RoutePlan, form: Format) -> list[bool]:
    return [each is None for each in outcomes(texts(values), route, form)]


class TestNewField:
    VALUES = (
        {"color": 1},
        {"place": {"zone": 1}},
        {"place": {"more": {"b": 1}}},
        {"parts": [{}, {"m": 1}]},
        {"things": {"x": {"b": 1}}},
    )

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, [True] * 5),
            ({"contract": "evolve", "rescue": True}, [True] * 5),
            ({"contract": "freeze"}, [False] * 5),
            ({"contract": "widen"}, [False] * 5),
            ({"contract": "refuse"}, [False] * 5),
            (
                {"contracts": {"place": "freeze", "place.more": "evolve", "parts.element.m": "refuse"}},
                [True, False, True, False, True],
            ),
            ({"contract": "freeze", "contracts": {"color": "evolve"}}, [True, False, False, False, False]),
            ({"contracts": {"things.value": "freeze"}}, [True, True, True, True, False]),
        ],
        ids=str,
    )
    def test_is_news_if_the_contract_lets_it_become_a_column(
        self, changes: dict[str, Any], expected: list[bool], form: Format
    ) -> None:
        assert news(self.VALUES, route_of(COLUMNS, **changes), form) == expected

    def test_is_no_news_while_it_holds_nothing(self, form: Format) -> None:
        values = [{"color": None}, {"color": []}, {"color": {"a": [None, {}]}}, {"place": {"zone": {}}}]
        assert news(values, route_of(COLUMNS), form) == [False] * 4

    def test_is_no_news_if_nothing_in_it_may_become_a_column(self, form: Format) -> None:
        no = dict.fromkeys(("new.no", "only.no", "list.element.no"), "freeze")
        values = [
            {"new": {"ok": 1, "no": 2}},
            {"only": {"no": 1}},
            {"list": [{"no": 1}]},
            {"list": [{"no": 1}, {"x": 1}]},
        ]
        assert news(values, route_of(COLUMNS, contracts=no), form) == [True, False, False, True]

    def test_is_no_news_once_it_is_known_that_it_gets_no_column(self, form: Format) -> None:
        refused = (RefusedField((), "color", TOO_MANY), RefusedField(("parts", None), "m", TOO_MANY))
        found = outcomes(texts(self.VALUES), route_of(COLUMNS, refused), form)
        assert [each.reason if isinstance(each, Fault) else each for each in found] == [
            Reason.NO_COLUMN, None, None, Reason.NO_COLUMN, None,
        ]  # fmt: skip
        rescuing = outcomes(texts([{"color": 1}]), route_of(COLUMNS, refused, rescue=True), form)
        assert isinstance(rescuing[0], dict)
        assert rescuing[0][RESCUED] == '{"color":1}'

    def test_of_a_faulty_record_is_no_news(self, form: Format) -> None:
        """A record that is dead-lettered anyway changes no table."""
        assert news([{"id": "x", "color": 1}, {"color": 1, "id": 1}], route_of(COLUMNS), form) == [False, True]

    def test_is_handed_out_with_its_record(self, form: Format) -> None:
        made = shaped(texts([{"id": 1}, {"id": 2, "color": {"a": 1}}]), route_of(COLUMNS), form)
        assert made.news == {1: {"id": 2, "color": {"a": 1}}}

    def test_is_no_news_where_columns_are_declared(self, form: Format) -> None:
        assert news(self.VALUES, RoutePlan(TablePlan("t", COLUMNS, None, "iso")), form) == [False] * 5


class TestValueThatNeedsAWiderType:
    VALUES = (
        {"n": 2**31},
        {"f": 1e39},
        {"d": 12345.5},
        {"s": {"int": 2**40}},
        {"s": {"parts": [1, -(2**40)]}},
        {"m": {"x": {"float": 1e39}}},
        {"m": {"y": {"d": 12345.5}}},
    )

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, [True] * 7),
            ({"contract": "widen"}, [True] * 7),
            ({"contract": "freeze"}, [False] * 7),
            ({"contract": "refuse"}, [False] * 7),
            (
                {"contracts": {"n": "freeze", "s": "refuse", "s.parts": "widen", "m.value.d": "freeze"}},
                [False, True, True, False, True, True, False],
            ),
            ({"hints": {"n": "int", "f": "float", "d": "decimal(4,2)", "s": "string", "m": "string"}}, [False] * 7),
        ],
        ids=str,
    )
    def test_is_news_if_the_contract_lets_the_type_grow(
        self, changes: dict[str, Any], expected: list[bool], form: Format
    ) -> None:
        assert news(self.VALUES, route_of(NARROW, **changes), form) == expected

    def test_is_no_news_if_no_type_takes_it(self, form: Format) -> None:
        values = [
            *({"n": 2**63}, {"n": "x"}, {"n": True}, {"n": 1.5}, '{"f": 1e400}', {"f": "y"}, {"d": 1.555}, {"d": "1"}),
            *({"d": 10**40}, {"small": 300}, {"s": {"int": "x"}}, {"s": 5}),
        ]
        found = outcomes(texts(values), route_of(NARROW), form)
        assert all(isinstance(each, Fault) for each in found), found

    def test_is_no_news_in_the_event_time(self, form: Format) -> None:
        column = ColumnPlan(EVENT_TIME, EVENT_TIME, "timestamptz")
        route = route_of([column])
        route = replace(route, plan=replace(route.plan, event_time=EVENT_TIME))
        (found,) = outcomes(texts([{EVENT_TIME: 2**70}]), route, form)
        assert isinstance(found, Fault)


class TestRequiredFieldThatIsMissing:
    COLUMNS = (ColumnPlan("needed", "needed", "string", required=True),)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, False),
            ({"contract": "evolve"}, True),
            ({"contract": "widen"}, True),
            ({"contract": "freeze"}, False),
            ({"contracts": {"needed": "widen"}}, True),
        ],
        ids=str,
    )
    def test_is_news_if_the_contract_says_so(self, changes: dict[str, Any], expected: bool, form: Format) -> None:  # noqa: FBT001
        route = route_of(self.COLUMNS, **changes)
        assert news([{}, {"needed": None}], route, form) == [expected] * 2
        assert route.following
        final = replace(route, following=replace(route.following, final=True))
        assert [each.reason for each in outcomes(["{}"], final, form) if isinstance(each, Fault)] == [Reason.MISSING]
