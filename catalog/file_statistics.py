"""What Iceberg knows of a data file's columns: readers skip a file by it, so a wrong value hides rows.

The values come from Parquet's footer and are made by our own function, since pyiceberg 0.12 goes wrong in these cases:
- A row group whose values are too long for the footer (4 KiB) has no bounds there; pyiceberg gives those of the others.
- The next character after U+D7FF is a surrogate, which can't be written; such an upper bound makes it fail.
- It gives no bounds for fields of structs, and reads a date or time beyond year 9999 as an error.
- It never counts NaN, which Parquet's footer does not tell.

Where we give less than Iceberg for Java:
- A column with NaN has no bounds, not even in Parquet's footer, and no count of NaN if it holds nothing else. Iceberg
  and Parquet leave NaN out of their bounds, but Spark and DuckDB take it for the largest number: they would skip a file
  or row group that `x > 5` finds rows in.
- No bounds for uuid: Iceberg for Java compared their halves as signed numbers until 1.11, and ClickHouse still reads
  their bytes in another order than its values, so both skip files that hold what is asked for.
- Nothing but the size for values within lists and maps.
"""

import re
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from catalog.file_columns import FileColumns, Leaf

_METRICS = "write.metadata.metrics."
_DEFAULT_LIMIT = 100  # columns, unless the table asks for more
_PACKED: dict[type[PrimitiveType], str] = {
    BooleanType: "<?",
    **dict.fromkeys((IntegerType, DateType), "<i"),
    **dict.fromkeys((LongType, TimeType, TimestampType, TimestamptzType), "<q"),
    FloatType: "<f",
    DoubleType: "<d",
}
_HIGHEST = 0x10FFFF  # the last character of Unicode
_SURROGATES = range(0xD800, 0xE000)  # they are no characters of their own, and can't be written
_LAST_BYTE = 0xFF


@dataclass(frozen=True)
class Mode:
    """How much is kept of a column: nothing, counts, or bounds as well, of which text and bytes are cut."""

    counts: bool = True
    bounds: bool = True
    length: int | None = 16

    @classmethod
    def parse(cls, text: str) -> "Mode | None":
        """Read `none`, `counts`, `full` or `truncate(16)`; None if it is none of them."""
        text = text.strip().lower()
        if found := re.fullmatch(r"truncate\((\d{1,9})\)", text):
            return cls(length=int(found[1])) if int(found[1]) else None
        return {"none": cls(counts=False, bounds=False), "counts": cls(bounds=False), "full": cls(length=None)}.get(
            text
        )


def modes(leaves: Sequence[Leaf], properties: Mapping[str, str], sorted_by: Collection[int]) -> dict[int, Mode]:
    """Tell how much of each column is kept, as Iceberg for Java does."""
    usual, none = Mode(), Mode(counts=False, bounds=False)
    limit = properties.get(f"{_METRICS}max-inferred-column-defaults", "")
    first = sorted(leaves, key=lambda leaf: leaf.rank)[: int(limit) if limit.isdecimal() else _DEFAULT_LIMIT]
    given = Mode.parse(properties[key]) or usual if (key := f"{_METRICS}default") in properties else None
    inferred = {leaf.field_id: usual for leaf in first} if given is None else {}
    found = {}
    for leaf in leaves:
        mode = given or inferred.get(leaf.field_id, none)
        if leaf.field_id in sorted_by and not mode.bounds:
            mode = usual
        found[leaf.field_id] = Mode.parse(properties.get(f"{_METRICS}column.{leaf.name}", "")) or mode
    return found


