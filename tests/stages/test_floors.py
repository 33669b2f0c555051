"""Values too low for a partition that truncates: dead letters, or rescued, where Iceberg has no place for them."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import TruncateTransform

from catalog import parse_type
from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import Aside, ColumnPlan, TablePlan
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.records import Fault
from tests.stages.given import FORMATS, Outcome, one, outcomes

LONG = -(2**63)
LEAST = {"int": -(2**31), "long": LONG}


@pytest.fixture(params=sorted(FORMATS))
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


def plan(kind: str, width: int, path: str = "v", aside: Aside | None = None) -> TablePlan:
    column = ColumnPlan(path.partition(".")[0], path.partition(".")[0], kind)
    return TablePlan("t", (column,), None, "iso", aside=aside, truncated=((path, width),))


def value_of(found: Outcome) -> Any:
    assert isinstance(found, dict), found
    return found["v"]


class TestValueBelowTheFloor:
    def test_is_a_dead_letter_and_the_others_are_rows(self, form: Format) -> None:
        values = [one("v", text) for text in ("-99.9", "-99.4", "99.9", "null", "-99.5")]
        first, *others, last = outcomes(values, plan("decimal(3,1)", 7), form)
        assert [value_of(each) for each in others] == [Decimal("-99.4"), Decimal("99.9"), None]
        why = "is too low for a partition of the table, which takes -99.4 and more"
        assert first == Fault(Reason.OUT_OF_RANGE, f"v: -99.9 {why}", "shape", f"v {why}")
        assert last == Fault(Reason.OUT_OF_RANGE, f"v: -99.5 {why}", "shape", f"v {why}")

    def test_is_rescued_if_the_contract_says_so(self, form: Format) -> None:
        found = outcomes([one("v", str(LONG)), one("v", "1")], plan("long", 10, aside=Aside(refuses=False)), form)
        assert [value_of(each) for each in found] == [None, 1]
        assert [each["_rescued"] for each in found if isinstance(each, dict)] == [f'{{"v":{LONG}}}', None]

    def test_is_found_within_an_object(self, form: Format) -> None:
        kind = "struct<a: struct<n: long, s: string>, b: long>"
        lowest = f'{{"a":{{"n":{LONG}}}}}'
        values = [lowest, '{"a": {"n": 5, "s": "x"}}', '{"a": {"s": "y"}, "b": 1}', f'{{"b": {LONG}}}']
        low, *others = outcomes([one("v", each) for each in values], plan(kind, 10, "v.a.n"), form)
        assert isinstance(low, Fault)
        assert low.detail == f"v: {lowest} is too low for a partition of the table, which takes {LONG + 8} and more"
        assert [value_of(each) for each in others] == [
            {"a": {"n": 5, "s": "x"}, "b": None},
            {"a": {"n": None, "s": "y"}, "b": 1},
            {"a": None, "b": LONG},
        ]

    def test_of_another_column_is_a_value_like_any_other(self, form: Format) -> None:
        of_struct = ("struct<y: long>", "v.x", f'{{"y": {LONG}}}')
        for kind, path, text in (("long", "v2", LONG), ("long", "v.x", LONG), ("string", "v", '"a"'), of_struct):
            other = TablePlan("t", (ColumnPlan("v", "v", kind),), None, "iso", truncated=((path, 10),))
            (found,) = outcomes([one("v", str(text))], other, form)
            assert value_of(found) is not None


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, int, Any]:
    """A type, a width, and a value near the lowest of its type."""
    width = draw(st.integers(1, 999_999_999))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(sorted(LEAST)))
        return kind, width, LEAST[kind] + draw(st.integers(0, 2 * width))
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = min(1 - 10**precision + draw(st.integers(0, 2 * width)), 10**precision - 1)
    return f"decimal({precision},{scale})", width, Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


class TestEveryNumber:
    @given(numbers())
    def test_is_a_row_just_if_its_type_holds_its_partition(self, drawn: tuple[str, int, Any]) -> None:
        kind, width, value = drawn
        cut: Any = TruncateTransform(width).transform(parse_type(kind))(value)
        fits = cut >= LEAST[kind] if kind in LEAST else len(cut.as_tuple().digits) <= int(kind[8:].partition(",")[0])
        text = f"{value:f}" if isinstance(value, Decimal) else str(value)
        for form in FORMATS.values():
            (found,) = outcomes([one("v", text)], plan(kind, width), form)
            assert isinstance(found, dict) == fits, (kind, width, value, cut, found)
            assert isinstance(found, Fault) or value_of(found) == value
