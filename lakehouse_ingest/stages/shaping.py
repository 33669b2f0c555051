"""Turns decoded fields into the columns of a table: ranges, required fields, the event time, coordinates.

A column is checked as a whole. Rows that a check is not sure of are looked at one by one, and only that look words a
fault.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from math import isinf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.records import RESCUED, SOURCE, Reason
from lakehouse_ingest.schema.arrow_types import arrow_type, wire_type
from lakehouse_ingest.schema.columns import EVENT_TIME, SOURCE_TYPE, ColumnPlan, TablePlan
from lakehouse_ingest.schema.times import YEAR_1, YEAR_10000
from lakehouse_ingest.stages.event_time import (
    INSTANT,
    Instant,
    instant_of,
    instants,
)
from lakehouse_ingest.stages.faults import SHOWN, known_as, misfit_told, missing
from lakehouse_ingest.stages.floors import Floor, floors
from lakehouse_ingest.stages.leaves import DAY_S, exactly
from lakehouse_ingest.stages.records import Fault, Records, Tree
from lakehouse_ingest.stages.trees import json_text

STAGE = "shape"
FIRST_DAY, LAST_DAY = YEAR_1 // DAY_S, YEAR_10000 // DAY_S - 1
# As `layout.TIME_PARTS` has them, in Python's words. Python's %Y does not fill up the year.
PARTS: Mapping[str, Callable[[Any], str]] = {
    "year": lambda at: f"{at.year:04}",
    "month": lambda at: f"{at.month:02}",
    "day": lambda at: f"{at.day:02}",
    "hour": lambda at: f"{at.hour:02}",
}
SOURCE_KIND = arrow_type(SOURCE_TYPE)


@dataclass(frozen=True, slots=True)
class _Check:
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
            detail = f"{column.field}: {_text(value, self.wire)[:SHOWN]} is not {column.takes}"
            return Fault(found, detail, STAGE, misfit_told(column))
        too_low = next((floor for floor in self.floors if not floor.takes_one(found)), None)
        return too_low.fault(column, _text(value, self.wire), STAGE) if too_low else found


@dataclass(frozen=True, slots=True)
class Row:
    """One row after its look: the values of the columns that have a check, the event time, what is rescued."""

    checked: list[Any]
    at: int | None
    rescued: dict[str, str]


class Shaper:
    """Makes the columns of one table."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        aside = plan.strict
        self._rescues = aside is not None and aside.rescues
        lenient = {each.field for each in plan.columns if aside and aside.rescues and not aside.refused((each.field,))}
        self._checks = [
            check
            for number, each in enumerate(plan.columns)
            if (check := _check(number, each, floors(plan, each), lenient=each.field in lenient))
        ]
        self._time = next((n for n, each in enumerate(plan.columns) if each.field == plan.event_time), None)
        self._instant: Instant | None = None
        if plan.event_time is not None:
            assert self._time is not None
            kind = wire_type(plan.columns[self._time])
            self._instant = instant_of(kind, plan.unit, plausible=not plan.unit_was_given)
        self.kinds = [(each.name, arrow_type(each.iceberg)) for each in plan.columns if each.name != EVENT_TIME]
        self.kinds += [(RESCUED, pa.string())] if self._rescues else []
        self.kinds += [(EVENT_TIME, INSTANT), *((part, pa.string()) for part in plan.derived), (SOURCE, SOURCE_KIND)]

    # -- all rows at once ---------------------------------------------------------------------------------

    def columns(self, data: pa.StructArray, timestamps: pa.Array) -> tuple[list[pa.Array], pa.Array, pa.Array | None]:
        """The values of the columns, the event times, and which rows are sound; None if all are."""
        columns = [data.field(number) for number in range(data.type.num_fields)]
        sound: list[pa.Array] = []
        for check in self._checks:
            values = columns[check.number]
            columns[check.number] = shaped = check.known(values)
            if shaped.null_count > values.null_count:
                sound.append(pc.or_(pc.is_null(values), pc.is_valid(shaped)))
            if check.column.required and values.null_count:
                sound.append(pc.is_valid(values))
        at = timestamps
        if self._time is not None:
            at = instants(data.field(self._time), self._plan.unit, plausible=not self._plan.unit_was_given)
            if at.null_count:
                sound.append(pc.is_valid(at))
        return columns, at, reduce(pc.and_, sound) if sound else None

    def rows(
        self,
        columns: Sequence[pa.Array],
        at: pa.Array,
        source: pa.StructArray,
        rescued: Mapping[int, Mapping[str, str]],
    ) -> pa.StructArray:
        """The rows of a table. `rescued` is by their position."""
        made = [column for each, column in zip(self._plan.columns, columns, strict=True) if each.name != EVENT_TIME]
        if self._rescues:
            made.append(_rescued(len(at), rescued))
        made += [at, *_parts(at, self._plan.derived), source]
        fields = [pa.field(name, kind) for name, kind in self.kinds]
        return pa.StructArray.from_arrays(made, fields=fields)

    # -- one by one ---------------------------------------------------------------------------------------

    def plain(self, data: pa.StructArray) -> list[dict[int, Any]]:
        """The values that `row` asks for, by the number of their column: those with a check, and the event time."""
        asked = {check.number for check in self._checks} | ({self._time} - {None})
        columns = {number: _plain(data.field(number)) for number in asked if number is not None}
        return [{number: values[at] for number, values in columns.items()} for at in range(len(data))]

    def row(self, values: Mapping[int, Any] | Sequence[Any], rescued: dict[str, str], tree: Tree | None) -> Row | Fault:
        """Look at one row. `tree` has the fields as they were read, unless a transform has changed them since."""
        checked: list[Any] = []
        for check in self._checks:
            value, column = values[check.number], check.column
            if value is None:
                if column.required:
                    return missing(Reason.MISSING, column.field, STAGE)
                checked.append(None)
                continue
            found = check.looked_at(value)
            if isinstance(found, Fault):
                if not check.lenient:
                    return found
                rescued[column.field] = _as_read(value, check.wire, column.field, tree)
                found = None
            checked.append(found)
        if self._time is None or self._instant is None:
            return Row(checked, None, rescued)
        value = values[self._time]
        at = None if value is None else self._instant(value)
        return self._no_time(value) if at is None else Row(checked, at, rescued)

    def odd(self, rows: Sequence[Row], data: pa.StructArray, timestamps: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        """The columns and event times of rows that were looked at one by one."""
        columns = [data.field(number) for number in range(data.type.num_fields)]
        for place, check in enumerate(self._checks):
            columns[check.number] = pa.array([row.checked[place] for row in rows], check.kind)
        return columns, timestamps if self._time is None else pa.array([row.at for row in rows], INSTANT)

    def _no_time(self, value: Any) -> Fault:
        field, wrong = self._plan.event_time or "", f" is no time in {self._plan.unit}"
        if value is None:
            return missing(Reason.EVENT_TIME, field, STAGE)
        assert self._time is not None
        text = _text(value, wire_type(self._plan.columns[self._time]))
        return Fault(Reason.EVENT_TIME, f"{field}: {text[:SHOWN]}{wrong}", STAGE, f"{known_as(field)}{wrong}")


def _plain(values: pa.Array) -> list[Any]:
    """Python's values. Dates and times as numbers, because Python has none of the year 0."""
    if pa.types.is_date(values.type):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = pc.cast(values, pa.int64())
    return values.to_pylist()  # type: ignore[no-any-return]


def _text(value: Any, wire: pa.DataType) -> str:
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, int) and (pa.types.is_date(wire) or pa.types.is_timestamp(wire)):
        return str(pc.cast(pa.scalar(value, wire), pa.string()))
    return value if isinstance(value, str) else json_text(value)


