"""The least value of a column whose partition can be stored.

Iceberg's `truncate[10]` takes numbers down to a multiple of ten. Near the lowest number of a type that multiple is not
of the type any more. Iceberg's libraries then let an integer wrap around, and readers that skip files by partition do
not find the row. So there is no partition for such a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import ColumnPlan, TablePlan
from lakehouse_ingest.stages.faults import SHOWN, known_as
from lakehouse_ingest.stages.records import Fault


@dataclass(frozen=True)
class Floor:
    """The least number that a partition takes from a column, or from a field within it."""

    path: tuple[str, ...]  # empty for the column itself
    least: int | Decimal

    def takes(self, values: pa.Array) -> pa.Array:
        """Tell for each value of the column whether the partition takes it."""
        numbers = pc.struct_field(values, [*self.path]) if self.path else values
        return pc.fill_null(pc.greater_equal(numbers, pa.scalar(self.least, numbers.type)), fill_value=True)

    def takes_one(self, value: Any) -> bool:
        for name in self.path:
            value = None if value is None else value.get(name)
        return value is None or value >= self.least

    def fault(self, column: ColumnPlan, text: str, stage: str) -> Fault:
        why = f"is too low for a partition of the table, which takes {self.least} and more"
        detail = f"{column.field}: {text[:SHOWN]} {why}"
        return Fault(Reason.OUT_OF_RANGE, detail, stage, f"{known_as(column.field)} {why}")


def floors(plan: TablePlan, column: ColumnPlan) -> Sequence[Floor]:
    """List the floors of a column; nearly always there are none."""
    found = []
    for name, width in plan.truncated:
        if name == column.name or name.startswith(f"{column.name}."):
            path = tuple(name.removeprefix(column.name).split(".")[1:])
            if (least := _least(_inner(arrow_type(column.iceberg), path), width)) is not None:
                found.append(Floor(path, least))
    return found


def _inner(kind: Any, path: Sequence[str]) -> pa.DataType | None:
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None  # another column has a name that begins like this one's
        kind = kind.field(name).type
    return kind


def _least(kind: Any, width: int) -> int | Decimal | None:
    """Give the least multiple of the width that the type holds; a decimal's width counts its last digits."""
    if kind is not None and pa.types.is_decimal(kind):
        digits = Context(prec=kind.precision)
        return Decimal(_multiple(1 - 10**kind.precision, width)).scaleb(-kind.scale, digits)
    if kind in (pa.int32(), pa.int64()):
        return _multiple(-(1 << (kind.bit_width - 1)), width)
    return None


def _multiple(least: int, width: int) -> int:
    return -(-least // width) * width
