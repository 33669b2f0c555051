"""How a table wants its Parquet files written, read from its properties.

What pyarrow can't do is left out, which hides no row. An unknown codec becomes zstd, and a number that can't be read
becomes the default. The size of a row group is measured in Arrow's bytes, which are more than Parquet's.

A column whose values hardly ever come twice gets no dictionary. pyarrow would fill one up to its limit before it gives
up, and Java's writer gives up early. Measured with 500,000 events of `make bench`: 15.1 bytes a row with dictionaries
everywhere, 9.8 without those of offsets and times, and a third less time. Higher levels of zstd gained nothing then.
Delta encoding would bring it to 3.8, but Iceberg's vectorised reader in Spark refused it for years.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog.file_columns import FileColumns, Leaf, plain

_PARQUET = "write.parquet."
_CODECS = {"zstd", "gzip", "snappy", "lz4", "brotli"}
_WITH_LEVELS = {"zstd", "gzip", "brotli"}
_MIB = 1 << 20
_FEWEST = 100  # values; fewer say too little of the rows that the file gets later
_LOOKED_AT = (200, 4_000)  # values; most columns have some of the first few again
# Share of values that are the first of their kind. With it, a column has at least about 100,000 values, and a
# dictionary of these would be as large as the column.
_ALL_DIFFERENT = 0.98


@dataclass(frozen=True)
class FileSettings:
    """Sizes in bytes, and the options of pyarrow's writer."""

    target: int  # a file ends once it is that large
    row_group: int  # of Arrow's bytes; Parquet's are fewer
    row_group_rows: int
    dictionaries: frozenset[str] = frozenset()  # the columns for which the table lets us try one
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str], leaves: Sequence[Leaf]) -> "FileSettings":
        def number(name: str, otherwise: int) -> int:
            text = properties.get(name, "")
            return int(text) if text.isdecimal() and int(text) > 0 else otherwise

        codec, level = _codec(properties)
        return cls(
            target=number("write.target-file-size-bytes", 512 * _MIB),
            row_group=number(f"{_PARQUET}row-group-size-bytes", 128 * _MIB),
            row_group_rows=number(f"{_PARQUET}row-group-limit", _MIB),
            dictionaries=frozenset(each.name for each in leaves if _may_have_dictionary(each.name, properties)),
            options={
                "compression": codec,
                "compression_level": level,
                "data_page_size": number(f"{_PARQUET}page-size-bytes", _MIB),
                "max_rows_per_page": number(f"{_PARQUET}page-row-limit", 20_000),
                "dictionary_pagesize_limit": number(f"{_PARQUET}dict-size-bytes", 2 * _MIB),
                "data_page_version": "2.0" if properties.get(f"{_PARQUET}page-version") == "v2" else "1.0",
            },
        )

    def with_dictionary(self, columns: FileColumns, rows: pa.Table) -> list[str]:
        """List the columns for which a dictionary is worth it, by the first rows of a file, as Parquet names them."""
        first = rows.slice(0, max(_LOOKED_AT))
        return [
            each.in_file
            for each in columns.leaves
            if each.name in self.dictionaries and not (each.path and _all_differ(columns.values(first, each.field_id)))
        ]


def _all_differ(values: pa.ChunkedArray) -> bool:
    there = plain(values).drop_null()
    return all(_differ(there.slice(0, count)) for count in _LOOKED_AT)


def _differ(values: pa.ChunkedArray) -> bool:
    return len(values) >= _FEWEST and bool(pc.count_distinct(values).as_py() >= _ALL_DIFFERENT * len(values))


def _codec(properties: Mapping[str, str]) -> tuple[str, int | None]:
    codec = properties.get(f"{_PARQUET}compression-codec", "zstd").lower()
    if codec in {"uncompressed", "none"}:
        return "none", None
    codec = codec if codec in _CODECS and pa.Codec.is_available(codec) else "zstd"
    level = properties.get(f"{_PARQUET}compression-level", "")
    if codec not in _WITH_LEVELS or not level.removeprefix("-").isdecimal():
        return codec, None
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    return codec, min(max(int(level), least), most)


def _may_have_dictionary(name: str, properties: Mapping[str, str]) -> bool:
    return properties.get(f"{_PARQUET}dict-encoding-enabled.column.{name}", "").lower() != "false"
