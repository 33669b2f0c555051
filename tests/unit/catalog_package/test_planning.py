"""What a plan says, case by case; the laws are in tests/properties/test_evolution.py."""

from collections.abc import Mapping

import pytest

from catalog import Add, Column, Contract, Fate, Partition, Plan, Rule, Sort, evolved, plan, same_partitions
from catalog.contracts import FOLLOW
from tests.services.schemas import spec_of, table_of


def planned(there: Mapping[str, str], wanted: Mapping[str, str], contract: Contract = FOLLOW, **table: object) -> Plan:
    """Types by column; `required` in front of a type, as within one."""
    return plan(table_of(columns(there), **table), spec_of(*columns(wanted)), contract)


def columns(types: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(
        Column(name, kind.removeprefix("required "), required=kind.startswith("required "))
        for name, kind in types.items()
    )


def fates(found: Plan) -> dict[str, str]:
    return {each.path: str(each.fate) for each in found.verdicts}


def test_columns_are_added_at_every_depth() -> None:
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
def test_a_type_fits_is_widened_or_set_aside(there: str, wanted: str, fate: Fate) -> None:
    found = planned({"x": there}, {"x": wanted})
    assert fates(found) == {"x": fate}
    assert bool(found.changes) == (fate is Fate.WIDEN)


def test_what_cannot_be_had_says_where_both_types_and_why() -> None:
    found = planned({"place": "struct<lat: long>"}, {"place": "struct<lat: list<long>>"})
    assert [str(each) for each in found.refusals] == [
        "place.lat list<long>, there is long: set aside, long can't become a list"
    ]


def test_the_key_of_a_map_stays_what_it_is() -> None:
    assert fates(planned({"m": "map<int, int>"}, {"m": "map<long, long>"})) == {
        "m": "fits",
        "m.key": "set aside",
        "m.value": "widen",
    }
    assert fates(planned({"m": "map<long, int>"}, {"m": "map<int, int>"}))["m.key"] == "fits"
    assert fates(planned({"m": "map<struct<a: int>, int>"}, {"m": "map<struct<a: int, b: int>, int>"}))["m.key"] == (
        "set aside"
    )


@pytest.mark.parametrize(
    ("rule", "new", "wider", "other"),
    [
        ("evolve", "add", "widen", "set aside"),
        ("widen", "set aside", "widen", "set aside"),
        ("freeze", "set aside", "set aside", "set aside"),
        ("refuse", "refuse", "refuse", "refuse"),
    ],
)
def test_the_table_in_the_contracts_docstring(rule: str, new: str, wider: str, other: str) -> None:
    there = {"wider": "int", "other": "int", "same": "int"}
    wanted = {"new": "struct<a: int>", "wider": "long", "other": "string", "same": "int"}
    found = planned(there, wanted, Contract(Rule(rule)))
    assert {path: fate for path, fate in fates(found).items() if path != "new.a"} == {
        "new": new,
        "wider": wider,
        "other": other,
        "same": "fits",
    }


def test_the_nearest_rule_holds() -> None:
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


def test_a_rule_is_for_what_is_within_and_not_for_a_name_with_a_dot() -> None:
    there, wanted = {"a": "int", "b": "struct<d: int>"}, {"a.b": "int", "b": "struct<d: long>"}
    found = planned(there, wanted, Contract(columns={"a": Rule.FREEZE, "b.d": Rule.WIDEN, "b": Rule.REFUSE}))
    assert fates(found) == {"a.b": "add", "b": "fits", "b.d": "widen"}


def test_of_a_new_column_only_what_may_not_be_added_is_left_out() -> None:
    wanted = {"a": 'struct<ok: long, no: struct<x: long>, "b.c": long, B: long, b: long>'}
    found = planned({"a.b.c": "long"}, wanted, Contract(columns={"a.no": Rule.REFUSE}))
    assert [str(change) for change in found.changes] == ["+ a struct<ok: long, B: long>"]
    assert {each.path: (str(each.fate), each.reason) for each in found.refusals} == {
        "a.no": ("refuse", "the contract refuses it"),
        "a.b.c": ("set aside", "to Iceberg its name is the path of another field"),
        "a.b": ("set aside", "its name differs from B by case only"),
    }


def test_a_bomb_of_columns_is_set_aside() -> None:
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


def test_what_cannot_be_added_leaves_its_room_to_others() -> None:
    wanted = {"a": "struct<at: timestamp_ns, b: struct<at: timestamp_ns>>", "n": "long"}
    for contract in (Contract(max_new=1), Contract(max_columns=1), Contract(max_columns=2, max_new=2)):
        assert [str(each) for each in planned({}, wanted, contract).changes] == ["+ n long"]


@pytest.mark.parametrize("name", ["ID", "", "place.lat"])
def test_a_name_that_would_confuse_is_set_aside(name: str) -> None:
    found = planned({"id": "long", "place": "struct<lat: long>"}, {name: "long"})
    assert fates(found) == {name: "set aside"}
    assert not found.changes


def test_in_what_has_no_name_nothing_is_added() -> None:
    """To Iceberg a path through it leads to the table."""
    found = planned({"": "struct<a: long>"}, {"": "struct<a: long, b: long>"})
    assert fates(found) == {"": "fits", ".a": "fits", ".b": "set aside"}
    assert not found.changes


def test_of_two_with_one_name_the_first_counts() -> None:
    wanted = (Column("a", "timestamp_ns", doc="no"), Column("a", "int"), Column("s", "struct<b: long, b: string>"))
    found = plan(table_of(()), spec_of(*wanted))
    assert [str(change) for change in found.changes] == ["+ s struct<b: long>"]
    assert [each.reason for each in found.refusals if each.path != "a"] == ["it appears twice"]
    assert not plan(table_of(evolved((), found.changes)), found.wanted).changes


def test_a_list_needs_the_path_of_its_elements_too() -> None:
    assert fates(planned({"a.element": "long"}, {"a": "list<long>", "b": "list<long>"})) == {
        "a": "set aside",
        "b": "add",
    }


def test_a_name_with_a_dot_that_iceberg_would_find_by_a_short_path_is_set_aside() -> None:
    found = planned({"items": "list<struct<sku: long>>"}, {"items.sku": "long", "items.other": "long"})
    assert fates(found) == {"items.sku": "set aside", "items.other": "add"}


def test_required_columns_are_relaxed_where_the_data_may_lack_them() -> None:
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


def test_an_identifier_stays_required_and_so_does_what_it_is_in() -> None:
    there = {"at": "required struct<x: required long, y: required long>"}
    found = planned(there, {"at": "struct<x: long, y: long>"}, identifier=("at.x",))
    assert [str(change) for change in found.changes] == ["~ at.y required -> optional"]
    assert found.lacking == ("at", "at.x")


def test_what_is_added_is_optional_at_every_depth() -> None:
    found = planned({}, {"a": "required list<required struct<b: required long>>"})
    assert evolved((), found.changes) == (Column("a", "list<struct<b: long>>"),)


def test_doc_strings_follow_where_the_contract_evolves() -> None:
    there = (Column("a", 'struct<b: long "old">', doc="old"), Column("c", "long", doc="kept"))
    wanted = spec_of(Column("a", 'struct<b: long "new">', doc="new"), Column("c", "long"))
    found = plan(table_of(there), wanted)
    assert evolved(there, found.changes) == (Column("a", 'struct<b: long "new">', doc="new"), there[1])
    assert not plan(table_of(there), wanted, Contract(Rule.WIDEN)).changes


def test_a_type_that_the_tables_format_has_not_is_set_aside() -> None:
    wanted = {"at": "timestamp_ns", "all": "struct<at: timestamptz_ns, n: long>"}
    found = planned({}, wanted)
    assert [each.path for each in found.refusals] == ["at", "all.at"]
    assert "needs format version 3" in found.refusals[0].reason
    assert not planned({}, wanted, format_version=3).refusals


def test_what_is_no_type_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="lang"):
        planned({}, {"a": "lang"})


