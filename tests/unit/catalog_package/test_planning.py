"""What a plan says, case by case; the laws are in tests/properties/test_evolution.py."""

import pytest

from catalog import Column, Contract, Fate, Plan, Rule, Sort, evolved, plan
from tests.services.schemas import spec_of, table_of
from tests.unit.catalog_package.plans import columns, planned


def fates(found: Plan) -> dict[str, str]:
    return {each.path: str(each.fate) for each in found.verdicts}


class TestColumn:
    def test_is_added_at_every_depth(self) -> None:
        there = {
            "id": "int",
            "place": "struct<lat: float>",
            "items": "list<struct<sku: string>>",
            "tags": "map<string, struct<level: int>>",
        }
        wanted = {
            "site": "string",
            "tags": "map<string, struct<note: string>>",
            "items": "list<struct<parts: list<struct<n: long>>, sku: string>>",
            "place": "struct<lon: double, lat: double>",
        }
        found = planned(there, wanted)
        assert str(found).splitlines() == [
            "+ site string",
            "+ tags.value.note string",
            "+ items.element.parts list<struct<n: long>>",
            "+ place.lon double",
            "~ place.lat float -> double",
        ]
        assert {column.name: column.type for column in evolved(columns(there), found.changes)} == {
            "id": "int",
            "place": "struct<lat: double, lon: double>",
            "items": "list<struct<sku: string, parts: list<struct<n: long>>>>",
            "tags": "map<string, struct<level: int, note: string>>",
            "site": "string",
        }

    @pytest.mark.parametrize(
        ("there", "wanted", "fate"),
        [
            ("int", "long", Fate.WIDEN),
            ("float", "double", Fate.WIDEN),
            ("decimal(10,2)", "decimal(12,2)", Fate.WIDEN),
            ("long", "int", Fate.FITS),
            ("double", "float", Fate.FITS),
            ("double", "int", Fate.FITS),
            ("decimal(12,2)", "decimal(10,2)", Fate.FITS),
            ("decimal(12,2)", "decimal(9,0)", Fate.FITS),
            ("decimal(38,0)", "long", Fate.FITS),
            ("decimal(18,0)", "long", Fate.SET_ASIDE),
            ("decimal(10,2)", "decimal(12,3)", Fate.SET_ASIDE),
            ("decimal(12,2)", "decimal(12,1)", Fate.SET_ASIDE),
            ("double", "long", Fate.SET_ASIDE),
            ("int", "double", Fate.SET_ASIDE),
            ("long", "string", Fate.SET_ASIDE),
            ("string", "binary", Fate.SET_ASIDE),
            ("timestamp", "timestamptz", Fate.SET_ASIDE),
            ("date", "timestamp", Fate.SET_ASIDE),
            ("fixed[4]", "fixed[8]", Fate.SET_ASIDE),
            ("long", "struct<a: long>", Fate.SET_ASIDE),
            ("list<long>", "long", Fate.SET_ASIDE),
            ("list<long>", "map<string, long>", Fate.SET_ASIDE),
        ],
    )
    def test_fits_is_widened_or_set_aside_by_its_type(self, there: str, wanted: str, fate: Fate) -> None:
        found = planned({"x": there}, {"x": wanted})
        assert fates(found) == {"x": fate}
        assert bool(found.changes) == (fate is Fate.WIDEN)

    def test_that_cannot_be_had_says_where_both_types_and_why(self) -> None:
        found = planned({"place": "struct<lat: long>"}, {"place": "struct<lat: list<long>>"})
        assert [str(each) for each in found.refusals] == [
            "place.lat list<long>, there is long: set aside, long can't become a list"
        ]

    def test_that_is_the_key_of_a_map_stays_what_it_is(self) -> None:
        assert fates(planned({"m": "map<int, int>"}, {"m": "map<long, long>"})) == {
            "m": "fits",
            "m.key": "set aside",
            "m.value": "widen",
        }
        assert fates(planned({"m": "map<long, int>"}, {"m": "map<int, int>"}))["m.key"] == "fits"
        assert fates(planned({"m": "map<struct<a: int>, int>"}, {"m": "map<struct<a: int, b: int>, int>"}))[
            "m.key"
        ] == ("set aside")

    def test_of_a_type_that_the_tables_format_has_not_is_set_aside(self) -> None:
        wanted = {"at": "timestamp_ns", "all": "struct<at: timestamptz_ns, n: long>"}
        found = planned({}, wanted)
        assert [each.path for each in found.refusals] == ["at", "all.at"]
        assert "needs format version 3" in found.refusals[0].reason
        assert not planned({}, wanted, format_version=3).refusals

    def test_of_no_type_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="lang"):
            planned({}, {"a": "lang"})

    def test_has_its_doc_string_follow_where_the_contract_evolves(self) -> None:
        there = (Column("a", 'struct<b: long "old">', doc="old"), Column("c", "long", doc="kept"))
        wanted = spec_of(Column("a", 'struct<b: long "new">', doc="new"), Column("c", "long"))
        found = plan(table_of(there), wanted)
        assert evolved(there, found.changes) == (Column("a", 'struct<b: long "new">', doc="new"), there[1])
        assert not plan(table_of(there), wanted, Contract(Rule.WIDEN)).changes


