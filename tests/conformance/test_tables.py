"""Registration and evolution, on every catalog of `tests/services/catalogs.py`."""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyiceberg.view.metadata import ViewVersion

from catalog import (
    CatalogClient,
    Column,
    Contract,
    MetadataMissing,
    NamespaceMissing,
    Partition,
    RequestRefused,
    Rule,
    Sort,
    TableMissing,
    TableSpec,
    TableState,
    add_columns,
    apply,
    create_table,
    ensure_namespace,
    evolved,
    inspect,
    load,
    namespace_properties,
    plan,
    set_properties,
)
from tests.services.catalogs import NAMESPACE, Can, Kind
from tests.services.schemas import arrivals

PARTITIONS_EVOLVE = Contract(partitions=Rule.EVOLVE)


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in types.items())


def ids_of(lake: CatalogClient, name: str) -> dict[str, int]:
    schema = lake.pyiceberg.load_table(name).schema()
    return {schema.find_column_name(number) or "": number for number in schema.field_ids}


def step(lake: CatalogClient, name: str, wanted: TableSpec, contract: Contract = PARTITIONS_EVOLVE) -> TableState:
    return apply(lake, name, plan(load(lake, name), wanted, contract))


def meanwhile(monkeypatch: pytest.MonkeyPatch, lake: CatalogClient, act: Callable[[], object]) -> None:
    """Once, between our look at the table and our commit, somebody else does something."""
    real = lake.pyiceberg.commit_table
    done: list[int] = []

    def commit(*args: Any, **more: Any) -> Any:
        if not done:
            done.append(1)
            act()
        return real(*args, **more)

    monkeypatch.setattr(lake.pyiceberg, "commit_table", commit)


# -- evolution --------------------------------------------------------------------------------------------

BEFORE = (
    Column("id", "int", required=True, doc="old"),
    Column("price", "decimal(10,2)"),
    Column("place", "struct<lat: required float>"),
    Column("items", "list<required struct<sku: string, n: int>>"),
    Column("tags", "map<string, struct<level: int>>"),
)
WANTED = (
    Column("new", "struct<a: list<long>>", doc="new"),
    Column("tags", 'map<string, struct<note: string, level: long "how high">>'),
    Column("items", "list<struct<n: long, parts: map<string, int>>>"),
    Column("place", "struct<lon: double, lat: double>"),
    Column("price", "decimal(12,2)"),
    Column("id", "long", doc="who"),
)
AFTER = (
    Column("id", "long", doc="who"),
    Column("price", "decimal(12,2)"),
    Column("place", "struct<lat: double, lon: double>"),
    Column("items", "list<struct<sku: string, n: long, parts: map<string, int>>>"),
    Column("tags", 'map<string, struct<level: long "how high", note: string>>'),
    Column("new", "struct<a: list<long>>", doc="new"),
)


def test_a_plan_is_carried_out_in_one_commit(lake: CatalogClient, unmade: str) -> None:
    before, ids = create_table(lake, TableSpec(unmade, BEFORE)), ids_of(lake, unmade)
    assert before.columns == BEFORE
    wanted = TableSpec(unmade, WANTED)
    found = plan(before, wanted)
    after = apply(lake, unmade, found)
    assert after.columns == AFTER == evolved(BEFORE, found.changes)
    assert after.schema_id == before.schema_id + 1
    assert ids.items() <= ids_of(lake, unmade).items()
    assert apply(lake, unmade, found).metadata_location == after.metadata_location
    assert not plan(after, wanted).changes


