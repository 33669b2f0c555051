"""The live files of a table, for whoever knows only files."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog import (
    CatalogClient,
    Column,
    Contract,
    FileMissing,
    Partition,
    RequestRefused,
    Rule,
    TableSpec,
    apply,
    create_table,
    live_files,
    load,
    plan,
)
from tests.conformance.tables import append, delete_by_value
from tests.services.catalogs import GIVEN, WITHOUT_GATE, Can, Kind

pytestmark = pytest.mark.parametrize("kind", [*WITHOUT_GATE, *GIVEN], indirect=True, scope="package")


def local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


class TestLiveFiles:
    def test_are_listed_with_their_partitions(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        """By the layout that it was written in; and those of an earlier snapshot when they are asked for."""
        kind.needs(Can.LOCAL_FILES)
        columns = (Column("id", "long"), Column("site", "string"), Column("day", "date"))
        create_table(lake, TableSpec(unmade, columns, (Partition("site"), Partition("day", "month"))))
        assert list(live_files(lake, unmade)) == []
        append(lake, unmade, {"id": 1, "site": "a b", "day": None})
        append(lake, unmade, {"id": 3, "site": "null", "day": None})
        first = load(lake, unmade).main
        wanted = TableSpec(unmade, columns, (Partition("id", "bucket[4]"),))
        apply(lake, unmade, plan(load(lake, unmade), wanted, Contract(partitions=Rule.EVOLVE)))
        append(lake, unmade, {"id": 2, "site": "c", "day": None})
        found = {each.partition.get("site", ""): each for each in live_files(lake, unmade)}
        assert found["a b"].partition == {"site": "a b", "day_month": None}
        assert [*found[""].partition] == ["id_bucket"]
        for each in found.values():
            assert (each.rows, each.content, each.format) == (1, "data", "parquet")
            assert each.bytes == local(each.path).stat().st_size
            assert pq.read_table(local(each.path), partitioning=None).num_rows == 1
        assert found["null"].partition == {"site": "null", "day_month": None}, "a text is not taken for none"
        assert sorted(live_files(lake, unmade, first), key=str) == sorted((found["a b"], found["null"]), key=str)
        with pytest.raises(RequestRefused, match=f"the table {unmade} has no snapshot 7: it has been expired"):
            list(live_files(lake, unmade, 7))

    def test_with_deleted_rows_are_refused_unless_deletes_are_asked_for(
        self, kind: Kind, lake: CatalogClient, name: str
    ) -> None:
        kind.needs(Can.LOCAL_FILES)
        append(lake, name, {"id": 1, "site": "a"})
        delete_by_value(lake, name, 1)
        with pytest.raises(
            RequestRefused, match=f"rows of table {name} are deleted by files beside .*: compact it first"
        ):
            list(live_files(lake, name))
        assert [each.content for each in live_files(lake, name, deletes=True)] == ["data", "equality deletes"]

    def test_of_a_missing_manifest_raise_an_error_that_names_it(
        self, kind: Kind, lake: CatalogClient, name: str
    ) -> None:
        kind.needs(Can.LOCAL_FILES)
        append(lake, name, {"id": 1, "site": "a"})
        snapshot = lake.pyiceberg.load_table(name).current_snapshot()
        assert snapshot
        local(snapshot.manifest_list).unlink()
        with pytest.raises(FileMissing, match=r"snap-.*\.avro of table"):
            list(live_files(lake, name))
