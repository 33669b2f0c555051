"""What a table does not take yet is news once: after its plan has followed, each record is sound or has its fault."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from catalog import Add, evolved
from lakehouse_ingest.records import SOURCE
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, RefusedField, TablePlan
from lakehouse_ingest.schema.contract import aside_of, contract_of
from lakehouse_ingest.schema.planning.growth import new_fields
from lakehouse_ingest.schema.planning.widening import outgrown
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.schema.table_plans import first_fields, plan_that_stands, spec
from lakehouse_ingest.schema.values import Real, Tree
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.fitting import Fitter
from lakehouse_ingest.stages.plans import Following, RoutePlan
from tests.services.schemas import table_of

COLUMNS = (
    ColumnPlan("n", "n", "int"),
    ColumnPlan("f", "f", "float"),
    ColumnPlan("d", "d", "decimal(4,2)"),
    ColumnPlan("s", "s", "struct<n: int, parts: list<int>, more: struct<d: decimal(4,2)>>"),
    ColumnPlan("m", "m", "map<string, struct<f: float>>"),
    ColumnPlan("h_", "h", "struct<n: int>"),
    ColumnPlan("needed", "needed", "long", required=True),
)
NAMES = st.sampled_from(
    ["n", "f", "d", "s", "m", "h", "parts", "more", "needed", "new", "N", "a.b", "", SOURCE, EVENT_TIME]
)
NUMBERS = st.sampled_from([1, 2**31, -(2**31), 2**40, 2**63, 2**70, 10**36, 10**39, 10**400])
FRACTIONS = st.sampled_from(["1.5", "99.99", "12345.5", "0.001", "1e35", "1e39", "3.4028235e38", "-1e400", "NaN"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | FRACTIONS.map(Real) | st.sampled_from(["x", "2024-05-06", "12"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(
    st.dictionaries(NAMES, VALUES, max_size=4).flatmap(
        lambda record: st.booleans().map(lambda has: {**record, "needed": 1} if has else record)
    ),
    min_size=1,
    max_size=5,
)
RULES = st.sampled_from(["evolve", "widen", "freeze", "refuse"])
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "contract": RULES,
        "contracts": st.dictionaries(
            st.lists(NAMES | st.sampled_from(["element", "value"]), min_size=1, max_size=3).map(".".join),
            RULES,
            max_size=3,
        ),
        "rescue": st.booleans(),
        "hints": st.just({"h": "struct<n: int>"}),
        "max_columns": st.sampled_from([10, 20, 25]),
        "max_depth": st.integers(1, 3),
        "max_new": st.integers(1, 3),
    },
)


def news_of(
    plan: TablePlan, settings: TableSettings, records: Sequence[Tree], refused: tuple[RefusedField, ...]
) -> list[Tree]:
    """As tasks find them. A record with a fault is none: its fault stays, whatever the table becomes."""
    contract, hinted = contract_of(settings), frozenset(settings.hints)
    relaxing = frozenset(
        each.field
        for each in plan.columns
        if (settings.contract or each.field in settings.contracts) and contract.rule_of(each.field).widens
    )
    fitter = Fitter(RoutePlan(plan, refused, Following(contract, hinted, relaxing)))
    found = [(each, fitter.fit(each)) for each in records]
    return [each for each, fitted in found if fitted.news and not fitted.fault]


def followed(plan: TablePlan, settings: TableSettings, news: list[Tree]) -> tuple[TablePlan, tuple[RefusedField, ...]]:
    """The plan after the table has followed, and the fields that it may not follow."""
    seen = SeenFields(first_fields(settings, plan))
    for each in news:
        seen.add(each)
    growth = new_fields(plan, settings, seen.fields)
    wider = outgrown(plan, settings, seen.fields, seen.lacking(each.field for each in COLUMNS if each.required))
    made = spec(plan, settings)
    columns = evolved(made.columns, [*(Add(path, column) for path, column in growth.columns), *wider])
    return plan_that_stands(table_of(columns, properties=made.properties), settings), growth.refused


class TestNews:
    @given(RECORDS, SETTINGS)
    def test_ends_within_the_rounds_that_a_batch_has(self, records: list[Tree], changes: dict[str, Any]) -> None:
        """One round is enough, unless a column has become optional: then a value is rescued that was a fault before."""
        settings = TableSettings.model_validate({"event_time_unit": "ms", **changes})
        plan = TablePlan("t", COLUMNS, None, "ms", aside=aside_of(settings))
        refused: tuple[RefusedField, ...] = ()
        for last in (1, 2):
            if not (news := news_of(plan, settings, records, refused)):
                return
            (plan, more), before = followed(plan, settings, news), plan
            assert more or plan.columns != before.columns
            refused = (*refused, *more)
            if all(each.required for each in plan.columns if each.field == "needed") or last > 1:
                assert news_of(plan, settings, records, refused) == []