def test_defaults_are_planned_where_the_format_has_them(lake: CatalogClient, kind: Kind, unmade: str) -> None:
    """The first one is for the rows that are there as well, a later one for those to come."""
    kind.needs(Can.NEW_FORMATS)
    create_table(lake, TableSpec(unmade, (Column("n", "long"),), properties={"format-version": "3"}))
    new = (
        Column("kind", "string", default="a"),
        Column("level", "int", default=7),
        Column("share", "double", default=0.5),
        Column("on", "boolean", default=True),
    )
    found = plan(load(lake, unmade), TableSpec(unmade, (Column("n", "long", default=1), *new)))
    assert [str(each) for each in found.changes] == [
        "+ kind string default 'a'",
        "+ level int default 7",
        "+ share double default 0.5",
        "+ on boolean default True",
        "~ n default 1",
    ]
    assert apply(lake, unmade, found).columns == evolved((Column("n", "long"),), found.changes)
    later = TableSpec(unmade, (Column("kind", "string", default="b"), Column("level", "int")))
    after = apply(lake, unmade, plan(load(lake, unmade), later))
    assert after.columns == (Column("n", "long", default=1), Column("kind", "string", default="b"), *new[1:])
    assert not plan(after, later).changes
    fields = lake.pyiceberg.load_table(unmade).schema().fields
    assert [(each.initial_default, each.write_default) for each in fields] == [
        (None, 1),
        ("a", "b"),
        *((each.default, each.default) for each in new[1:]),
    ]


def test_what_was_written_before_is_read_after(lake: CatalogClient, unmade: str) -> None:
    create_table(lake, TableSpec(unmade, BEFORE))
    row = {
        "id": 1,
        "price": Decimal("1.25"),
        "place": {"lat": 1.5},
        "items": [{"sku": "s", "n": 2}],
        "tags": [("t", {"level": 3})],
    }
    append(lake, unmade, row)
    step(lake, unmade, TableSpec(unmade, WANTED))
    old = {
        **row,
        "place": {"lat": 1.5, "lon": None},
        "items": [{"sku": "s", "n": 2, "parts": None}],
        "tags": [("t", {"level": 3, "note": None})],
        "new": None,
    }
    assert rows_of(lake, unmade) == [old]
    large = {**old, "id": 2**40, "price": Decimal("9876543210.25"), "new": {"a": [1]}}
    append(lake, unmade, large)
    assert sorted(rows_of(lake, unmade), key=lambda each: each["id"]) == [old, large]


def append(lake: CatalogClient, name: str, row: Mapping[str, object]) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.Table.from_pylist([dict(row)], schema=table.schema().as_arrow()))


def rows_of(lake: CatalogClient, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.pyiceberg.load_table(name).scan().to_arrow().to_pylist()
    return found


VALUES: dict[type[IcebergType], object] = {
    IntegerType: 7,
    LongType: 7,
    FloatType: 1.5,
    DoubleType: 1.5,
    StringType: "x",
    BooleanType: True,
    DecimalType: Decimal("1.25"),
    TimestamptzType: dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
}


def value_of(kind: IcebergType) -> Any:
    match kind:
        case StructType():
            return {field.name: value_of(field.field_type) for field in kind.fields}
        case ListType():
            return [value_of(kind.element_type)]
        case MapType():
            return [(value_of(kind.key_type), value_of(kind.value_type))]
    return VALUES[type(kind)]


def holds(now: Any, then: Any) -> bool:
    """Whether what was written is still there; there may be more beside it."""
    match then:
        case dict():
            return isinstance(now, dict) and all(holds(now[name], value) for name, value in then.items())
        case list() | tuple():
            return len(now) == len(then) and all(holds(*pair) for pair in zip(now, then, strict=True))
    return bool(now == then)


@given(arrivals())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_a_table_becomes_what_the_plans_say_and_loses_nothing(
    lake: CatalogClient, batches: list[tuple[Column, ...]]
) -> None:
    name = f"{NAMESPACE}.t{uuid4().hex[:12]}"
    state = create_table(lake, TableSpec(name, batches[0]))
    written: list[Any] = []
    for batch in batches:
        found, ids = plan(state, TableSpec(name, batch)), ids_of(lake, name)
        state = apply(lake, name, found)
        assert not found.refusals
        assert ids.items() <= ids_of(lake, name).items()
        assert not plan(state, TableSpec(name, batch)).changes
        written.append(value_of(lake.pyiceberg.load_table(name).schema().as_struct()))
        append(lake, name, written[-1])
    rows = rows_of(lake, name)
    assert len(rows) == len(written)
    for then in written:
        assert any(holds(now, then) for now in rows)


def test_those_who_evolve_a_table_at_once_all_succeed(kind: Kind, lake: CatalogClient, name: str) -> None:
    def evolve(number: int) -> None:
        with kind.opened() as own:
            wanted = columns(id="long", shared=("int", "long")[number % 2], **{f"c{number}": "struct<a: int>"})
            step(own, name, TableSpec(name, wanted))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(evolve, range(4)))
    assert {column.name: column.type for column in load(lake, name).columns} == {
        "id": "long",
        "site": "string",
        "shared": "long",
        **{f"c{number}": "struct<a: int>" for number in range(4)},
    }