class TestContract:
    @pytest.mark.parametrize(
        ("rule", "new", "wider", "other"),
        [
            ("evolve", "add", "widen", "set aside"),
            ("widen", "set aside", "widen", "set aside"),
            ("freeze", "set aside", "set aside", "set aside"),
            ("refuse", "refuse", "refuse", "refuse"),
        ],
    )
    def test_does_as_the_table_in_its_docstring_says(self, rule: str, new: str, wider: str, other: str) -> None:
        there = {"wider": "int", "other": "int", "same": "int"}
        wanted = {"new": "struct<a: int>", "wider": "long", "other": "string", "same": "int"}
        found = planned(there, wanted, Contract(Rule(rule)))
        assert {path: fate for path, fate in fates(found).items() if path != "new.a"} == {
            "new": new,
            "wider": wider,
            "other": other,
            "same": "fits",
        }

    def test_applies_the_nearest_rule(self) -> None:
        contract = Contract(Rule.FREEZE, {"open": Rule.EVOLVE, "open.shut": Rule.REFUSE})
        found = planned(
            {"open": "struct<shut: struct<a: int>, b: int>", "opening": "int"},
            {"open": "struct<shut: struct<a: int, n: int>, b: long, n: int>", "opening": "long", "n": "int"},
            contract,
        )
        assert fates(found) == {
            "open": "fits",
            "open.shut": "fits",
            "open.shut.a": "fits",
            "open.shut.n": "refuse",
            "open.b": "widen",
            "open.n": "add",
            "opening": "set aside",
            "n": "set aside",
        }
        with pytest.raises(ValueError, match="melt"):
            Contract("melt")  # type: ignore[arg-type]

    def test_applies_a_rule_to_what_is_within_and_not_to_a_name_with_a_dot(self) -> None:
        there, wanted = {"a": "int", "b": "struct<d: int>"}, {"a.b": "int", "b": "struct<d: long>"}
        found = planned(there, wanted, Contract(columns={"a": Rule.FREEZE, "b.d": Rule.WIDEN, "b": Rule.REFUSE}))
        assert fates(found) == {"a.b": "add", "b": "fits", "b.d": "widen"}

    def test_leaves_out_of_a_new_column_only_what_may_not_be_added(self) -> None:
        wanted = {"a": 'struct<ok: long, no: struct<x: long>, "b.c": long, B: long, b: long>'}
        found = planned({"a.b.c": "long"}, wanted, Contract(columns={"a.no": Rule.REFUSE}))
        assert [str(change) for change in found.changes] == ["+ a struct<ok: long, B: long>"]
        assert {each.path: (str(each.fate), each.reason) for each in found.refusals} == {
            "a.no": ("refuse", "the contract refuses it"),
            "a.b.c": ("set aside", "to Iceberg its name is the path of another field"),
            "a.b": ("set aside", "its name differs from B by case only"),
        }

    def test_sets_a_bomb_of_columns_aside(self) -> None:
        wide = {f"c{number}": "long" for number in range(100)}
        found = planned({"id": "long"}, wide, Contract(max_columns=10))
        assert [str(each) for each in found.changes] == [f"+ c{number} long" for number in range(9)]
        assert len(found.refusals) == 91
        assert found.refusals[0].reason == "the table has as many columns as it may: 10"
        assert len(planned({"id": "long"}, wide, Contract(max_new=5)).changes) == 5
        deep = "list<" * 30 + "long" + ">" * 30
        found = planned({}, {"ok": "list<struct<a: long, b: struct<c: long>>>", "deep": deep}, Contract(max_depth=3))
        assert [str(each) for each in found.changes] == ["+ ok list<struct<a: long>>"]
        assert [each.path for each in found.refusals] == ["ok.element.b", "deep"]

    def test_leaves_the_room_of_what_cannot_be_added_to_others(self) -> None:
        wanted = {"a": "struct<at: timestamp_ns, b: struct<at: timestamp_ns>>", "n": "long"}
        for contract in (Contract(max_new=1), Contract(max_columns=1), Contract(max_columns=2, max_new=2)):
            assert [str(each) for each in planned({}, wanted, contract).changes] == ["+ n long"]


