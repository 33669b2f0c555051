"""The columns of a table's data files: Iceberg's field ids in Parquet's schema, and rows fitted to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY, parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from catalog.errors import RequestRefused

Rows: TypeAlias = pa.RecordBatch | pa.Table
# pyiceberg gives the wide forms; rows come in the usual ones, and Parquet makes no difference between them.
_USUAL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True)
class Leaf:
    """A column of a Parquet file."""

    field_id: int
    name: str  # the whole one, with dots, as the table's properties name it
    kind: PrimitiveType
    in_file: str  # its name in Parquet
    path: tuple[int, ...]  # the positions of its field and of the structs around it; empty within a list or a map
    rank: tuple[tuple[int, int], ...]  # "the first columns" of a struct are those that are no structs themselves


@dataclass(frozen=True)
class FileColumns:
    """What a file of a table looks like."""

    schema: Schema

    @cached_property
    def arrow(self) -> pa.Schema:
        """Give Arrow's schema: the names as Iceberg writes them to Parquet, and the field ids."""
        return pa.schema([_field(each) for each in sanitize_column_names(self.schema).fields])

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """List the columns in the order that Parquet has them."""
        in_file = parquet_path_to_id_mapping(sanitize_column_names(self.schema))
        names = {field_id: name for name, field_id in in_file.items()}
        return tuple(
            Leaf(field.field_id, ".".join(name), kind, names[field.field_id], path, rank)
            for field, kind, name, path, rank in _leaves(self.schema.as_struct(), (), (), (), within_list=False)
        )

    @cached_property
    def paths(self) -> dict[int, Leaf]:
        """Give the columns that have one value in each row, by their field ids."""
        return {each.field_id: each for each in self.leaves if each.path}

    def fit(self, rows: Rows) -> Rows:
        """Give the rows in the columns of the files; refused is what would lose a value or lack a required one."""
        names = [field.name for field in self.schema.fields]
        if rows.schema.names == names and rows.schema.equals(self.arrow) and not self._requires:
            return rows
        if len(set(rows.schema.names)) < len(rows.schema.names):
            raise RequestRefused(f"the rows have two columns of one name: {', '.join(rows.schema.names)}")
        if extra := set(rows.schema.names) - set(names):
            raise RequestRefused(f"the table has no column {', '.join(sorted(extra))}")
        columns = [
            _fitted(rows.column(name), field, self.arrow.field(at), name)
            if name in rows.schema.names
            else _missing(len(rows), field, self.arrow.field(at), name)
            for at, (name, field) in enumerate(zip(names, self.schema.fields, strict=True))
        ]
        return type(rows).from_arrays(columns, schema=self.arrow)

    @cached_property
    def _requires(self) -> bool:
        return _has_required(self.schema.as_struct())

    def values(self, rows: Rows, field_id: int) -> pa.Array:
        """Give the values of a column that has one in each row; null where a struct around it is null."""
        top, *inner = self.paths[field_id].path
        return pc.struct_field(rows.column(top), inner) if inner else rows.column(top)


@lru_cache(256)
def file_columns(schema_json: str) -> FileColumns:
    """Read a schema; a worker is used again, and most of its tasks write to the same tables."""
    return FileColumns(Schema.model_validate_json(schema_json))


def plain(values: Any) -> Any:
    """Give values without the name of their type (uuid), with which few of Arrow's functions can do anything."""
    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([each.storage for each in values.chunks], values.type.storage_type)
    return values.storage


def _field(field: NestedField) -> pa.Field:
    metadata = {PYARROW_PARQUET_FIELD_ID_KEY: str(field.field_id)}
    return pa.field(field.name, _kind(field.field_type), nullable=field.optional, metadata=metadata)


def _kind(kind: IcebergType) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_field(each) for each in kind.fields])
        case ListType():
            return pa.list_(_field(kind.element_field))
        case MapType():
            return pa.map_(_field(kind.key_field), _field(kind.value_field))
    found = schema_to_pyarrow(kind)
    return _USUAL.get(found, found)


def _leaves(
    struct: StructType,
    names: tuple[str, ...],
    path: tuple[int, ...],
    rank: tuple[tuple[int, int], ...],
    *,
    within_list: bool,
) -> Iterator[tuple[NestedField, PrimitiveType, tuple[str, ...], tuple[int, ...], tuple[tuple[int, int], ...]]]:
    for at, field in enumerate(struct.fields):
        name, below = (*names, field.name), (*path, at)
        match kind := field.field_type:
            case PrimitiveType():
                yield field, kind, name, () if within_list else below, (*rank, (0, at))
                continue
            case StructType():
                inner = kind
            case ListType():
                inner = StructType(kind.element_field)
            case MapType():
                inner = StructType(kind.key_field, kind.value_field)
        within = within_list or not isinstance(kind, StructType)
        yield from _leaves(inner, name, below, (*rank, (1, at)), within_list=within)