@pytest.mark.parametrize(
    ("others", "then"),
    [
        ("long", ["id long", "site string", "n long", "own long"]),
        ("int", ["id long", "site string", "n long", "own long"]),
        ("string", ["id long", "site string", "n string", "own long"]),
    ],
)
def test_what_another_did_in_between_is_planned_for(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str, others: str, then: list[str]
) -> None:
    found = plan(load(lake, name), TableSpec(name, columns(n="long", own="long")))
    with kind.opened() as other:
        meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("n", others))]))
        after = apply(lake, name, found)
    assert [f"{column.name} {column.type}" for column in after.columns] == then


def test_a_struct_that_another_began_is_completed(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str
) -> None:
    found = plan(load(lake, name), TableSpec(name, columns(s="struct<a: int, b: struct<c: int>>")))
    with kind.opened() as other:
        meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("s", "struct<a: long>"))]))
        after = apply(lake, name, found)
    assert after.columns[-1].type == "struct<a: long, b: struct<c: int>>"


def test_the_ids_of_a_schema_that_was_taken_back_are_not_given_again(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str
) -> None:
    """Whoever looks at the number of the schema only would take it for the one that he has seen."""
    before = load(lake, name)
    found = plan(before, TableSpec(name, columns(ours="long")))

    def forth_and_back() -> None:
        with kind.opened() as other:
            add_columns(other, name, [("", Column("theirs", "string"))])
            append(other, name, {"id": 1, "theirs": "x"})
            back = SetCurrentSchemaUpdate.model_validate({"schema-id": before.schema_id})
            other.pyiceberg.commit_table(other.pyiceberg.load_table(name), (), (back,))

    meanwhile(monkeypatch, lake, forth_and_back)
    after = apply(lake, name, found)
    assert [column.name for column in after.columns] == ["id", "site", "ours"]
    assert rows_of(lake, name) == [{"id": 1, "site": None, "ours": None}]


def test_nothing_is_done_that_the_plan_did_not_say(lake: CatalogClient, name: str) -> None:
    """The columns of another batch, that its limit set aside, wait for the next plan."""
    wanted = TableSpec(name, columns(a="int", b="int", c="int"))
    found = plan(load(lake, name), wanted, Contract(max_new=2))
    apply(lake, name, found)
    assert [column.name for column in apply(lake, name, found).columns] == ["id", "site", "a", "b"]


def test_a_plan_of_one_table_is_not_carried_out_on_another(lake: CatalogClient, name: str, unmade: str) -> None:
    before = create_table(lake, TableSpec(f"{unmade}x", columns(id="int")))
    with pytest.raises(RequestRefused, match=f"the plan is of table {name}, not of {unmade}x"):
        apply(lake, before.name, plan(load(lake, name), TableSpec(name, columns(more="long"))))
    assert load(lake, before.name) == before


# -- partitions -------------------------------------------------------------------------------------------


def layout(*fields: str) -> tuple[Partition, ...]:
    return tuple(map(Partition.parse, fields))


TIMED = columns(id="long", ts="timestamptz", day="date", site="string", place="struct<city: string>")
TRANSFORMS = ("id", "year(ts)", "month(day)", "bucket(4, site)", "truncate(2, place.city) as c", "void(place.city)")


def test_every_transform_can_be_had_from_the_start_and_later(lake: CatalogClient, unmade: str) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout(*TRANSFORMS)))
    assert first.partitions == layout(*TRANSFORMS)
    for fields in (("hour(ts)",), ("day(ts)", "id"), (), ("hour(ts)", *TRANSFORMS[2:])):
        after = step(lake, unmade, TableSpec(unmade, (), layout(*fields)))
        assert {*after.partitions} == {*layout(*fields)}
        assert not plan(after, TableSpec(unmade, (), layout(*fields))).objections