class TestName:
    @pytest.mark.parametrize("name", ["ID", "", "place.lat"])
    def test_that_would_confuse_is_set_aside(self, name: str) -> None:
        found = planned({"id": "long", "place": "struct<lat: long>"}, {name: "long"})
        assert fates(found) == {name: "set aside"}
        assert not found.changes

    def test_that_is_empty_gets_nothing_added_within(self) -> None:
        """To Iceberg a path through it leads to the table."""
        found = planned({"": "struct<a: long>"}, {"": "struct<a: long, b: long>"})
        assert fates(found) == {"": "fits", ".a": "fits", ".b": "set aside"}
        assert not found.changes

    def test_that_comes_twice_counts_the_first_time(self) -> None:
        wanted = (Column("a", "timestamp_ns", doc="no"), Column("a", "int"), Column("s", "struct<b: long, b: string>"))
        found = plan(table_of(()), spec_of(*wanted))
        assert [str(change) for change in found.changes] == ["+ s struct<b: long>"]
        assert [each.reason for each in found.refusals if each.path != "a"] == ["it appears twice"]
        assert not plan(table_of(evolved((), found.changes)), found.wanted).changes

    def test_that_is_the_path_of_a_lists_elements_is_taken(self) -> None:
        assert fates(planned({"a.element": "long"}, {"a": "list<long>", "b": "list<long>"})) == {
            "a": "set aside",
            "b": "add",
        }

    def test_with_a_dot_that_iceberg_would_find_by_a_short_path_is_set_aside(self) -> None:
        found = planned({"items": "list<struct<sku: long>>"}, {"items.sku": "long", "items.other": "long"})
        assert fates(found) == {"items.sku": "set aside", "items.other": "add"}


class TestRequiredColumn:
    def test_is_relaxed_where_the_data_may_lack_it(self) -> None:
        there = {"id": "required long", "at": "required struct<x: required long>", "left": "required long"}
        wanted = {"id": "long", "at": "struct<x: long>"}
        found = planned(there, wanted)
        assert [str(change) for change in found.changes] == [
            f"~ {path} required -> optional" for path in ("id", "at", "at.x")
        ]
        assert found.lacking == ("left",), "what the data does not know stays as it is, and rows must have it"
        frozen = planned(there, wanted, Contract(Rule.FREEZE))
        assert not frozen.changes
        assert frozen.lacking == ("id", "at", "at.x", "left")

    def test_stays_required_if_it_is_or_holds_an_identifier(self) -> None:
        there = {"at": "required struct<x: required long, y: required long>"}
        found = planned(there, {"at": "struct<x: long, y: long>"}, identifier=("at.x",))
        assert [str(change) for change in found.changes] == ["~ at.y required -> optional"]
        assert found.lacking == ("at", "at.x")

    def test_is_added_as_optional_at_every_depth(self) -> None:
        found = planned({}, {"a": "required list<required struct<b: required long>>"})
        assert evolved((), found.changes) == (Column("a", "list<struct<b: long>>"),)


class TestPlan:
    def test_says_for_what_no_row_can_land(self) -> None:
        found = planned(
            {"id": "required long", "at": "required struct<x: required int>"}, {"id": "long", "more": "int"}
        )
        said = "the table needs a value, and the data may have none"
        assert str(planned({"id": "required long"}, {})) == f"id: {said}"
        assert str(found).splitlines()[-1] == f"at: {said}"

    def test_says_what_differs_and_is_not_planned(self) -> None:
        """In one line, and by no value of a property: it may be a secret. Where nothing is wanted, anything will do."""
        told = {"identifier": ("id",), "sort": (Sort("day(at)"),), "properties": {"owner": "me", "comment": "readings"}}
        there = table_of(columns({"id": "required long", "at": "timestamptz"}), **told)
        same = spec_of(
            *there.columns,
            identifier=("id",),
            sort=(Sort("days(at)"),),
            properties={"owner": "me", "format-version": "2"},
            doc="readings",
            location="file:/t/",
        )
        assert str(plan(there, same)) == str(plan(there, spec_of(*there.columns))) == "nothing to change"
        other = spec_of(
            *there.columns,
            identifier=("id", "at"),
            sort=(Sort("day(at)", descending=True),),
            properties={"owner": "you", "format-version": "3"},
            doc="temperatures",
            location="s3://b/t",
        )
        assert plan(there, other).unplanned == (
            "the sort order [day(at)]",
            "the identifier [id]",
            "the property comment",
            "the property owner",
            "the property format-version",
            "the location file:/t",
        )
        only = spec_of(*there.columns, doc="temperatures", sort=(Sort("id"),))
        said = "not as wanted, and no plan changes it: the sort order [day(at)], the property comment"
        assert str(plan(there, only)) == said
