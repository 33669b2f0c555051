"""Find fields of records that a table has no column for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.records import FAULT
from lakehouse_ingest.schema.column_types import in_common, spark_type, to_iceberg
from lakehouse_ingest.schema.columns import ELEMENT, HINTED, VALUE, ColumnPlan, RefusedField
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format, infer

Fields = Sequence[tuple[str, T.DataType]]
Where = tuple[str | None, ...]  # the keys that lead to an object; None stands for any list element or map value


class UnseenField(NamedTuple):
    """A new field inside an object that is a column."""

    where: Where
    path: tuple[str, ...]  # the path in the table, from the column to that object
    siblings: Sequence[str]  # the fields that the object has already
    name: str
    kind: T.DataType


def beyond_hints(
    form: Format, columns: Sequence[ColumnPlan], fields: Fields, rows: DataFrame, settings: TableSettings
) -> tuple[RefusedField, ...]:
    """Unseen fields inside objects that have a hint. A hint lists all fields of an object, so it gets no more."""
    hinted = {each.field: each for each in columns if "struct<" in each.iceberg and each.field in settings.hints}
    return tuple(
        RefusedField(where, name, HINTED)
        for field, kind in unhidden(form, columns, hinted, fields, rows)
        if field in hinted
        for where, _, _, name, new in unseen(hinted[field], kind)
        if to_iceberg(new)
    )


def unhidden(
    form: Format, columns: Sequence[ColumnPlan], nested: Mapping[str, ColumnPlan], fields: Fields, rows: DataFrame
) -> Fields:
    """The fields, inferred again without dead-letter records if one of those hides the fields of an object.

    An object's fields cannot be inferred while one record has a value of another kind in its place. That record has a
    fault, so the others decide.
    """
    if any(_hides(spark_type(nested[name].spark), kind) for name, kind in fields if name in nested):
        return infer(form, form.decode(rows, columns).where(F.col(FAULT).isNull()))
    return fields


def unseen(column: ColumnPlan, seen: T.DataType) -> Iterator[UnseenField]:
    return _unseen_in((column.field,), (), spark_type(column.spark), seen)


def _unseen_in(where: Where, path: tuple[str, ...], there: T.DataType, seen: T.DataType) -> Iterator[UnseenField]:
    match there, seen:
        case T.ArrayType(), T.ArrayType():
            yield from _unseen_in((*where, None), (*path, ELEMENT), there.elementType, seen.elementType)
        case T.MapType(), T.StructType():
            yield from _unseen_in((*where, None), (*path, VALUE), there.valueType, _values(seen))
        case T.StructType(), T.StructType():
            inner = {field.name: field.dataType for field in there.fields}
            for field in seen.fields:
                if field.name in inner:
                    within = (*where, field.name), (*path, field.name)
                    yield from _unseen_in(*within, inner[field.name], field.dataType)
                else:
                    yield UnseenField(where, path, there.names, field.name, field.dataType)


def _hides(there: T.DataType, seen: T.DataType) -> bool:
    """True if an object's fields are unknown because other records have another kind of value in its place."""
    match there, seen:
        case T.StructType() | T.ArrayType() | T.MapType(), T.VariantType():
            return True
        case T.ArrayType(), T.ArrayType():
            return _hides(there.elementType, seen.elementType)
        case T.MapType(), T.StructType():
            return _hides(there.valueType, _values(seen))
        case T.StructType(), T.StructType():
            inner = {field.name: field.dataType for field in there.fields}
            return any(_hides(inner[field.name], field.dataType) for field in seen.fields if field.name in inner)
    return False


def _values(seen: T.StructType) -> T.DataType:
    """The common type of the values of an object that is stored as a map."""
    found: T.DataType = T.NullType()
    for field in seen.fields:
        found = in_common(found, field.dataType)
    return found
