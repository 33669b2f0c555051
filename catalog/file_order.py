"""The sort order of a table, as far as it holds within the rows that are written at once."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform

from catalog.file_columns import FileColumns
from catalog.file_partitions import transformed

_DIRECTIONS = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}
_NULLS = {NullOrder.NULLS_FIRST: "at_start", NullOrder.NULLS_LAST: "at_end"}


def sorted_rows(rows: pa.Table, columns: FileColumns, order: SortOrder) -> pa.Table:
    """Sort the rows; NaN is larger than every number, as Iceberg has it."""
    keys: dict[str, Any] = {}
    sort: list[tuple[str, str, str]] = []
    for field in sort_fields(columns, order):
        source = columns.values(rows, field.source_id)
        values = transformed(field, columns.paths[field.source_id].kind, source)
        direction, nulls = _DIRECTIONS[field.direction], _NULLS[field.null_order]
        if pa.types.is_floating(values.type):
            # Arrow puts NaN next to the nulls, whatever the direction.
            keys[f"{len(sort)}"] = pc.is_nan(values)
            sort.append((f"{len(sort)}", direction, nulls))
        keys[f"{len(sort)}"] = values
        sort.append((f"{len(sort)}", direction, nulls))
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=sort)) if sort else rows


def sort_fields(columns: FileColumns, order: SortOrder) -> list[SortField]:
    """List the fields that rows can be sorted by here; none if the order has others among them."""
    unsortable = (UnknownTransform, VoidTransform)
    if any(each.source_id not in columns.paths or isinstance(each.transform, unsortable) for each in order.fields):
        return []
    return list(order.fields)
