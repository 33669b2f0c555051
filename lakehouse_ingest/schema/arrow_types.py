"""Types of columns as Arrow's types: as a table stores them, and as values are first read."""

from functools import lru_cache

import pyarrow as pa
from pyiceberg import types as I

from catalog import columns_of, parse_type
from lakehouse_ingest.schema.columns import ColumnPlan

MOST_DIGITS = 38
KNOWN = 4096  # types that are kept; senders of records can invent others without end
_PLAIN: dict[type[I.IcebergType], pa.DataType] = {
    I.StringType: pa.string(),
    I.IntegerType: pa.int32(),
    I.LongType: pa.int64(),
    I.FloatType: pa.float32(),
    I.DoubleType: pa.float64(),
    I.BooleanType: pa.bool_(),
    I.TimestampType: pa.timestamp("us"),
    I.TimestamptzType: pa.timestamp("us", "UTC"),
    I.DateType: pa.date32(),
    I.BinaryType: pa.binary(),
}


@lru_cache(KNOWN)
def arrow_type(iceberg: str) -> pa.DataType:
    """The type of the column's values. Raises ValueError for a type that `column_types.is_written` doesn't accept."""
    return _arrow(parse_type(iceberg))


@lru_cache(KNOWN)
def iceberg_text(kind: pa.DataType) -> str:
    """The text of the Iceberg type that holds every value of the Arrow type."""
    return columns_of(pa.schema([("_", kind)]))[0].type


def wire_type(column: ColumnPlan) -> pa.DataType:
    """The type that values are first read in. It loses nothing, so that the value itself can be checked later."""
    kind = arrow_type(column.iceberg)
    if column.iceberg == "timestamptz":
        return pa.string()
    if pa.types.is_decimal(kind):
        return pa.decimal128(MOST_DIGITS, MOST_DIGITS - kind.precision + kind.scale)
    return pa.int64() if column.low is not None and kind == pa.int32() else kind


def _arrow(kind: I.IcebergType) -> pa.DataType:
    match kind:
        case I.StructType():
            return pa.struct([(each.name, _arrow(each.field_type)) for each in kind.fields])
        case I.ListType():
            return pa.list_(_arrow(kind.element_type))
        case I.MapType():
            return pa.map_(_arrow(kind.key_type), _arrow(kind.value_type))
        case I.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case _ if found := _PLAIN.get(type(kind)):
            return found
    raise ValueError(f"{kind} is a type that this program doesn't write")
