"""The partition layouts of a table follow a plan, on every catalog of `tests/services/catalogs.py`."""

import pytest

from catalog import (
    CatalogClient,
    Column,
    RequestRefused,
    TableSpec,
    add_columns,
    apply,
    create_table,
    load,
    plan,
)
from tests.conformance.tables import PARTITIONS_EVOLVE, TIMED, append, columns, layout, meanwhile, rows_of, step
from tests.services.catalogs import GIVEN, WITHOUT_GATE, Kind

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")

TRANSFORMS = ("id", "year(ts)", "month(day)", "bucket(4, site)", "truncate(2, place.city) as c", "void(place.city)")


class TestLayout:
    def test_may_have_any_transform_from_the_start_and_later(self, lake: CatalogClient, unmade: str) -> None:
        first = create_table(lake, TableSpec(unmade, TIMED, layout(*TRANSFORMS)))
        assert first.partitions == layout(*TRANSFORMS)
        for fields in (("hour(ts)",), ("day(ts)", "id"), (), ("hour(ts)", *TRANSFORMS[2:])):
            after = step(lake, unmade, TableSpec(unmade, (), layout(*fields)))
            assert {*after.partitions} == {*layout(*fields)}
            assert not plan(after, TableSpec(unmade, (), layout(*fields))).objections

    def test_leaves_the_name_of_a_dropped_field_to_that_field(self, lake: CatalogClient, unmade: str) -> None:
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

    def test_may_stand_beside_columns_of_such_names(self, lake: CatalogClient, unmade: str) -> None:
        """And a column with the name of a partition is left out, as it was refused."""
        there = columns(ts="timestamptz", ts_day="long", id="long")
        first = create_table(lake, TableSpec(unmade, there, layout("day(ts)", "bucket(4, id)", "bucket(8, id)")))
        assert [*map(str, first.partitions)] == ["day(ts) as ts_day_2", "bucket(4, id)", "bucket(8, id) as id_bucket_8"]
        found = plan(first, TableSpec(unmade, columns(id_bucket="long", n="long")))
        assert [column.name for column in apply(lake, unmade, found).columns] == ["ts", "ts_day", "id", "n"]
        with pytest.raises(RequestRefused, match="column id_bucket: a partition field of the table has its name"):
            add_columns(lake, unmade, [("", Column("id_bucket", "long"))])

    def test_that_may_not_change_is_refused_before_anything_is_written(self, lake: CatalogClient, unmade: str) -> None:
        first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)", "site")))
        found = plan(first, TableSpec(unmade, columns(more="long"), layout("hour(ts)")))
        assert found.changes
        with pytest.raises(RequestRefused, match=r"partitioned by \[day\(ts\), site\], not by \[hour\(ts\)\]"):
            apply(lake, unmade, found)
        assert load(lake, unmade).metadata_location == first.metadata_location

    def test_of_each_file_is_known_to_readers_and_prunes(self, lake: CatalogClient, unmade: str) -> None:
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

    def test_that_another_changed_in_between_is_planned_for(
        self, monkeypatch: pytest.MonkeyPatch, kind: Kind, lake: CatalogClient, unmade: str
    ) -> None:
        first = create_table(lake, TableSpec(unmade, TIMED, layout("day(ts)")))
        wanted = TableSpec(unmade, (), layout("day(ts)", "site"))
        found = plan(first, wanted, PARTITIONS_EVOLVE)
        with kind.opened() as other:
            act = TableSpec(unmade, (), layout("hour(ts)", "site"))
            meanwhile(monkeypatch, lake, lambda: step(other, unmade, act))
            after = apply(lake, unmade, found)
        assert {*after.partitions} == set(wanted.partitions or ())