def test_what_is_dropped_leaves_its_name_to_nothing_else_and_has_it_again(lake: CatalogClient, unmade: str) -> None:
    """Names tell the fields of all layouts apart; a layout that was there before is that one again."""
    create_table(
        lake, TableSpec(unmade, columns(id="long", s="string"), layout("bucket(4, id)", "truncate(4, s) as p"))
    )
    for fields, named in (
        (("bucket(16, id)", "truncate(8, s)"), ("bucket(16, id) as id_bucket_16", "truncate(8, s)")),
        (("bucket(8, id)", "bucket(16, id)"), ("bucket(8, id) as id_bucket_8", "bucket(16, id) as id_bucket_16")),
        (("bucket(4, id)", "truncate(4, s)"), ("bucket(4, id)", "truncate(4, s) as p")),
    ):
        after = step(lake, unmade, TableSpec(unmade, (), layout(*fields)))
        assert {*map(str, after.partitions)} == {*named}
    specs = lake.pyiceberg.load_table(unmade).metadata.specs()
    assert [*specs] == [0, 1, 2]
    found = plan(after, TableSpec(unmade, (), layout("s as id_bucket_8")), PARTITIONS_EVOLVE)
    assert "can't be named id_bucket_8, as bucket(8, id) is or was: give it another name" in found.objections[0]


def test_a_layout_beside_columns_of_such_names_is_had(lake: CatalogClient, unmade: str) -> None:
    """And a column with the name of a partition is left out, as it was refused."""
    there = columns(ts="timestamptz", ts_day="long", id="long")
    first = create_table(lake, TableSpec(unmade, there, layout("day(ts)", "bucket(4, id)", "bucket(8, id)")))
    assert [*map(str, first.partitions)] == ["day(ts) as ts_day_2", "bucket(4, id)", "bucket(8, id) as id_bucket_8"]
    found = plan(first, TableSpec(unmade, columns(id_bucket="long", n="long")))
    assert [column.name for column in apply(lake, unmade, found).columns] == ["ts", "ts_day", "id", "n"]
    with pytest.raises(RequestRefused, match="column id_bucket: a partition field of the table has its name"):
        add_columns(lake, unmade, [("", Column("id_bucket", "long"))])


def test_another_layout_is_refused_before_anything_is_written(lake: CatalogClient, unmade: str) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)", "site")))
    found = plan(first, TableSpec(unmade, columns(more="long"), layout("hour(ts)")))
    assert found.changes
    with pytest.raises(RequestRefused, match=r"partitioned by \[day\(ts\), site\], not by \[hour\(ts\)\]"):
        apply(lake, unmade, found)
    assert load(lake, unmade).metadata_location == first.metadata_location


def test_files_of_every_layout_are_read_and_pruned(lake: CatalogClient, unmade: str) -> None:
    """A column and a layout that is taken of it come with one commit; the file before has neither."""
    before = create_table(lake, TableSpec(unmade, columns(id="long"), layout("bucket(4, id)")))
    append(lake, unmade, {"id": 1})
    wanted = TableSpec(unmade, columns(id="long", site="string"), layout("site", "bucket(4, id)"))
    after = step(lake, unmade, wanted)
    assert after.schema_id == before.schema_id + 1
    assert str(plan(after, wanted)) == "nothing to change"
    append(lake, unmade, {"id": 2, "site": "north"})
    append(lake, unmade, {"id": 3, "site": "south"})
    assert sorted(row["id"] for row in rows_of(lake, unmade)) == [1, 2, 3]
    scan = lake.pyiceberg.load_table(unmade).scan("site = 'north'")
    assert [task.file.record_count for task in scan.plan_files()] in ([1], [1, 1])
    assert [row["id"] for row in scan.to_arrow().to_pylist()] == [2]


def test_a_layout_that_another_changed_in_between_is_planned_for(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, unmade: str
) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)")))
    wanted = TableSpec(unmade, (), layout("day(ts)", "site"))
    found = plan(first, wanted, PARTITIONS_EVOLVE)
    with kind.opened() as other:
        act = TableSpec(unmade, (), layout("hour(ts)", "site"))
        meanwhile(monkeypatch, lake, lambda: step(other, unmade, act))
        after = apply(lake, unmade, found)
    assert {*after.partitions} == set(wanted.partitions or ())


