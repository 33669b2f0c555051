"""How a table wants its Parquet files written, read from its properties.

What pyarrow can't do is left out, which hides no row. An unknown codec becomes zstd, and a number that can't be read
becomes the default. The size of a row group is measured in Arrow's bytes, which are more than Parquet's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.file_columns import Leaf

_PARQUET = "write.parquet."
_CODECS = {"zstd", "gzip", "snappy", "lz4", "brotli"}
_WITH_LEVELS = {"zstd", "gzip", "brotli"}
_MIB = 1 << 20


@dataclass(frozen=True)
class FileSettings:
    """Sizes in bytes, and the options of pyarrow's writer."""

    target: int  # a file ends once it is that large
    row_group: int  # of Arrow's bytes; Parquet's are fewer
    row_group_rows: int
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
            options={
                "compression": codec,
                "compression_level": level,
                "data_page_size": number(f"{_PARQUET}page-size-bytes", _MIB),
                "max_rows_per_page": number(f"{_PARQUET}page-row-limit", 20_000),
                "dictionary_pagesize_limit": number(f"{_PARQUET}dict-size-bytes", 2 * _MIB),
                "use_dictionary": _dictionaries(properties, leaves),
                "data_page_version": "2.0" if properties.get(f"{_PARQUET}page-version") == "v2" else "1.0",
            },
        )


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


def _dictionaries(properties: Mapping[str, str], leaves: Sequence[Leaf]) -> bool | list[str]:
    """Tell for which columns a dictionary is tried; all, unless the table says of some that it is of no use."""
    without = {
        each.name
        for each in leaves
        if properties.get(f"{_PARQUET}dict-encoding-enabled.column.{each.name}", "").lower() == "false"
    }
    return [each.in_file for each in leaves if each.name not in without] if without else True
