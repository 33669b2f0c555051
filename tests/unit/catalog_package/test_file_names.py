"""Names of a task's files, and what a task is told of its table."""

import pickle
from dataclasses import replace

import pytest

from catalog.data_files import FileNames, TableFiles
from tests.unit.catalog_package.written_files import NAMES, Lake, lake

__all__ = ["lake"]  # a fixture


class TestFileNames:
    @pytest.mark.parametrize(
        "pipeline", ["sensors", "a-e1-b2", "größe/ä b%2F", "e7-b1-s1-a1-0123456789abcdef-00000.parquet"]
    )
    @pytest.mark.parametrize("share", [3, -1])  # the driver's own are written for no share
    def test_are_read_back(self, pipeline: str, share: int) -> None:
        names = FileNames(pipeline, 7, 42, share, 1)
        assert FileNames.of(f"s3://bucket/data/day=1/{names.stem()}-00012.parquet") == names

    @pytest.mark.parametrize(
        "path", ["", "data/00000-0-4f1d.parquet", "x-e7-b42-s3-a0-00.parquet", "s3://b/e7-b1/x.parquet"]
    )
    def test_of_others_are_told_from_ours(self, path: str) -> None:
        assert FileNames.of(path) is None

    def test_never_repeat(self) -> None:
        assert len({NAMES.stem() for _ in range(100)}) == 100
        assert NAMES.stem() != pickle.loads(pickle.dumps(NAMES)).stem()


class TestTableFiles:
    def test_hides_credentials(self, lake: Lake) -> None:
        table = replace(lake.create({"v": "long"}), io_properties={"s3.secret-access-key": "hush-hush"})
        assert "hush-hush" not in repr(table)

    def test_passes_no_code_of_the_table_on(self, lake: Lake) -> None:
        lake.create({"v": "long"})
        table = lake.table()
        table.io.properties["py-io-impl"] = "evil.Code"
        assert "py-io-impl" not in TableFiles.of(lake.client, table).io_properties

    def test_takes_no_values_but_text(self, lake: Lake) -> None:
        lake.create({"v": "long"})
        table = lake.table()
        table.io.properties["ssl"] = {"cabundle": "x"}
        lake.pyiceberg.properties["ssl"] = {"cabundle": "x"}
        assert "ssl" not in TableFiles.of(lake.client, table).io_properties