# -- registration -----------------------------------------------------------------------------------------


def test_a_namespace_has_its_properties_and_its_place(kind: Kind, lake: CatalogClient, warehouse: Path) -> None:
    kind.needs(Can.NESTED, Can.PLACES)
    place = f"file://{warehouse}/place-{uuid4().hex}"
    outer = f"{NAMESPACE}.n{uuid4().hex[:8]}"
    for _ in range(2):
        ensure_namespace(lake, f"{outer}.inner", {"owner": "tests"}, location=place)
    found = namespace_properties(lake, f"{outer}.inner")
    assert {"owner": "tests", "location": place}.items() <= found.items()
    assert "owner" not in namespace_properties(lake, outer)
    ensure_namespace(lake, outer, {"owner": "nobody"})
    assert "owner" not in namespace_properties(lake, outer), "what is there is left as it is"
    kind.needs(Can.NAMESPACE_PLACES)
    table = create_table(lake, TableSpec(f"{outer}.inner.t", columns(id="long")))
    assert table.location.replace("file://", "file:").startswith(place.replace("file://", "file:"))


def test_a_namespace_that_may_not_be_made_is_named(lake: CatalogClient) -> None:
    missing = f"{NAMESPACE}_missing"
    with pytest.raises(NamespaceMissing, match=f"no namespace {missing}, and it may not be made"):
        ensure_namespace(lake, missing, create=False)
    with pytest.raises(NamespaceMissing, match=missing):
        namespace_properties(lake, missing)
    ensure_namespace(lake, NAMESPACE, create=False)


def test_everything_that_is_declared_comes_back(kind: Kind, lake: CatalogClient, unmade: str, warehouse: Path) -> None:
    kind.needs(Can.PLACES)
    spec = TableSpec(
        unmade,
        (
            Column("id", "long", required=True, doc="who"),
            Column("at", 'struct<site: required string "where", n: int>', required=True),
            Column("ts", "timestamptz"),
            Column("seen", "list<required struct<x: required map<string, required long>>>"),
        ),
        layout("day(ts)", "bucket(4, id)"),
        (Sort("ts", descending=True), Sort("truncate(2, at.site)")),
        {"owner": "tests"},
        ("at.site", "id"),
        f"file://{warehouse}/table-{uuid4().hex}/deep",
        "what it is",
    )
    for _ in range(2):
        made = create_table(lake, spec)
    assert (made.columns, made.partitions, made.sort) == (spec.columns, spec.partitions, spec.sort)
    assert (made.identifier, made.location) == (spec.identifier, spec.location)
    assert {"owner": "tests", "comment": "what it is"}.items() <= made.properties.items()
    assert str(plan(made, spec)) == "nothing to change"


def test_a_sort_is_by_a_column_of_that_very_name_first(lake: CatalogClient, unmade: str) -> None:
    odd = columns(**{"amount (EUR)": "long", "x as y": "long", "day(ts)": "long", "ts": "date"})
    sort = (Sort("amount (EUR)"), Sort("x as y", descending=True), Sort("day(ts)"), Sort('bucket(4, "x as y")'))
    made = create_table(lake, TableSpec(unmade, odd, layout('"amount (EUR)"'), sort))
    assert (made.sort, made.partitions) == (sort, (Partition("amount (EUR)"),))
    assert [str(each.transform) for each in lake.pyiceberg.load_table(unmade).sort_order().fields] == [
        "identity", "identity", "identity", "bucket[4]",
    ]  # fmt: skip


