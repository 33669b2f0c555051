"""Which partition of a table each row belongs to, and the folder of that partition's files.

A chunk whose rows all lie in one partition is the usual case. The least and the largest source value show it, as
long as the transform keeps their order. Otherwise the partition of every row is computed. Rows of a partition that come
one after the other stay where they are; if partitions alternate, the chunk is sorted by them once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionKey, PartitionSpec
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import BucketTransform, TimeTransform, TruncateTransform, UnknownTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from catalog.data_files import TableFiles
from catalog.errors import RequestRefused
from catalog.file_columns import FileColumns, Rows, plain

PartitionValues: TypeAlias = tuple[object, ...]
_NAN = float("nan")  # always the same object, so that two partitions with it are equal
_LONGEST = 128  # characters of a folder's name: stores take about 255 bytes, and a value may be of any length
_CODE_NAMES = {"write.py-location-provider.impl", "write.location-provider.impl"}
_COUNTED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
# Their order by least and largest value is not Arrow's, or Arrow can't tell it.
_UNORDERED = (FloatType, DoubleType, FixedType, UUIDType)


@dataclass(frozen=True)
class Partitions:
    """The partitions of a table by its default spec."""

    columns: FileColumns
    spec: PartitionSpec

    def __post_init__(self) -> None:
        for each in self.spec.fields:
            if isinstance(each.transform, UnknownTransform):
                raise RequestRefused(f"the table is partitioned by {each.name} with a transform that is not understood")

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        """Give the rows by their partitions; a partition may come several times."""
        keys = [_Key.of(field, self.columns, rows) for field in self.spec.fields]
        if all(len(key.values) == 1 for key in keys):
            yield tuple(key.values[0] for key in keys), rows
            return
        codes: Any = None
        for key in keys:
            codes = key.codes if codes is None else pc.add(pc.multiply(codes, len(key.values)), key.codes)
        runs = pc.run_end_encode(codes)
        if len(runs.values) > 2 * len(pc.unique(runs.values)):
            order = pc.array_sort_indices(codes)
            rows, runs = rows.take(order), pc.run_end_encode(codes.take(order))
        begin = 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield self._partition(keys, code), rows.slice(begin, end - begin)
            begin = end

    @staticmethod
    def _partition(keys: "list[_Key]", code: int) -> PartitionValues:
        values = []
        for key in reversed(keys):
            code, at = divmod(code, len(key.values))
            values.append(key.values[at])
        return tuple(reversed(values))


@dataclass(frozen=True)
class _Key:
    """One field of the partitions of a chunk: its distinct values, and for each row which of them it has."""

    values: list[object]
    codes: Any

    @classmethod
    def of(cls, field: PartitionField, columns: FileColumns, rows: Rows) -> "_Key":
        if isinstance(field.transform, VoidTransform) or not len(rows):
            return cls([None], pa.scalar(0, pa.int64()))
        source = columns.values(rows, field.source_id)
        kind = columns.paths[field.source_id].kind
        if (single := _single(field, kind, source)) is not None:
            return cls(single, pa.scalar(0, pa.int64()))
        encoded = pc.dictionary_encode(_partitions(field, kind, source), null_encoding="encode")
        return cls(stored(encoded.dictionary), encoded.indices.cast(pa.int64()))


def transformed(field: Any, kind: IcebergType, source: pa.Array) -> pa.Array:
    """Give the values of a field of a partition or a sort order; uuid and fixed without the names of their types."""
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(len(source))
    return plain(field.transform.pyarrow_transform(kind)(plain(source)))


def _partitions(field: PartitionField, kind: IcebergType, source: pa.Array) -> pa.Array:
    """Give the partition of each value; RequestRefused if the partition's type does not hold it.

    The library then gives null, or lets the number wrap around. Readers that skip files by partition would not find
    the row.
    """
    values = transformed(field, kind, source)
    if isinstance(field.transform, TruncateTransform | TimeTransform) and isinstance(kind, _COUNTED):
        # What is cut goes down, and so keeps its sign.
        kept = pc.equal(pc.less(_numbers(values), 0), pc.less(_numbers(source), 0))
        if values.null_count > source.null_count or not pc.all(kept).as_py():
            raise RequestRefused(f"the table is partitioned by {field.name}, which has no number for some of the rows")
    return values


def stored(values: pa.Array) -> list[object]:
    """Give values as Iceberg stores them: times as numbers, decimals as they are."""
    kind = values.type
    found: list[Any] = _numbers(values).to_pylist()
    if pa.types.is_decimal(kind) and any(
        each is not None and each.adjusted() >= kind.precision - kind.scale for each in found
    ):
        # What is cut goes down: a negative number may get another digit, and Iceberg can't store it then.
        raise RequestRefused(f"the table is partitioned by numbers cut to one that has more digits than {kind} holds")
    return [*map(_same, found)] if pa.types.is_floating(kind) else found


def _numbers(values: pa.Array) -> pa.Array:
    if not pa.types.is_temporal(values.type):
        return values
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())


def _same(number: float | None) -> float | None:
    """Give one number for all that lie in one partition: 0.0 and -0.0, and all kinds of NaN."""
    if number is None:
        return None
    return _NAN if math.isnan(number) else number + 0.0


def _single(field: PartitionField, kind: IcebergType, source: pa.Array) -> list[object] | None:
    """Give the one value of a chunk, if the least and the largest source value lead to the same."""
    if source.null_count == len(source):
        return [None]
    if source.null_count or isinstance(kind, _UNORDERED) or isinstance(field.transform, BucketTransform):
        return None
    ends = pc.min_max(source)
    least, largest = stored(_partitions(field, kind, pa.array([ends["min"], ends["max"]], source.type)))
    return [least] if least == largest else None


@dataclass(frozen=True)
class _Folder:
    """What pyiceberg's location providers ask of a partition."""

    path: str

    def to_path(self) -> str:
        return self.path


@dataclass(frozen=True)
class Locations:
    """Where a table's files go."""

    table: TableFiles
    columns: FileColumns

    def of(self, name: str, partition: PartitionValues) -> str:
        """Give the location of a new file."""
        folder = cast("PartitionKey", _Folder(self.folder(partition))) if partition else None
        return str(self._provider.new_data_location(name, folder))

    def folder(self, partition: PartitionValues) -> str:
        """Name the folder of a partition as Iceberg does, but no longer than stores take."""
        parts = []
        for field, kind, value in zip(self.table.spec.fields, self._kinds, partition, strict=True):
            try:
                text = field.transform.to_human_string(kind, value)
            except (ValueError, OverflowError):  # Python knows no date beyond year 9999
                text = str(value)
            parts.append(f"{quote_plus(field.name)[:_LONGEST]}={quote_plus(text)[:_LONGEST]}"[: 2 * _LONGEST - 2])
        return "/".join(parts)

    @cached_property
    def _kinds(self) -> list[IcebergType]:
        return [each.field_type for each in self.table.spec.partition_type(self.columns.schema).fields]

    @cached_property
    def _provider(self) -> Any:
        # A class that the table names would run in this process.
        properties = {key: value for key, value in self.table.properties.items() if key not in _CODE_NAMES}
        return load_location_provider(self.table.location, properties)
