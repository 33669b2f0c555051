"""How the values of one column are checked: as a whole, and one by one.

A check of the whole column only says which values it is sure of. All others are looked at one by one, and only that
look words a fault.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isinf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.arrow_types import arrow_type, wire_type
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan
from lakehouse_ingest.schema.times import YEAR_1, YEAR_10000
from lakehouse_ingest.stages.event_time import Instant, instant_of, instants
from lakehouse_ingest.stages.faults import SHOWN, misfit_told
from lakehouse_ingest.stages.floors import Floor, floors
from lakehouse_ingest.stages.leaves import DAY_S, exactly
from lakehouse_ingest.stages.records import Fault
from lakehouse_ingest.stages.trees import json_text

STAGE = "shape"
FIRST_DAY, LAST_DAY = YEAR_1 // DAY_S, YEAR_10000 // DAY_S - 1


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """How the values of one column are checked, all at once and one by one."""

    number: int
    column: ColumnPlan
    wire: pa.DataType
    kind: pa.DataType
    lenient: bool  # a value that does not pass is rescued
    all_at_once: Callable[[pa.Array], pa.Array]  # the column's values; null for those it is not sure of
    one: Callable[[Any], Any]  # the column's value, or the reason why there is none
    floors: Sequence[Floor] = ()

    def known(self, values: pa.Array) -> pa.Array:
        """The column's values; null for those that have to be looked at one by one."""
        found = self.all_at_once(values)
        for floor in self.floors:
            found = _kept(found, floor.takes(found))
        return found

    def looked_at(self, value: Any) -> Any:
        """The column's value, or the fault of this one."""
        found, column = self.one(value), self.column
        if isinstance(found, Reason):
            detail = f"{column.field}: {as_text(value, self.wire)[:SHOWN]} is not {column.takes}"
            return Fault(found, detail, STAGE, misfit_told(column))
        too_low = next((floor for floor in self.floors if not floor.takes_one(found)), None)
        return too_low.fault(column, as_text(value, self.wire), STAGE) if too_low else found


def checks_of(plan: TablePlan) -> list[ColumnCheck]:
    """The checks of those columns that need one."""
    aside = plan.strict
    lenient = {each.field for each in plan.columns if aside and aside.rescues and not aside.refused((each.field,))}
    return [
        check
        for number, each in enumerate(plan.columns)
        if (check := _check(number, each, floors(plan, each), lenient=each.field in lenient))
    ]


def _check(number: int, column: ColumnPlan, least: Sequence[Floor], *, lenient: bool) -> ColumnCheck | None:
    wire, kind = wire_type(column), arrow_type(column.iceberg)
    all_at_once: Callable[[pa.Array], pa.Array] = lambda values: values  # noqa: E731
    one: Callable[[Any], Any] = lambda value: value  # noqa: E731
    if pa.types.is_decimal(kind):
        all_at_once, one = _decimals(column, kind), _decimal(column, kind)
    elif column.low is not None:
        all_at_once, one = _ranged(column, kind), lambda value: value if _is_inside(column, value) else _OUT
    elif pa.types.is_floating(kind):
        all_at_once, one = _finite, lambda value: _OUT if isinf(value) else value
    elif pa.types.is_date(kind):
        all_at_once, one = _days, lambda value: value if FIRST_DAY <= value <= LAST_DAY else _OUT
    elif wire != kind and column.name != EVENT_TIME:
        all_at_once, one = _instants, _instant_in(instant_of(wire, "us", plausible=False))
    elif not (column.required or least):
        return None
    else:
        kind = wire
    return ColumnCheck(number, column, wire, kind, lenient, all_at_once, one, least)


_OUT = Reason.OUT_OF_RANGE


def _is_inside(column: ColumnPlan, value: Any) -> bool:
    return column.low is None or column.high is None or bool(column.low <= value <= column.high)


def _ranged(column: ColumnPlan, kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def checked(values: pa.Array) -> pa.Array:
        return pc.cast(_kept(values, _within(values, column.low, column.high)), kind)

    return checked


def _decimals(column: ColumnPlan, kind: Any) -> Callable[[pa.Array], pa.Array]:
    def checked(values: pa.Array) -> pa.Array:
        if column.low is not None:
            low, high = (pa.scalar(Decimal(each or 0), values.type) for each in (column.low, column.high))
            values = _kept(values, _within(values, low, high))
        try:
            return pc.cast(values, kind)
        except pa.ArrowInvalid:
            return pc.cast(_kept(values, pc.equal(pc.round(values, kind.scale), values)), kind)

    return checked


def _decimal(column: ColumnPlan, kind: Any) -> Callable[[Any], Any]:
    def checked(value: Decimal) -> Decimal | Reason:
        found = exactly(value, kind.precision, kind.scale) if _is_inside(column, value) else None
        return _OUT if found is None else found

    return checked


def _finite(values: pa.Array) -> pa.Array:
    return _kept(values, pc.invert(pc.is_inf(values)))


def _days(values: pa.Array) -> pa.Array:
    return pc.cast(_kept(days := pc.cast(values, pa.int32()), _within(days, FIRST_DAY, LAST_DAY)), values.type)


def _instants(values: pa.Array) -> pa.Array:
    return instants(values, "us")


def _instant_in(read: Instant) -> Callable[[Any], Any]:
    def checked(value: Any) -> int | Reason:
        found = read(value)
        return Reason.WRONG_TYPE if found is None else found

    return checked


def _within(values: pa.Array, low: Any, high: Any) -> pa.Array:
    return pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))


def _kept(values: pa.Array, sound: pa.Array) -> pa.Array:
    """The sound values, and null for the others. Nearly always all are sound."""
    return values if pc.min(sound).as_py() is not False else pc.if_else(sound, values, pa.scalar(None, values.type))


def as_text(value: Any, wire: pa.DataType) -> str:
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, int) and (pa.types.is_date(wire) or pa.types.is_timestamp(wire)):
        return str(pc.cast(pa.scalar(value, wire), pa.string()))
    return value if isinstance(value, str) else json_text(value)