def test_a_table_that_may_not_be_made_is_named(lake: CatalogClient, name: str, unmade: str) -> None:
    assert create_table(lake, TableSpec(name, columns(other="string")), create=False).columns == (
        Column("id", "long"),
        Column("site", "string"),
    )
    missing = f"{unmade}x"
    with pytest.raises(TableMissing, match=f"no table {missing}, and it may not be made"):
        create_table(lake, TableSpec(missing, columns(id="long")), create=False)
    assert inspect(lake, missing).missing


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"columns": ()}, "no columns"),
        ({"columns": (Column("a", "list<bigint>"),)}, "'bigint' in .* is no Iceberg type: Iceberg says long"),
        ({"sort": (Sort("day(site"),)}, "'day\\(site' is no partition field"),
        ({"columns": (Column("a", "int"), Column("a", "int"))}, "a appears twice"),
        ({"partitions": layout("day(nowhere)")}, "names nowhere"),
        ({"partitions": layout("day(site)")}, "can't be computed from site, which is string"),
        ({"partitions": layout("day(ts) as site")}, "can't be named site, as a column is: give it another name"),
        ({"partitions": (Partition("site", "bucket[0]"),)}, r"bucket\[0\], and understood are"),
        ({"sort": (Sort("nowhere"),)}, "names nowhere"),
        ({"sort": (Sort("day(site)"),)}, r"the sort field day\(site\) can't be computed from site, which is string"),
        ({"sort": (Sort("s"),)}, "can't be computed from s, which is a struct"),
        ({"sort": (Sort("site as x"),)}, "can't have a name"),
        ({"sort": (Sort("week(site)"),)}, r"'week\(site\)' is no partition field"),
        ({"columns": (Column("a", "list<struct<>>"),)}, "the struct a.element has no fields"),
        ({"columns": (Column("", "long"),)}, "a column of the table has no name"),
        ({"columns": (Column("a", 'map<string, struct<"": long>>'),)}, "a column of the struct a.value has no name"),
        ({"columns": (Column("a", "struct<b: long, b: int>"),)}, "the column a.b appears twice"),
        ({"columns": (Column("a", "lang"),)}, "lang"),
        ({"columns": (Column("a", "long", default=7),)}, "a default for a needs a table of format 3"),
        ({"identifier": ("site",)}, "the identifier site must be a required column"),
        ({"identifier": ("f",)}, "no fraction"),
        ({"identifier": ("s.a",)}, "in nothing optional"),
    ],
)
def test_a_table_that_cannot_be_is_refused(lake: CatalogClient, unmade: str, spec: dict[str, Any], said: str) -> None:
    usual = (*columns(site="string", ts="date", s="struct<a: required int>"), Column("f", "double", required=True))
    with pytest.raises(RequestRefused, match=said):
        create_table(lake, TableSpec(**{"name": unmade, "columns": usual, **spec}))
    assert inspect(lake, unmade).missing


def test_six_that_make_and_evolve_one_table_at_once_all_get_the_one(kind: Kind) -> None:
    """Each with a client of its own, as six processes would; a namespace in a namespace, too, where there are such.

    Not more: each commits once, so nobody loses more often than a commit is tried.
    """
    deep = ".deep" if Can.NESTED not in kind.cannot else ""
    name = f"{NAMESPACE}{deep or '_many'}{uuid4().hex[:8]}.t"

    def make(number: int) -> tuple[str, str]:
        with kind.opened() as own:
            namespace = name.rpartition(".")[0]
            ensure_namespace(own, namespace, {"owner": "tests"})
            made = create_table(own, TableSpec(name, columns(id="long"), layout("bucket(4, id)")))
            wanted = columns(shared=("int", "long")[number % 2], **{f"c{number}": "string"})
            apply(own, name, plan(made, TableSpec(name, wanted)))
            return made.uuid, namespace_properties(own, namespace)["owner"]

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(make, range(6)))) == 1
    with kind.opened() as lake:
        assert {column.name: column.type for column in load(lake, name).columns} == {
            "id": "long",
            "shared": "long",
            **{f"c{number}": "string" for number in range(6)},
        }


# -- tables of others -------------------------------------------------------------------------------------


def test_a_view_is_no_table(kind: Kind, lake: CatalogClient, unmade: str) -> None:
    kind.needs(Can.VIEWS)
    a_view(lake, unmade)
    with pytest.raises(RequestRefused, match=f"{unmade} is a view"):
        create_table(lake, TableSpec(unmade, columns(id="long")))
    assert "is a view" in inspect(lake, unmade).refusal


def a_view(lake: CatalogClient, name: str) -> None:
    select = [{"type": "sql", "sql": "select 1 as a", "dialect": "spark"}]
    version = ViewVersion.model_validate(
        {"schema-id": 0, "representations": select, "default-namespace": [NAMESPACE], "summary": {"engine-name": "x"}}
    )
    field = NestedField(field_id=1, name="a", field_type=IntegerType(), required=False)
    with lake.calling("making a view"):
        lake.pyiceberg.create_view(name, Schema(field), version)