# -- partitions -------------------------------------------------------------------------------------------

THERE = (Partition.parse("day(ts)"), Partition.parse("site"))


def laid_out(*wanted: str, contract: Contract = FOLLOW) -> Plan:
    types = {"ts": "timestamptz", "site": "string", "n": "long", "f": "double", "in": "struct<ts: date>"}
    there = table_of(columns(types), partitions=THERE, former=(Partition("n", "truncate[4]"),))
    spec = spec_of(Column("late", "date"), partitions=tuple(map(Partition.parse, wanted)))
    return plan(there, spec, contract)


def test_another_layout_is_refused_and_both_are_shown() -> None:
    assert not laid_out("day(ts)", "site").objections
    assert not laid_out("site", "day(ts)").objections
    found = laid_out("hour(ts)")
    assert found.objections[0].startswith("the table n.t is partitioned by [day(ts), site], not by [hour(ts)]: ")
    assert not plan(table_of(columns({"ts": "date"}), partitions=THERE), spec_of(Column("ts", "date"))).objections


def test_a_layout_that_is_there_is_not_judged() -> None:
    """Iceberg's builders would make none with both day and hour of one column; others may have."""
    odd = tuple(map(Partition.parse, ("day(ts)", "hour(ts)")))
    there = table_of(columns({"ts": "timestamptz"}), partitions=odd)
    assert not plan(there, spec_of(Column("ts", "timestamptz"), partitions=odd)).objections


