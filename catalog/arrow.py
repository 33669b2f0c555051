"""Arrow's types as Iceberg's, and back.

    today = rows.schema                                    # of a pyarrow.Table, a Parquet file, a DataFrame
    plan(load(client, "iot.sensors"), TableSpec("iot.sensors", columns_of(today)))

If Iceberg has no such type, the next one that holds every value is taken: for an unsigned integer the next wider
signed one. If there is none, the field is refused by its path. No type is ever chosen that would round a value.
"""

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType, NestedField, StructType

from catalog import fields
from catalog.errors import RequestRefused
from catalog.fields import ELEMENT, KEY, VALUE, Path, list_of, map_of, named
from catalog.specs import Column
from catalog.typenames import parse_type

_LEAVES: dict[pa.DataType, str] = {
    pa.null(): "unknown",
    **dict.fromkeys([pa.bool_(), pa.bool8()], "boolean"),
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()], "int"),
    **dict.fromkeys([pa.int64(), pa.uint32()], "long"),
    pa.uint64(): "decimal(20,0)",
    **dict.fromkeys([pa.float16(), pa.float32()], "float"),
    pa.float64(): "double",
    **dict.fromkeys([pa.string(), pa.large_string(), pa.string_view()], "string"),
    **dict.fromkeys([pa.binary(), pa.large_binary(), pa.binary_view()], "binary"),
    **dict.fromkeys([pa.date32(), pa.date64()], "date"),
    **dict.fromkeys([pa.time32("s"), pa.time32("ms"), pa.time64("us")], "time"),
    pa.uuid(): "uuid",
}
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
# These hold the same values in another encoding.
_ENCODED = (pa.DictionaryType, pa.RunEndEncodedType)
_MOST_DIGITS = 38
_DOC = b"doc"  # in a field's metadata, as pyiceberg reads and writes it


def arrow_type(text: str) -> pa.DataType:
    """Give the Arrow type for the text of an Iceberg type."""
    return schema_to_pyarrow(parse_type(text))


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Give the columns that such rows need; a field that may hold no null becomes a required column.

    Raises RequestRefused with the path of a field that can't become a column.
    """
    return fields.columns_of(StructType(*(_field(each, each.name, ()) for each in schema)))


def _field(field: pa.Field, name: str, path: Path) -> NestedField:
    doc = (field.metadata or {}).get(_DOC)
    kind = _kind(field.type, (*path, name))
    return named(name, kind, doc.decode() if doc else None, required=not field.nullable)


def _kind(kind: pa.DataType, path: Path) -> IcebergType:
    match kind:
        case pa.StructType():
            return StructType(*(_field(each, each.name, path) for each in kind.fields))
        case pa.MapType():
            value = _field(kind.item_field, VALUE, path)
            return map_of(_kind(kind.key_type, (*path, KEY)), value)
        case _ if isinstance(kind, _LISTS):
            return list_of(_field(kind.value_field, ELEMENT, path))
        case _ if isinstance(kind, _ENCODED):
            return _kind(kind.value_type, path)
        case pa.BaseExtensionType() if kind not in _LEAVES:
            return _kind(kind.storage_type, path)
    return parse_type(_leaf(kind, path))


def _leaf(kind: pa.DataType, path: Path) -> str:
    if kind in _LEAVES:
        return _LEAVES[kind]
    if pa.types.is_timestamp(kind):
        # A timestamp with a zone is a moment, so which zone it is shown in does not matter.
        return f"timestamp{'tz' if kind.tz else ''}{'_ns' if kind.unit == 'ns' else ''}"
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MOST_DIGITS:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    raise RequestRefused(
        f"{'.'.join(path)} is {kind}, and Iceberg has no type that holds every value of it: cast it first"
    )