def test_a_table_whose_metadata_is_gone_is_not_made_anew(kind: Kind, lake: CatalogClient, name: str) -> None:
    kind.needs(Can.LOCAL_FILES)
    file = Path(re.sub("^file:(//)?", "", load(lake, name).metadata_location))
    aside = file.rename(file.with_suffix(".aside"))
    said = f"{name}: its file {file.name} is gone: restore it, or drop"
    with pytest.raises(MetadataMissing, match=said):
        load(lake, name)
    with pytest.raises(MetadataMissing, match=said):
        create_table(lake, TableSpec(name, columns(id="long")))
    assert "is gone" in inspect(lake, name).refusal
    aside.rename(file)
    assert load(lake, name).name == name


@pytest.mark.parametrize("version", [1, 3])
def test_tables_of_other_formats_are_used_as_they_are(
    kind: Kind, lake: CatalogClient, unmade: str, version: int
) -> None:
    kind.needs(Can.OLD_FORMATS if version == 1 else Can.NEW_FORMATS)
    spec = TableSpec(unmade, TIMED, layout("site", "day(ts)"), properties={"format-version": str(version)})
    made, ids = create_table(lake, spec), ids_of(lake, unmade)
    assert made.format_version == version
    for fields in (("day(ts)",), ("site", "day(ts)"), ("bucket(4, site)",), ("site",)):
        wanted = TableSpec(unmade, columns(id="long", more="struct<a: int>"), layout(*fields))
        after = step(lake, unmade, wanted)
        assert {each for each in after.partitions if each.transform != "void"} >= {*layout(*fields)}
        assert str(plan(after, wanted)) == "nothing to change"
    assert ids.items() <= ids_of(lake, unmade).items()
    assert f"it has format version {version}" in inspect(lake, unmade).notes[0]


def test_what_is_peculiar_of_a_table_is_noted(kind: Kind, lake: CatalogClient, unmade: str) -> None:
    kind.needs(Can.LOCAL_FILES)
    spec = TableSpec(
        unmade,
        (Column("id", "long", required=True), Column("at", "struct<x: required int>", required=True)),
        sort=(Sort("id", descending=True),),
        properties={"history.expire.max-snapshot-age-ms": "60000"},
        identifier=("id",),
    )
    create_table(lake, spec)
    append(lake, unmade, {"id": 1, "at": {"x": 1}})
    delete_by_value(lake, unmade, 1)
    set_properties(lake, unmade, {"write.format.default": "orc"})
    found = inspect(lake, unmade)
    assert found.notes == (
        "rows need a value in id, at, at.x",
        "rows are told apart by id, which nothing here enforces",
        "files are to be sorted by id desc",
        "engines write orc files to it",
        "it holds 1 deletes by value: readers have to apply them",
        "others expire its snapshots after 60 s",
    )
    assert found.state
    assert plan(found.state, TableSpec(unmade, columns(id="long"))).lacking == ("id", "at")
    after = step(lake, unmade, TableSpec(unmade, columns(id="long", more="string")))
    assert after.sort == spec.sort
    assert after.main == found.state.main


def delete_by_value(lake: CatalogClient, name: str, value: int) -> None:
    """What pyiceberg can't write: a file that says, all rows with this id are deleted."""
    table = lake.pyiceberg.load_table(name)
    file = f"{re.sub('^file:(//)?', '', table.location())}/data/equality.parquet"
    field_id = table.schema().find_field("id").field_id
    named = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field_id)})
    pq.write_table(pa.table([pa.array([value])], schema=pa.schema([named])), file)
    deletes = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{file}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(file).stat().st_size,
        equality_ids=[field_id],
    )
    deletes.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        producer: Any = transaction.update_snapshot().fast_append()
        producer.new_manifest_writer = lambda spec: DeletesWriter(
            spec, table.schema(), producer.new_manifest_output(), producer.snapshot_id, "deflate"
        )
        producer.append_data_file(deletes)
        producer.commit()


class DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