def test_a_layout_follows_where_partitions_evolve() -> None:
    evolve = Contract(partitions=Rule.EVOLVE)
    wanted = ("hour(ts)", "site", "bucket(16, n)", "truncate(4, n)", "void(f)", "year(late)", "month(in.ts)")
    found = laid_out(*wanted, contract=evolve)
    assert [str(change) for change in found.changes] == [
        "+ late date",
        f"~ partitions [day(ts), site] -> [{', '.join(wanted)}]",
    ]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (["day(nowhere)"], "names nowhere"),
        (["day(site)"], "can't be computed from site, which is string"),
        (["bucket(4, f)"], "can't be computed from f"),
        (["in"], "can't be computed from in, which is a struct"),
        (["site", "site as s"], "appears twice"),
        (["day(ts)", "hour(ts)"], "repeats"),
        (["day(ts) as site"], "day(ts) as site can't be named site, as a column is: give it another name"),
        (["n as in.ts"], "can't be named in.ts, as a column is"),
        (["n as late"], "can't be named late, as a column is"),
        (["n as p", "site as p"], "site as p can't be named p, as another one is"),
        (["n as ts_day"], "n as ts_day can't be named ts_day, as day(ts) is or was"),
        (["n as n_trunc"], "n as n_trunc can't be named n_trunc, as truncate(4, n) is or was"),
    ],
)
def test_a_partition_that_cannot_be_is_refused(wanted: list[str], reason: str) -> None:
    for contract in (Contract(), Contract(partitions=Rule.EVOLVE)):
        found = laid_out(*wanted, contract=contract)
        assert reason in found.objections[0]
        assert [str(change) for change in found.changes] == ["+ late date"]


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (
            Partition("n", "bucket[0]"),
            "the partition field bucket(0, n) has the transform bucket[0], and understood are",
        ),
        (Partition("n", "bucket(4)"), "has the transform bucket(4), and understood are"),
        (Partition("n", "bucket[9999999999]"), "and understood are"),
        (Partition("n", "zorder"), "and understood are"),
        (
            Partition("n", name=""),
            'the partition field n as "" has an empty name: give it another one, or leave it out',
        ),
    ],
)
def test_a_partition_that_is_none_is_one_sentence(partition: Partition, said: str) -> None:
    found = plan(table_of(columns({"n": "long"})), spec_of(partitions=(partition,)))
    assert said in found.objections[0]


