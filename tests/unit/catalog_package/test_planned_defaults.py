"""What a plan makes of the defaults of columns."""

import pytest

from catalog import Add, Column, Contract, Rule, plan
from tests.services.schemas import spec_of, table_of


class TestDefault:
    @pytest.mark.parametrize(
        ("column", "version", "why"),
        [
            (Column("n", "int", default=7), 2, "a default for n needs a table of format 3, and this one has 2"),
            (Column("n", "int", default=2**31), 3, "2147483648 is no default for n: it is no int"),
            (Column("n", "int", default=True), 3, "True is no default for n: it is no int"),
            (Column("n", "string", default=7), 3, "7 is no default for n: it is no string"),
            (Column("n", "date", default="2024-01-01"), 3, "n can't have a default: its type is date"),
            (Column("n", "list<int>", default=7), 3, "n can't have a default: its type is list<int>"),
            (Column("n", "double", default=float("nan")), 3, "nan is no default for n: it is no double"),
            (Column("n", "double", default=2**53 + 1), 3, "9007199254740993 is no default for n: it is no double"),
            (Column("n", "double", default=10**400), 3, "1000"),
            (Column("n", "float", default=float("inf")), 3, "inf is no default for n: it is no float"),
            (Column("n", "float", default=1e39), 3, "1e+39 is no default for n: it is no float"),
            (Column("n", "float", default=0.1), 3, "0.1 is no default for n: it is no float"),
        ],
    )
    @pytest.mark.parametrize("there", [True, False])
    def test_that_can_not_be_had_is_said_and_keeps_nothing_else_out(
        self, column: Column, version: int, why: str, *, there: bool
    ) -> None:
        columns = (Column("n", column.type),) if there else ()
        found = plan(table_of(columns, format_version=version), spec_of(column, Column("more", "int")))
        assert [each[: len(why)] for each in found.unfilled] == [why]
        assert not found.objections
        assert [each.path for each in found.changes if isinstance(each, Add)] == [*([] if there else ["n"]), "more"]
        assert {each.column.default for each in found.changes if isinstance(each, Add)} == {None}
        assert why in str(found)

    @pytest.mark.parametrize(
        ("there", "wanted"),
        [("string", "int"), ("list<int>", "int"), ("long", "list<long>"), ("list<int>", "map<int, int>")],
    )
    def test_of_what_is_set_aside_does_not_matter(self, there: str, wanted: str) -> None:
        found = plan(table_of((Column("n", there),), format_version=3), spec_of(Column("n", wanted, default=7)))
        assert (found.changes, found.unfilled) == ((), ())

    def test_stays_with_a_column_named_as_the_path_of_what_is_set_aside(self) -> None:
        there = table_of((Column("a", "struct<c: long>"), Column("a.b", "long")), format_version=3)
        wanted = spec_of(Column("a", "struct<b: long>"), Column("a.b", "int", default=7))
        found = plan(there, wanted)
        assert [each.path for each in found.refusals] == ["a.b"]
        assert [str(each) for each in found.changes] == ["~ a.b default 7"]

    def test_is_that_of_the_first_of_two_with_one_name(self) -> None:
        there = table_of((Column("n", "long"),), format_version=3)
        assert not plan(there, spec_of(Column("n", "long"), Column("n", "long", default=7))).changes
        found = plan(there, spec_of(Column("n", "long", default=7), Column("n", "string", default="x")))
        assert [str(each) for each in found.changes] == ["~ n default 7"]

    def test_follows_the_contract(self) -> None:
        there, wanted = table_of((Column("n", "long"),), format_version=3), spec_of(Column("n", "long", default=7))
        assert [str(each) for each in plan(there, wanted).changes] == ["~ n default 7"]
        assert not plan(there, wanted, Contract(Rule.WIDEN)).changes

    @pytest.mark.parametrize("rule", [Rule.WIDEN, Rule.FREEZE, Rule.REFUSE])
    def test_that_would_not_be_touched_is_not_spoken_of(self, rule: Rule) -> None:
        wanted = spec_of(Column("n", "long", default="x"), Column("new", "long", default="x"))
        assert not plan(table_of((Column("n", "long"),)), wanted, Contract(rule)).unfilled