@dataclass
class Statistics:
    """The parts of a receipt that readers skip files by."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_counts: dict[int, int] = field(default_factory=dict)
    nan_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()


def count_nans(columns: FileColumns, rows: pa.Table) -> Counter[int]:
    """Count how often NaN is in each column that has any."""
    counts = {
        field_id: pc.sum(pc.is_nan(columns.values(rows, field_id))).as_py()
        for field_id, leaf in columns.paths.items()
        if isinstance(leaf.kind, FloatType | DoubleType)
    }
    return Counter({field_id: count for field_id, count in counts.items() if count})


def statistics(footer: Any, leaves: Sequence[Leaf], kept: Mapping[int, Mode], nans: Mapping[int, int]) -> Statistics:
    """Read the statistics of a file from its footer; `nans` is what was counted while it was written."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    found = Statistics(split_offsets=tuple(sorted(_start(group.column(0)) for group in groups)))
    for at, leaf in enumerate(leaves):
        chunks = [group.column(at) for group in groups]
        mode, key = kept[leaf.field_id], leaf.field_id
        found.column_sizes[key] = sum(chunk.total_compressed_size for chunk in chunks)
        if not mode.counts or not leaf.path:
            continue
        found.value_counts[key] = sum(chunk.num_values for chunk in chunks)
        if isinstance(leaf.kind, FloatType | DoubleType) and nans.get(key, 0) < found.value_counts[key]:
            found.nan_counts[key] = nans.get(key, 0)
        summaries = [chunk.statistics for chunk in chunks]
        if any(each is None or not each.has_null_count for each in summaries):
            continue
        found.null_counts[key] = sum(each.null_count for each in summaries)
        if mode.bounds:
            lower, upper = _bounds(leaf.kind, [*_extremes(chunks)], mode.length)
            if lower is not None:
                found.lower_bounds[key] = lower
            if upper is not None:
                found.upper_bounds[key] = upper
    return found


def _start(chunk: Any) -> int:
    """Give where a column of a row group begins."""
    if chunk.has_dictionary_page:
        return int(min(chunk.dictionary_page_offset, chunk.data_page_offset))
    return int(chunk.data_page_offset)


def _extremes(chunks: Sequence[Any]) -> Iterator[tuple[Any, Any] | None]:
    """Give the least and largest value of each row group that has any; None if the footer does not tell."""
    for chunk in chunks:
        summary = chunk.statistics
        if summary.null_count < chunk.num_values:
            yield (summary.min_raw, summary.max_raw) if summary.has_min_max else None


def _bounds(
    kind: PrimitiveType, extremes: Sequence[tuple[Any, Any] | None], length: int | None
) -> tuple[bytes | None, bytes | None]:
    known = [each for each in extremes if each is not None]
    if not known or len(known) < len(extremes):
        return None, None
    lows, highs = zip(*known, strict=True)
    least, largest = min(lows), max(highs)
    found: tuple[bytes | None, bytes | None] = (None, None)
    match kind:
        case StringType():
            found = _least_text(least, length), _largest_text(largest, length)
        case BinaryType():
            found = least[:length], _largest_bytes(largest, length)
        case FixedType():
            found = least, largest
        case DecimalType():
            found = _decimal(min(map(_unscaled, lows))), _decimal(max(map(_unscaled, highs)))
        case _ if packed := _PACKED.get(type(kind)):
            found = struct.pack(packed, least), struct.pack(packed, largest)
    return found


def _least_text(value: bytes, length: int | None) -> bytes | None:
    try:
        return value.decode()[:length].encode()
    except UnicodeDecodeError:
        return None


def _largest_text(value: bytes, length: int | None) -> bytes | None:
    """Give a text that is no less than the value and no longer than it may be; None if there is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    cut = text[:length]
    if cut == text:
        return value
    for at in reversed(range(len(cut))):
        if (following := ord(cut[at]) + 1) <= _HIGHEST:
            following = _SURROGATES.stop if following in _SURROGATES else following
            return f"{cut[:at]}{chr(following)}".encode()
    return None


def _largest_bytes(value: bytes, length: int | None) -> bytes | None:
    cut = value[:length]
    if cut == value:
        return value
    kept = cut.rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _unscaled(value: int | bytes) -> int:
    """Read a decimal, which Parquet keeps as a number or as the bytes of a longer one."""
    return value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)


def _decimal(unscaled: int) -> bytes:
    """Write it in as few bytes as it needs."""
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)