def test_a_name_says_nothing_where_none_is_wanted() -> None:
    """Nor does a void field too many, which tables of format 1 keep for good."""
    there = tuple(map(Partition.parse, ("bucket(4, n) as p", "void(n) as q", "void(n)", "site")))
    for wanted, same in (
        (("site", "bucket(4, n)"), True),
        (("site as site", "bucket(4, n) as p", "void(n) as q"), True),
        (("site", "bucket(4, n)", "void(n) as r"), False),
        (("site", "bucket(4, n) as n_bucket"), False),
        (("site", "bucket(4, n)", "void(site)"), False),
        (("bucket(4, n)",), False),
    ):
        assert same_partitions(there, tuple(map(Partition.parse, wanted))) is same, wanted


def test_a_column_is_never_given_the_name_of_a_partition() -> None:
    """Of whatever layout; it alone is left out, and that of a field that is a partition as it is says nothing."""
    there = {"id": "long", "site": "string", "in": "struct<ts: date>"}
    former = (Partition("#9", "identity", "gone"), Partition("in.ts", "day"))
    partitions = (Partition("id", "bucket[4]"), Partition("site"))
    found = planned(
        there,
        {"id_bucket": "long", "gone": "struct<a: long>", "in": "struct<ts: date, ts_day: int, ok: int>", "n": "long"},
        partitions=partitions,
        former=former,
    )
    assert [str(change) for change in found.changes] == ["+ in.ok int", "+ n long"]
    assert [each.path for each in found.refusals] == ["id_bucket", "gone", "in.ts_day"]
    assert {each.reason for each in found.refusals} == {"a partition field of the table has its name, or had it"}
    assert not planned(there, {"site": "string"}, partitions=partitions).refusals


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
def test_a_default_that_can_not_be_had_is_said_and_keeps_nothing_else_out(
    column: Column, version: int, why: str, *, there: bool
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
def test_a_default_of_what_is_set_aside_is_no_matter(there: str, wanted: str) -> None:
    found = plan(table_of((Column("n", there),), format_version=3), spec_of(Column("n", wanted, default=7)))
    assert (found.changes, found.unfilled) == ((), ())


def test_a_column_whose_name_is_the_path_of_what_is_set_aside_keeps_its_default() -> None:
    there = table_of((Column("a", "struct<c: long>"), Column("a.b", "long")), format_version=3)
    wanted = spec_of(Column("a", "struct<b: long>"), Column("a.b", "int", default=7))
    found = plan(there, wanted)
    assert [each.path for each in found.refusals] == ["a.b"]
    assert [str(each) for each in found.changes] == ["~ a.b default 7"]


def test_of_two_with_one_name_the_firsts_default_counts() -> None:
    there = table_of((Column("n", "long"),), format_version=3)
    assert not plan(there, spec_of(Column("n", "long"), Column("n", "long", default=7))).changes
    found = plan(there, spec_of(Column("n", "long", default=7), Column("n", "string", default="x")))
    assert [str(each) for each in found.changes] == ["~ n default 7"]


def test_a_default_follows_the_contract() -> None:
    there, wanted = table_of((Column("n", "long"),), format_version=3), spec_of(Column("n", "long", default=7))
    assert [str(each) for each in plan(there, wanted).changes] == ["~ n default 7"]
    assert not plan(there, wanted, Contract(Rule.WIDEN)).changes


@pytest.mark.parametrize("rule", [Rule.WIDEN, Rule.FREEZE, Rule.REFUSE])
def test_where_a_default_would_not_be_touched_nothing_is_said_of_it(rule: Rule) -> None:
    wanted = spec_of(Column("n", "long", default="x"), Column("new", "long", default="x"))
    assert not plan(table_of((Column("n", "long"),)), wanted, Contract(rule)).unfilled


def test_what_no_row_can_land_for_is_said() -> None:
    found = planned({"id": "required long", "at": "required struct<x: required int>"}, {"id": "long", "more": "int"})
    said = "the table needs a value, and the data may have none"
    assert str(planned({"id": "required long"}, {})) == f"id: {said}"
    assert str(found).splitlines()[-1] == f"at: {said}"


def test_what_differs_and_is_not_planned_is_said() -> None:
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