def _has_required(kind: IcebergType) -> bool:
    match kind:
        case StructType():
            return any(each.required or _has_required(each.field_type) for each in kind.fields)
        case ListType():
            return kind.element_required or _has_required(kind.element_type)
        case MapType():
            # A key is always required, and Arrow takes no null for one.
            return kind.value_required or _has_required(kind.key_type) or _has_required(kind.value_type)
    return False


def _missing(count: int, field: NestedField, target: pa.Field, path: str, absent: int = 0) -> pa.Array:
    if field.required and count > absent:
        raise RequestRefused(f"{path} is required, and the rows do not have it")
    return pa.nulls(count, target.type)


def _fitted(values: Any, field: NestedField, target: pa.Field, path: str, absent: int = 0) -> Any:
    """Give a column or a nested field in the type of the file; `absent` says how often the struct around it is null."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_fitted(each, field, target, path) for each in values.chunks], target.type)
    if field.required and values.null_count > absent:
        raise RequestRefused(f"{path} is required, and {values.null_count - absent} of the rows have no value for it")
    kind = field.field_type
    if values.type.equals(target.type) and not _has_required(kind):
        return values
    match kind:
        case StructType() if pa.types.is_struct(values.type):
            return _struct(values, kind, target.type, path)
        case ListType() if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            elements = _fitted(_between(values, values.values), kind.element_field, target.type.value_field, path)
            return pa.ListArray.from_arrays(_offsets(values), elements, type=target.type)
        case MapType() if pa.types.is_map(values.type):
            keys = _fitted(_between(values, values.keys), kind.key_field, target.type.key_field, path)
            items = _fitted(_between(values, values.items), kind.value_field, target.type.item_field, path)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target.type)
        case PrimitiveType():
            return _cast(values, target.type, path)
    raise RequestRefused(f"{path} is {values.type}, and the table has {kind}")


def _cast(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    if values.type.equals(kind):
        return values
    try:
        if isinstance(kind, pa.BaseExtensionType):
            return kind.wrap_array(values.cast(kind.storage_type))
        return plain(values).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RequestRefused(f"{path} is {values.type}, which does not fit {kind}: {error}") from None


def _struct(values: pa.StructArray, kind: StructType, target: pa.StructType, path: str) -> pa.StructArray:
    given = [field.name for field in values.type.fields]
    if extra := set(given) - {field.name for field in kind.fields}:
        raise RequestRefused(f"the table has no field {', '.join(sorted(extra))} in {path}")
    children = dict(zip(given, values.flatten(), strict=True))  # null where the struct is null
    absent = values.null_count
    fitted = [
        _fitted(children[field.name], field, target.field(at), f"{path}.{field.name}", absent)
        if field.name in children
        else _missing(len(values), field, target.field(at), f"{path}.{field.name}", absent)
        for at, field in enumerate(kind.fields)
    ]
    fitted = [_filled(each) if field.required else each for each, field in zip(fitted, kind.fields, strict=True)]
    return pa.StructArray.from_arrays(fitted, fields=target.fields, mask=values.is_null() if absent else None)


def _filled(values: Any) -> pa.Array:
    """Give a required field without nulls: where the struct around it is null, it may have any value but null."""
    if not values.null_count:
        return values
    if isinstance(values, pa.StructArray):
        inner = [values.field(at) for at in range(values.type.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=values.type.fields)
    if isinstance(values, pa.MapArray):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=values.type)
    if isinstance(values, pa.ListArray):
        return pa.ListArray.from_arrays(values.offsets, values.values, type=values.type)
    if isinstance(values, pa.ExtensionArray):
        return values.type.wrap_array(_filled(values.storage))
    return pa.Array.from_buffers(values.type, len(values), [None, *values.buffers()[1:]], 0, values.offset)


def _between(lists: Any, values: pa.Array) -> pa.Array:
    """Give the elements of a list or map array, which may be a slice of another one."""
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return values[first:last]


def _offsets(lists: Any) -> pa.Array:
    """Give the offsets from 0 on, null where the list is null. Arrow finds the null lists by them."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0]).cast(pa.int32())
    if not lists.null_count:
        return offsets
    return pc.if_else(pa.concat_arrays([lists.is_valid(), pa.array([True])]), offsets, None)