def _as_read(value: Any, wire: pa.DataType, field: str, tree: Tree | None) -> str:
    if tree is not None and field in tree:
        return json_text(tree[field])
    return json_text(_text(value, wire)) if isinstance(value, int) and pa.types.is_date(wire) else json_text(value)


# -- the checks of a column -------------------------------------------------------------------------------


def _check(number: int, column: ColumnPlan, least: Sequence[Floor], *, lenient: bool) -> _Check | None:
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
    return _Check(number, column, wire, kind, lenient, all_at_once, one, least)


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


# -- what is not from the fields --------------------------------------------------------------------------


def _parts(at: pa.Array, parts: Sequence[str]) -> list[pa.Array]:
    """Parts of the event time as text. Thousands of rows have few hours, and each hour is worded once."""
    if not parts:
        return []
    hours = pc.dictionary_encode(pc.floor_temporal(pc.cast(at, pa.timestamp("us")), unit="hour"))
    known = hours.dictionary.to_pylist()
    return [pc.take(pa.array([PARTS[part](hour) for hour in known], pa.string()), hours.indices) for part in parts]


def coordinates(records: Records, offsets: pa.Array, index: pa.Array | None) -> pa.StructArray:
    """Where the rows' records stand in their source. `index` tells the rows of one record apart."""
    size = len(offsets)
    values = [
        pa.repeat(pa.scalar(records.topic, pa.string()), size),
        pa.repeat(pa.scalar(records.partition, pa.int32()), size),
        offsets,
        pa.repeat(pa.scalar(0, pa.int32()), size) if index is None else index,
        pa.repeat(pa.scalar(records.log, pa.string()), size),
    ]
    return pa.StructArray.from_arrays(values, fields=list(SOURCE_KIND))


def _rescued(size: int, rescued: Mapping[int, Mapping[str, str]]) -> pa.Array:
    if not rescued:
        return pa.nulls(size, pa.string())
    texts: list[str | None] = [None] * size
    for position, fields in rescued.items():
        texts[position] = _object(fields) if fields else None
    return pa.array(texts, pa.string())


def _object(fields: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{json_text(name)}:{text}' for name, text in fields.items())}}}"
