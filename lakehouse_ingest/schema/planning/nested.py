"""Find fields inside the objects of a column that it has no place for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import ELEMENT, HINTED, VALUE, ColumnPlan, RefusedField
from lakehouse_ingest.schema.planning.inference import column_type
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.settings import TableSettings

Where = tuple[str | None, ...]  # the keys that lead to an object; None stands for any list element or map value


class NewField(NamedTuple):
    """A new field inside an object that is a column."""

    where: Where
    path: tuple[str, ...]  # the path in the table, from the column to that object
    siblings: Sequence[str]  # the fields that the object has already
    name: str
    seen: SeenValues


def new_within(column: ColumnPlan, seen: SeenValues) -> Iterator[NewField]:
    return _new_within((column.field,), (), arrow_type(column.iceberg), seen)


def _new_within(where: Where, path: tuple[str, ...], kind: pa.DataType, seen: SeenValues) -> Iterator[NewField]:
    match kind:
        case pa.ListType() if seen.elements:
            yield from _new_within((*where, None), (*path, ELEMENT), kind.value_type, seen.elements)
        case pa.MapType() if seen.fields:
            yield from _new_within((*where, None), (*path, VALUE), kind.item_type, seen.as_map())
        case pa.StructType():
            there = {each.name: each.type for each in kind}
            for name, inner in sorted(seen.fields.items()):
                if name in there:
                    yield from _new_within((*where, name), (*path, name), there[name], inner)
                else:
                    yield NewField(where, path, [*there], name, inner)


def beyond_hints(
    columns: Sequence[ColumnPlan], fields: Mapping[str, SeenValues], settings: TableSettings
) -> tuple[RefusedField, ...]:
    """New fields inside objects that have a hint. A hint lists all fields of an object, so it gets no more."""
    hinted = [each for each in columns if each.field in settings.hints and each.field in fields]
    return tuple(
        RefusedField(new.where, new.name, HINTED)
        for column in hinted
        for new in new_within(column, fields[column.field])
        if column_type(new.seen, usual=False)
    )
