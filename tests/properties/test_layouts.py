"""Laws of layouts and of names that meet, on tables of a real catalog: pyiceberg's own, over SQLite."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import index_by_name

from catalog import (
    CatalogClient,
    Column,
    Contract,
    Partition,
    RequestRefused,
    Rule,
    TableSpec,
    apply,
    create_table,
    ensure_namespace,
    load,
    plan,
)
from tests.services.catalogs import NAMESPACE, OfPyiceberg
from tests.services.schemas import any_columns

EVOLVE = Contract(partitions=Rule.EVOLVE, max_columns=None, max_depth=None)
BASE = {"id": "long", "ts": "timestamptz", "s": "string", "f": "double", "at": "struct<s: string>", "a (b)": "string"}
# What partition fields of those are called, or would be.
MEETING = ("id_bucket", "id_bucket_4", "ts_day", "ts_day_2", "s_trunc", "s_null", "p", "q", "at.s_bucket")
TRANSFORMS = {
    "id": ("identity", "void", "bucket[4]", "bucket[8]", "truncate[4]"),
    "ts": ("year", "day", "hour"),
    "s": ("identity", "void", "truncate[4]", "truncate[8]"),
    "at.s": ("identity", "bucket[4]", "bucket[8]"),
    "a (b)": ("identity", "truncate[4]"),
}
SOUND = [Partition(column, transform) for column, found in TRANSFORMS.items() for transform in found]
NAMED = st.builds(
    Partition, st.sampled_from([*TRANSFORMS]), st.sampled_from(["identity", "void"]), st.sampled_from("pq")
)
ODD = st.builds(
    Partition,
    st.sampled_from([*TRANSFORMS, "f", "at", "id_bucket", "nowhere"]),
    st.sampled_from(["bucket[0]", "bucket(4)", "bucket[99999999999]", "zorder", "day", "identity", "bucket[4]"]),
    st.sampled_from([None, "p", "s", "id_bucket", "s_trunc", ""]),
)
LAYOUTS = st.lists(st.one_of(*[st.sampled_from(SOUND)] * 6, NAMED, ODD), max_size=3).map(tuple)
DATA = st.lists(st.sampled_from(MEETING), max_size=4, unique=True).map(
    lambda names: tuple(
        Column("at", "struct<s_bucket: int>") if name.startswith("at.") else Column(name, "int") for name in names
    )
)
STEPS = st.lists(st.tuples(LAYOUTS, DATA), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogClient]:
    with OfPyiceberg(tmp_path_factory.mktemp("layouts")).opened() as lake:
        ensure_namespace(lake, NAMESPACE)
        yield lake


def check(lake: CatalogClient, name: str) -> None:
    """Every name means one thing, in the table's layouts of now and of before."""
    metadata = lake.pyiceberg.load_table(name).metadata
    columns = index_by_name(metadata.schema())
    for field in metadata.spec().fields:
        is_as_it_is = str(field.transform) in {"identity", "void"}
        assert field.name not in columns or (columns[field.name] == field.source_id and is_as_it_is)
    for spec in metadata.specs().values():
        assert (
            len(spec.fields) == len({each.name for each in spec.fields}) == len({each.field_id for each in spec.fields})
        )
    # The later of two layouts says how a field is called.
    latest = {each.field_id: each.name for _, spec in sorted(metadata.specs().items()) for each in spec.fields}
    assert len({*latest.values()}) == len(latest)


def follow(lake: CatalogClient, wanted: TableSpec) -> None:
    """What the plan says is done, or refused in the plan's own words; then there is nothing more to do."""
    found = plan(load(lake, wanted.name), wanted, EVOLVE)
    if found.objections:
        with pytest.raises(RequestRefused) as refusal:
            apply(lake, wanted.name, found)
        assert str(refusal.value) == "; ".join(found.objections)
        return
    again = plan(apply(lake, wanted.name, found), wanted, EVOLVE)
    assert (again.changes, again.objections, again.unfilled) == ((), (), found.unfilled)
    assert {each.path for each in again.refusals} == {each.path for each in found.refusals}
    check(lake, wanted.name)


class TestTable:
    @settings(max_examples=25)
    @given(version=st.sampled_from("12"), steps=STEPS)
    def test_takes_each_layout_or_the_plan_refuses_it(
        self, lake: CatalogClient, version: str, steps: list[tuple[tuple[Partition, ...], tuple[Column, ...]]]
    ) -> None:
        """Beside columns that come with them, and are called like their fields."""
        name, (first, more), later = f"{NAMESPACE}.t{uuid4().hex[:12]}", steps[0], steps[1:]
        columns = (*(Column(each, kind) for each, kind in BASE.items()), *(each for each in more if each.name != "at"))
        spec = TableSpec(name, columns, first, (), {"format-version": version})
        try:
            assert str(plan(create_table(lake, spec), spec)) == "nothing to change"
        except RequestRefused:
            create_table(lake, replace(spec, partitions=None))
        check(lake, name)
        for layout, data in later:
            follow(lake, TableSpec(name, data, layout))

    @settings(max_examples=15)
    @given(st.lists(any_columns(), min_size=1, max_size=3))
    def test_takes_any_columns_or_the_plan_refuses_them(
        self, lake: CatalogClient, batches: list[tuple[Column, ...]]
    ) -> None:
        name = f"{NAMESPACE}.t{uuid4().hex[:12]}"
        create_table(lake, TableSpec(name, (Column("id", "long"),), (Partition("id", "bucket[4]", "a"),)))
        for number, columns in enumerate(batches):
            with suppress(RequestRefused):
                create_table(lake, TableSpec(f"{name}_{number}", columns))
            follow(lake, TableSpec(name, columns))
