"""Registration and evolution, on every catalog of `tests/services/catalogs.py`."""

import datetime as dt
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
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
    Column,
    Contract,
    Lake,
    Partition,
    Refused,
    Rule,
    TableSpec,
    TableState,
    add_columns,
    apply,
    create_table,
    evolved,
    load,
    plan,
)
from tests.services.catalogs import NAMESPACE, Kind
from tests.services.schemas import arrivals

PARTITIONS_EVOLVE = Contract(partitions=Rule.EVOLVE)


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in types.items())


def ids_of(lake: Lake, name: str) -> dict[str, int]:
    schema = lake.pyiceberg.load_table(name).schema()
    return {schema.find_column_name(number) or "": number for number in schema.field_ids}


def step(lake: Lake, name: str, wanted: TableSpec, contract: Contract = PARTITIONS_EVOLVE) -> TableState:
    return apply(lake, name, plan(load(lake, name), wanted, contract))


def meanwhile(monkeypatch: pytest.MonkeyPatch, lake: Lake, act: Callable[[], object]) -> None:
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


def test_a_plan_is_carried_out_in_one_commit(lake: Lake, unmade: str) -> None:
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


def test_what_was_written_before_is_read_after(lake: Lake, unmade: str) -> None:
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


def append(lake: Lake, name: str, row: Mapping[str, object]) -> None:
    table = lake.pyiceberg.load_table(name)
    table.append(pa.Table.from_pylist([dict(row)], schema=table.schema().as_arrow()))


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
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
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
def test_a_table_becomes_what_the_plans_say_and_loses_nothing(lake: Lake, batches: list[tuple[Column, ...]]) -> None:
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


def test_those_who_evolve_a_table_at_once_all_succeed(kind: Kind, lake: Lake, name: str) -> None:
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
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: Lake, name: str, others: str, then: list[str]
) -> None:
    found = plan(load(lake, name), TableSpec(name, columns(n="long", own="long")))
    with kind.opened() as other:
        meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("n", others))]))
        after = apply(lake, name, found)
    assert [f"{column.name} {column.type}" for column in after.columns] == then


def test_a_struct_that_another_began_is_completed(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: Lake, name: str
) -> None:
    found = plan(load(lake, name), TableSpec(name, columns(s="struct<a: int, b: struct<c: int>>")))
    with kind.opened() as other:
        meanwhile(monkeypatch, lake, lambda: add_columns(other, name, [("", Column("s", "struct<a: long>"))]))
        after = apply(lake, name, found)
    assert after.columns[-1].type == "struct<a: long, b: struct<c: int>>"


def test_nothing_is_done_that_the_plan_did_not_say(lake: Lake, name: str) -> None:
    """The columns of another batch, that its limit set aside, wait for the next plan."""
    wanted = TableSpec(name, columns(a="int", b="int", c="int"))
    found = plan(load(lake, name), wanted, Contract(max_new=2))
    apply(lake, name, found)
    assert [column.name for column in apply(lake, name, found).columns] == ["id", "site", "a", "b"]


# -- partitions -------------------------------------------------------------------------------------------


def layout(*fields: str) -> tuple[Partition, ...]:
    return tuple(map(Partition.parse, fields))


TIMED = columns(id="long", ts="timestamptz", day="date", site="string", place="struct<city: string>")
TRANSFORMS = ("id", "year(ts)", "month(day)", "bucket(4, site)", "truncate(2, place.city) as c", "void(place.city)")


def test_every_transform_can_be_had_from_the_start_and_later(lake: Lake, unmade: str) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout(*TRANSFORMS)))
    assert first.partitions == layout(*TRANSFORMS)
    for fields in (("hour(ts)",), ("day(ts)", "id"), (), ("hour(ts)", *TRANSFORMS[2:])):
        after = step(lake, unmade, TableSpec(unmade, (), layout(*fields)))
        assert {*after.partitions} == {*layout(*fields)}
        assert not plan(after, TableSpec(unmade, (), layout(*fields))).objections


def test_another_layout_is_refused_before_anything_is_written(lake: Lake, unmade: str) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)", "site")))
    found = plan(first, TableSpec(unmade, columns(more="long"), layout("hour(ts)")))
    assert found.changes
    with pytest.raises(Refused, match=r"partitioned by \[day\(ts\), site\], not by \[hour\(ts\)\]"):
        apply(lake, unmade, found)
    assert load(lake, unmade).metadata_location == first.metadata_location


def test_files_of_every_layout_are_read_and_pruned(lake: Lake, unmade: str) -> None:
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
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: Lake, unmade: str
) -> None:
    first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)")))
    wanted = TableSpec(unmade, (), layout("day(ts)", "site"))
    found = plan(first, wanted, PARTITIONS_EVOLVE)
    with kind.opened() as other:
        act = TableSpec(unmade, (), layout("hour(ts)", "site"))
        meanwhile(monkeypatch, lake, lambda: step(other, unmade, act))
        after = apply(lake, unmade, found)
    assert {*after.partitions} == set(wanted.partitions or ())
