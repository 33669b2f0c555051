"""Namespaces and tables are made and found, on every catalog of `tests/services/catalogs.py`."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from catalog import (
    CatalogClient,
    Column,
    MetadataMissing,
    NamespaceMissing,
    Partition,
    RequestRefused,
    Sort,
    TableMissing,
    TableSpec,
    apply,
    create_table,
    ensure_namespace,
    inspect,
    load,
    namespace_properties,
    plan,
    set_properties,
)
from tests.conformance.tables import TIMED, a_view, append, columns, delete_by_value, ids_of, layout, step
from tests.services.catalogs import NAMESPACE, Can, Kind


class TestNamespace:
    def test_has_its_properties_and_its_place(self, kind: Kind, lake: CatalogClient, warehouse: Path) -> None:
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

    def test_that_may_not_be_made_is_named(self, lake: CatalogClient) -> None:
        missing = f"{NAMESPACE}_missing"
        with pytest.raises(NamespaceMissing, match=f"no namespace {missing}, and it may not be made"):
            ensure_namespace(lake, missing, create=False)
        with pytest.raises(NamespaceMissing, match=missing):
            namespace_properties(lake, missing)
        ensure_namespace(lake, NAMESPACE, create=False)


class TestTable:
    def test_comes_back_as_it_was_declared(self, kind: Kind, lake: CatalogClient, unmade: str, warehouse: Path) -> None:
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

    def test_that_may_not_be_made_is_named(self, lake: CatalogClient, name: str, unmade: str) -> None:
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
            (
                {"sort": (Sort("day(site)"),)},
                r"the sort field day\(site\) can't be computed from site, which is string",
            ),
            ({"sort": (Sort("s"),)}, "can't be computed from s, which is a struct"),
            ({"sort": (Sort("site as x"),)}, "can't have a name"),
            ({"sort": (Sort("week(site)"),)}, r"'week\(site\)' is no partition field"),
            ({"columns": (Column("a", "list<struct<>>"),)}, "the struct a.element has no fields"),
            ({"columns": (Column("", "long"),)}, "a column of the table has no name"),
            (
                {"columns": (Column("a", 'map<string, struct<"": long>>'),)},
                "a column of the struct a.value has no name",
            ),
            ({"columns": (Column("a", "struct<b: long, b: int>"),)}, "the column a.b appears twice"),
            ({"columns": (Column("a", "lang"),)}, "lang"),
            ({"columns": (Column("a", "long", default=7),)}, "a default for a needs a table of format 3"),
            ({"identifier": ("site",)}, "the identifier site must be a required column"),
            ({"identifier": ("f",)}, "no fraction"),
            ({"identifier": ("s.a",)}, "in nothing optional"),
        ],
    )
    def test_that_cannot_be_is_refused(self, lake: CatalogClient, unmade: str, spec: dict[str, Any], said: str) -> None:
        usual = (*columns(site="string", ts="date", s="struct<a: required int>"), Column("f", "double", required=True))
        with pytest.raises(RequestRefused, match=said):
            create_table(lake, TableSpec(**{"name": unmade, "columns": usual, **spec}))
        assert inspect(lake, unmade).missing

    def test_is_one_for_six_that_make_and_evolve_it_at_once(self, kind: Kind) -> None:
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


class TestSort:
    def test_is_by_a_column_of_that_very_name_first(self, lake: CatalogClient, unmade: str) -> None:
        odd = columns(**{"amount (EUR)": "long", "x as y": "long", "day(ts)": "long", "ts": "date"})
        sort = (Sort("amount (EUR)"), Sort("x as y", descending=True), Sort("day(ts)"), Sort('bucket(4, "x as y")'))
        made = create_table(lake, TableSpec(unmade, odd, layout('"amount (EUR)"'), sort))
        assert (made.sort, made.partitions) == (sort, (Partition("amount (EUR)"),))
        assert [str(each.transform) for each in lake.pyiceberg.load_table(unmade).sort_order().fields] == [
            "identity", "identity", "identity", "bucket[4]",
        ]  # fmt: skip


class TestView:
    def test_is_no_table(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        kind.needs(Can.VIEWS)
        a_view(lake, unmade)
        with pytest.raises(RequestRefused, match=f"{unmade} is a view"):
            create_table(lake, TableSpec(unmade, columns(id="long")))
        assert "is a view" in inspect(lake, unmade).refusal


class TestTableOfOthers:
    def test_without_its_metadata_is_not_recreated(self, kind: Kind, lake: CatalogClient, name: str) -> None:
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
    def test_of_another_format_is_used_as_it_is(
        self, kind: Kind, lake: CatalogClient, unmade: str, version: int
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

    def test_has_its_peculiarities_noted(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
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
