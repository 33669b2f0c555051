"""The columns of a table follow a plan, on every catalog of `tests/services/catalogs.py`."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.table.update import SetCurrentSchemaUpdate
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
    StringType,
    StructType,
    TimestamptzType,
)

from catalog import (
    CatalogClient,
    Column,
    Contract,
    RequestRefused,
    TableSpec,
    add_columns,
    apply,
    create_table,
    evolved,
    load,
    plan,
)
from tests.conformance.tables import append, columns, ids_of, meanwhile, rows_of, step
from tests.services.catalogs import GIVEN, NAMESPACE, WITHOUT_GATE, Can, Kind
from tests.services.schemas import arrivals

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")

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


class TestPlan:
    def test_is_carried_out_in_one_commit(self, lake: CatalogClient, unmade: str) -> None:
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

    def test_has_defaults_where_the_format_has_them(self, lake: CatalogClient, kind: Kind, unmade: str) -> None:
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

    @pytest.mark.parametrize(
        ("others", "then"),
        [
            ("long", ["id long", "site string", "n long", "own long"]),
            ("int", ["id long", "site string", "n long", "own long"]),
            ("string", ["id long", "site string", "n string", "own long"]),
        ],
    )
    def test_takes_in_what_another_did_in_between(
        self, monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str, others: str, then: list[str]
    ) -> None:
        found = plan(load(lake, name), TableSpec(name, columns(n="long", own="long")))
        with kind.opened() as other:
            meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("n", others))]))
            after = apply(lake, name, found)
        assert [f"{column.name} {column.type}" for column in after.columns] == then

    def test_completes_a_struct_that_another_began(
        self, monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str
    ) -> None:
        found = plan(load(lake, name), TableSpec(name, columns(s="struct<a: int, b: struct<c: int>>")))
        with kind.opened() as other:
            meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("s", "struct<a: long>"))]))
            after = apply(lake, name, found)
        assert after.columns[-1].type == "struct<a: long, b: struct<c: int>>"

    def test_gives_no_id_twice_after_a_schema_was_taken_back(
        self, monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, name: str
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

    def test_does_nothing_that_it_did_not_say(self, lake: CatalogClient, name: str) -> None:
        """The columns of another batch, that its limit set aside, wait for the next plan."""
        wanted = TableSpec(name, columns(a="int", b="int", c="int"))
        found = plan(load(lake, name), wanted, Contract(max_new=2))
        apply(lake, name, found)
        assert [column.name for column in apply(lake, name, found).columns] == ["id", "site", "a", "b"]

    def test_of_one_table_is_not_carried_out_on_another(self, lake: CatalogClient, name: str, unmade: str) -> None:
        before = create_table(lake, TableSpec(f"{unmade}x", columns(id="int")))
        with pytest.raises(RequestRefused, match=f"the plan is of table {name}, not of {unmade}x"):
            apply(lake, before.name, plan(load(lake, name), TableSpec(name, columns(more="long"))))
        assert load(lake, before.name) == before


class TestEvolvedTable:
    def test_shows_what_was_written_before(self, lake: CatalogClient, unmade: str) -> None:
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

    @given(arrivals())
    @settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
    def test_is_what_the_plans_say_and_loses_nothing(
        self, lake: CatalogClient, batches: list[tuple[Column, ...]]
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

    def test_has_the_columns_of_all_who_evolve_it_at_once(self, kind: Kind, lake: CatalogClient, name: str) -> None:
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
