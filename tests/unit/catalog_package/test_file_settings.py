"""Properties of a table that say how its files are written."""

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.file_columns import file_columns, plain
from catalog.file_settings import FileSettings
from tests.unit.catalog_package.written_files import Lake, lake, path_of, read_back, write

__all__ = ["lake"]  # a fixture


class TestSettings:
    def options(self, lake: Lake, **properties: str) -> FileSettings:
        leaves = file_columns(lake.create({"a": "string", "n": "struct<x: list<long>>"}).schema_json).leaves
        return FileSettings.of({f"write.{key}": text for key, text in properties.items()}, leaves)

    @pytest.mark.parametrize(
        ("codec", "level", "said"),
        [
            ("zstd", "9", ("zstd", 9)),
            ("ZSTD", "99", ("zstd", 22)),
            ("gzip", "0", ("gzip", 1)),
            ("snappy", "3", ("snappy", None)),
            ("uncompressed", "", ("none", None)),
            ("lzo", "", ("zstd", None)),
            ("zstd", "much", ("zstd", None)),
        ],
    )
    def test_have_codec_and_level(self, lake: Lake, codec: str, level: str, said: tuple[str, int | None]) -> None:
        given = {"parquet.compression-codec": codec, "parquet.compression-level": level}
        options = self.options(lake, **given).options
        assert (options["compression"], options["compression_level"]) == said

    def test_have_sizes(self, lake: Lake) -> None:
        settings = self.options(lake, **{"target-file-size-bytes": "7", "parquet.row-group-size-bytes": "-1"})
        assert (settings.target, settings.row_group) == (7, 128 << 20)

    def test_reach_the_file(self, lake: Lake) -> None:
        properties = {
            "write.parquet.compression-codec": "gzip",
            "write.parquet.dict-encoding-enabled.column.n.x.element": "false",
            "write.parquet.row-group-limit": "10",
        }
        table = lake.create({"a": "string", "n": "struct<x: list<long>>"}, properties=properties)
        (receipt,) = write(table, pa.RecordBatch.from_pylist([{"a": "a", "n": {"x": [1]}}] * 25))
        footer = pq.read_metadata(path_of(receipt))
        assert footer.num_row_groups == 3
        a, x = (footer.row_group(0).column(at) for at in range(2))
        assert {a.compression, x.compression} == {"GZIP"}
        assert (a.has_dictionary_page, x.has_dictionary_page) == (True, False)


class TestDictionary:
    """Of a column whose values hardly ever come twice, it takes more room than it saves."""

    KINDS = ("long", "string", "uuid", "decimal(9, 2)", "timestamptz", "double")

    @staticmethod
    def values(kind: str, numbers: list[int]) -> list[object]:
        make: dict[str, Callable[[int], object]] = {
            "string": str,
            "uuid": lambda n: uuid.UUID(int=n).bytes,
            "decimal(9, 2)": Decimal,
            "timestamptz": lambda n: datetime.fromtimestamp(n, UTC),
            "double": float,
        }
        return [make.get(kind, int)(n) for n in numbers]

    def has(self, lake: Lake, *columns: Sequence[object]) -> list[bool]:
        names = [f"c{at}" for at in range(len(columns))]
        table = lake.create(dict(zip(names, self.KINDS, strict=False)))
        kinds = [plain(pa.nulls(0, each.type)).type for each in file_columns(table.schema_json).arrow]
        arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
        (receipt,) = write(table, pa.RecordBatch.from_arrays(arrays, names=names))
        group = pq.read_metadata(path_of(receipt)).row_group(0)
        return [group.column(at).has_dictionary_page for at in range(len(columns))]

    @pytest.mark.parametrize(
        ("numbers", "expected"),
        [([*range(500)], False), ([n % 400 for n in range(500)], True), ([*range(50)], True)],
        ids=["all different", "some again", "few"],
    )
    def test_is_left_out_only_of_columns_that_need_none(
        self, lake: Lake, numbers: list[int], *, expected: bool
    ) -> None:
        columns = [self.values(kind, numbers) for kind in self.KINDS]
        assert self.has(lake, *columns) == [expected] * len(columns)

    def test_depends_on_values_and_not_on_nulls(self, lake: Lake) -> None:
        assert self.has(lake, [None if n % 3 else n for n in range(600)]) == [False]

    def test_is_not_left_out_of_a_column_of_nulls(self, lake: Lake) -> None:
        assert self.has(lake, [None] * 600) == [True]

    def test_is_chosen_for_fields_of_objects_and_never_left_out_within_lists(self, lake: Lake) -> None:
        table = lake.create({"s": "struct<n: long, k: long>", "l": "list<long>"})
        rows = [{"s": {"n": n, "k": n % 5}, "l": [n]} for n in range(300)]
        (receipt,) = write(table, pa.RecordBatch.from_pylist(rows))
        group = pq.read_metadata(path_of(receipt)).row_group(0)
        assert [group.column(at).has_dictionary_page for at in range(3)] == [False, True, True]
        assert read_back(lake, [receipt]) == rows
