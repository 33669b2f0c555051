"""A format that knows only texts: a text is read as the type that its column declares."""

from typing import Any

import pytest

from catalog import Contract, Rule
from lakehouse_ingest.records import RESCUED, Reason
from lakehouse_ingest.schema.columns import Aside, TablePlan, declared
from lakehouse_ingest.schema.seen import SeenFields
from lakehouse_ingest.stages.plans import Following, RoutePlan
from lakehouse_ingest.stages.records import Fault, Real, Tree
from lakehouse_ingest.stages.rows import RowBuilder
from lakehouse_ingest.stages.untyped import reading
from tests.services.plant_extras import LINES
from tests.stages.given import outcomes, records, shaped
from tests.stages.making import SmallJson


class Texts:
    """The field `v` of each record is what Python says."""

    untyped = True
    field = SmallJson().field

    def tree(self, value: bytes | None) -> Tree | Fault:
        return SmallJson().tree(value)


def read(kind: str, value: Any) -> Any:
    typed = reading(Texts(), [declared("v", kind, required=False)])
    return typed({"v": value})["v"] if typed else value


def plan(kind: str, **more: Any) -> TablePlan:
    return TablePlan("t", (declared("v", kind, required=False),), None, "iso", **more)


class TestText:
    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            ("long", "12", 12),
            ("long", " -007\t", -7),
            ("int", "+3", 3),
            ("int8", "12", 12),
            ("double", "1.5", 1.5),
            ("double", "-2e3", -2000.0),
            ("float", ".5", 0.5),
            ("double", "12", 12),
            ("boolean", "TRUE", True),
            ("boolean", "false", False),
            ("string", "12", "12"),
            ("timestamptz", "1714979289", "1714979289"),
            ("binary", "AAE=", "AAE="),
        ],
    )
    def test_is_read_as_its_column_declares(self, kind: str, text: str, value: Any) -> None:
        found = read(kind, text)
        assert (found, type(found) is bool) == (value, type(value) is bool)

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            *(("long", text) for text in ("", "x", "1.0", "1_000", "1e3", "٣", "0x10", "--1", "1 2", "9" * 1_001)),
            *(("double", text) for text in ("", "x", "1,5", "1_0.5", "inf", "nan", "0x1p3", "1e", "9" * 1_001)),
            *(("boolean", text) for text in ("", "1", "0", "yes", "t", "nein")),
        ],
    )
    def test_of_no_such_value_stays_a_text(self, kind: str, text: str) -> None:
        assert read(kind, text) == text
        (found,) = outcomes([f"v={text}"], plan(kind), LINES)
        assert isinstance(found, Fault)
        assert (found.reason, found.told) == (Reason.WRONG_TYPE, f"v is not {kind}")

    def test_keeps_all_digits_of_a_decimal(self) -> None:
        found = read("decimal(38,2)", "123456789012345678901234567890.25")
        assert isinstance(found, Real)
        (row,) = outcomes(["v=123456789012345678901234567890.25"], plan("decimal(38,2)"), LINES)
        assert isinstance(row, dict)
        assert str(row["v"]) == "123456789012345678901234567890.25"

    def test_is_read_within_objects_lists_and_maps(self) -> None:
        kind = "struct<a: long, b: list<double>, c: map<string, boolean>, d: string>"
        value = {"a": "1", "b": ["1.5", None, "x"], "c": {"k": "true"}, "d": "2", "e": "3"}
        assert read(kind, value) == {"a": 1, "b": [1.5, None, "x"], "c": {"k": True}, "d": "2", "e": "3"}
        assert read(kind, "x") == "x"
        assert read("list<long>", "1") == "1"
        assert read("list<string>", ["1"]) == ["1"]

    def test_of_another_format_is_not_read(self) -> None:
        assert reading(SmallJson(), [declared("v", "long", required=False)]) is None
        (found,) = outcomes(['{"v": "12"}'], plan("long"), SmallJson())
        assert found == Fault(Reason.WRONG_TYPE, 'v: "12" is not long', "decode", "v is not long")


class TestRecord:
    def test_fits_or_has_the_usual_fault(self) -> None:
        found = outcomes(["v=12", "v=x", "v=99999999999999999999", "w=1", "v=300"], plan("long"), LINES)
        assert [row["v"] for row in found if isinstance(row, dict)] == [12, None, 300]
        assert found[1] == Fault(Reason.WRONG_TYPE, 'v: "x" is not long', "decode", "v is not long")
        said = "v: 99999999999999999999 is not long"
        assert found[2] == Fault(Reason.OUT_OF_RANGE, said, "decode", "v is not long")

    def test_out_of_a_declared_range_has_the_usual_fault(self) -> None:
        row, fault = outcomes(["v=127", "v=128"], plan("int8"), LINES)
        assert isinstance(row, dict)
        assert row["v"] == 127
        assert isinstance(fault, Fault)
        assert (fault.reason, fault.stage) == (Reason.OUT_OF_RANGE, "shape")

    def test_is_rescued_as_it_was(self) -> None:
        (row,) = shaped(["v=x;w=1"], plan("long", aside=Aside(refuses=False)), LINES).rows.to_pylist()
        assert (row["v"], row[RESCUED]) == (None, '{"v":"x","w":"1"}')

    def test_with_a_wider_value_is_news_of_that_type(self) -> None:
        """Text would say nothing of the type that the column has to get."""
        following = Following(Contract(Rule.EVOLVE))
        builder = RowBuilder(RoutePlan(plan("int"), following=following), LINES)
        (tree,) = builder.rows(records(["v=3000000000"])).news.values()
        assert tree == {"v": 3_000_000_000}
        seen = SeenFields()
        seen.add(tree)
        assert seen.fields["v"].sizes == {"long"}
