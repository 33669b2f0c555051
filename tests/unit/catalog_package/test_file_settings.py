"""Properties of a table that say how its files are written."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.file_columns import file_columns
from catalog.file_settings import FileSettings
from tests.unit.catalog_package.written_files import Lake, lake, path_of, write

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
