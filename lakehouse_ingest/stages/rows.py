"""Records of one route become rows of their table.

What a format can decode in columns is decoded so. Every record that this is not sure of is decoded and fitted alone,
and so is every row that a check of its values is not sure of. So all faults have one origin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.records import RESCUED, SOURCE, Reason
from lakehouse_ingest.schema.arrow_types import arrow_type, wire_type
from lakehouse_ingest.schema.columns import EVENT_TIME, TablePlan
from lakehouse_ingest.stages.column_checks import STAGE, as_text, checks_of
from lakehouse_ingest.stages.event_time import INSTANT, Instant, instant_of, instants
from lakehouse_ingest.stages.faults import SHOWN, known_as, missing
from lakehouse_ingest.stages.fitting import Fitted, Fitter
from lakehouse_ingest.stages.formats import ColumnarFormat, Format
from lakehouse_ingest.stages.plans import RoutePlan
from lakehouse_ingest.stages.records import SOURCE_KIND, Fault, Records, Tree, coordinates
from lakehouse_ingest.stages.trees import json_text
from lakehouse_ingest.stages.untyped import reading

# As `layout.TIME_PARTS` has them, in Python's words. Python's %Y does not fill up the year.
PARTS: Mapping[str, Callable[[Any], str]] = {
    "year": lambda at: f"{at.year:04}",
    "month": lambda at: f"{at.month:02}",
    "day": lambda at: f"{at.day:02}",
    "hour": lambda at: f"{at.hour:02}",
}

Rescued = Mapping[str, str]  # the JSON of fields that no column takes


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of records in the wire types of the columns. Each record is in one of `data`, `faults` and `news`."""

    records: Records
    data: pa.StructArray  # named by field
    numbers: pa.Array  # int64: the number of the record of each row
    faults: Mapping[int, Fault] = field(default_factory=dict)  # by number of the record, like the next two
    news: Mapping[int, Tree] = field(default_factory=dict)
    rescued: Mapping[int, Rescued] = field(default_factory=dict)
    index: pa.Array | None = None  # int32: which of the rows of its record, if a transform made several of one
    is_changed: bool = False  # a transform has changed the data, so that they no longer follow from the records

    def of_records(self, column: str) -> pa.Array:
        """For each row, the value of its record."""
        values = self.records.rows.column(column)
        is_all = self.index is None and not self.is_changed and len(self.numbers) == len(values)
        return values if is_all else pc.take(values, self.numbers)


@dataclass(frozen=True, slots=True)
class Shaped:
    """The rows of a table. Each record has rows, or is in `faults` or `news`."""

    rows: pa.RecordBatch  # of sound records only, in their order
    numbers: pa.Array  # int64: the number of the record of each row
    faults: Mapping[int, Fault]
    news: Mapping[int, Tree]  # records that a changed table may take, or take more of
    rescued: int  # rows that have rescued values


@dataclass(frozen=True, slots=True)
class Row:
    """One row after its look: the values of the columns that have a check, the event time, what is rescued."""

    checked: list[Any]
    at: int | None
    rescued: dict[str, str]


class RowBuilder:
    """Makes rows by one plan. It is built once, for all records of the route that a task reads."""

    def __init__(self, route: RoutePlan, form: Format) -> None:
        self._form, self._columns = form, route.plan.columns
        self._fitter, self._shaper = Fitter(route), Shaper(route.plan)
        self._typed = reading(form, route.plan.columns)
        self._fields = [pa.field(each.field, wire_type(each)) for each in route.plan.columns]
        # Declared columns without a contract: fields without a column are dropped.
        self._drops = route.plan.aside is None and route.following is None and not route.refused
        self._fast = form if isinstance(form, ColumnarFormat) and route.plan.columns else None

    def rows(self, records: Records) -> Shaped:
        return self.shaped(self.decoded(records))

    # -- decode -------------------------------------------------------------------------------------------

    def decoded(self, records: Records) -> Decoded:
        values = records.rows.column("value")
        everything = pc.cumulative_sum(pa.repeat(1, len(records)), start=-1)  # from 0 on; a range of Python costs more
        if self._fast is None:
            return self._exactly(records, everything)
        data, sound = self._fast.columns(values, self._columns, drops=self._drops)
        if pc.all(sound, skip_nulls=False).as_py():
            return Decoded(records, data, everything)
        odd = self._exactly(records, pc.indices_nonzero(pc.invert(pc.fill_null(sound, fill_value=False))))
        data, numbers = _together((data.filter(sound), everything.filter(sound)), (odd.data, odd.numbers))
        return replace(odd, data=data, numbers=numbers)

    def _exactly(self, records: Records, asked: pa.Array) -> Decoded:
        faults: dict[int, Fault] = {}
        news: dict[int, Tree] = {}
        rescued: dict[int, Rescued] = {}
        numbers, rows = [], []
        values = pc.take(records.rows.column("value"), asked).to_pylist()
        for number, value in zip(asked.to_pylist(), values, strict=True):
            match self._read(value):
                case Fault() as fault:
                    faults[number] = fault
                case dict() as tree:
                    news[number] = tree
                case _, fitted:
                    numbers.append(number)
                    rows.append(fitted.values)
                    if fitted.rescued:
                        rescued[number] = fitted.rescued
        return Decoded(records, self._wire(rows), pa.array(numbers, pa.int64()), faults, news, rescued)

    def _read(self, value: bytes | None) -> Fault | Tree | tuple[Tree, Fitted]:
        """The fields of one record as its columns take them; its fault; or its fields alone, if they are news."""
        tree = self._form.tree(value)
        if isinstance(tree, Fault):
            return tree
        if self._typed:
            tree = self._typed(tree)
        fitted = self._fitter.fit(tree)
        if fitted.fault:
            return fitted.fault
        return tree if fitted.news else (tree, fitted)

    def _wire(self, rows: Sequence[Sequence[Any]]) -> pa.StructArray:
        if not self._fields:
            return pa.array([{}] * len(rows), pa.struct([]))
        columns = zip(*rows, strict=True) if rows else [()] * len(self._fields)
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, self._fields, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=self._fields)

    # -- shape --------------------------------------------------------------------------------------------

    def shaped(self, decoded: Decoded) -> Shaped:
        columns, at, sound = self._shaper.columns(decoded.data, decoded.of_records("timestamp"))
        source = coordinates(decoded.records, decoded.of_records("offset"), decoded.index)
        rescued = _by_position(decoded)
        if sound is None:
            rows = self._shaper.rows(columns, at, source, rescued)
            batch = pa.RecordBatch.from_struct_array(rows)
            return Shaped(batch, decoded.numbers, decoded.faults, decoded.news, len(rescued))
        return self._looked_at(decoded, columns, at, source, sound, rescued)

    def news(self, decoded: Decoded) -> Mapping[int, Tree]:
        """Only what is news. No row is made, so it costs less."""
        sound = self._shaper.columns(decoded.data, decoded.of_records("timestamp"))[2]
        if sound is None:
            return decoded.news
        odd = pc.indices_nonzero(pc.invert(sound))
        looked = self._look(decoded, odd, {})
        return {**decoded.news, **{number: found for _, number, found in looked if isinstance(found, dict)}}

    def _looked_at(
        self,
        decoded: Decoded,
        columns: Sequence[pa.Array],
        at: pa.Array,
        source: pa.StructArray,
        sound: pa.Array,
        rescued: Mapping[int, Rescued],
    ) -> Shaped:
        """The rows, after a look at each one that is not known to be sound."""
        odd = pc.indices_nonzero(pc.invert(sound))
        faults, news, good, looked = dict(decoded.faults), dict(decoded.news), [], []
        for position, number, found in self._look(decoded, odd, rescued):
            match found:
                case Fault():
                    faults[number] = found
                case Row():
                    good.append(position)
                    looked.append(found)
                case _:
                    news[number] = found
        kept = {new: rescued[old] for new, old in enumerate(pc.indices_nonzero(sound).to_pylist()) if old in rescued}
        main = self._shaper.rows(
            [pc.filter(each, sound) for each in columns], pc.filter(at, sound), pc.filter(source, sound), kept
        )
        numbers = pc.filter(decoded.numbers, sound)
        if good:
            positions = pa.array(good, pa.int64())
            more = {new: row.rescued for new, row in enumerate(looked) if row.rescued}
            fields = self._shaper.odd(
                looked, decoded.data.take(positions), decoded.of_records("timestamp").take(positions)
            )
            extra = self._shaper.rows(*fields, source.take(positions), more)
            main, numbers = _together((main, numbers), (extra, decoded.numbers.take(positions)))
        count = len(kept) + sum(1 for row in looked if row.rescued)
        return Shaped(pa.RecordBatch.from_struct_array(main), numbers, faults, news, count)

    def _look(
        self, decoded: Decoded, odd: pa.Array, rescued: Mapping[int, Rescued]
    ) -> Iterable[tuple[int, int, Row | Fault | Tree]]:
        numbers = decoded.numbers.take(odd).to_pylist()
        if decoded.is_changed:
            plain = self._shaper.plain(decoded.data.take(odd))
            for position, number, values in zip(odd.to_pylist(), numbers, plain, strict=True):
                yield position, number, self._shaper.row(values, dict(rescued.get(position, {})), None)
            return
        records = decoded.of_records("value").take(odd).to_pylist()
        for position, number, value in zip(odd.to_pylist(), numbers, records, strict=True):
            read = self._read(value)
            if isinstance(read, tuple):
                tree, fitted = read
                yield position, number, self._shaper.row(fitted.values, fitted.rescued, tree)
            else:
                yield position, number, read


def _by_position(decoded: Decoded) -> dict[int, Rescued]:
    """What was rescued, by the position of the row."""
    if not decoded.rescued:
        return {}
    numbers = enumerate(decoded.numbers.to_pylist())
    return {position: decoded.rescued[number] for position, number in numbers if number in decoded.rescued}


def _together(*parts: tuple[pa.StructArray, pa.Array]) -> tuple[pa.StructArray, pa.Array]:
    """Rows with the numbers of their records, in the order of the numbers."""
    if len(there := [part for part in parts if len(part[1])]) == 1:
        return there[0]  # the odd records are faults or news, as nearly always
    numbers = pa.concat_arrays([each for _, each in parts])
    order = pc.array_sort_indices(numbers)
    return pa.concat_arrays([rows for rows, _ in parts]).take(order), numbers.take(order)


# -- the columns of a table -------------------------------------------------------------------------------


class Shaper:
    """Makes the columns of one table."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._rescues = plan.strict is not None and plan.strict.rescues
        self._checks = checks_of(plan)
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
        text = as_text(value, wire_type(self._plan.columns[self._time]))
        return Fault(Reason.EVENT_TIME, f"{field}: {text[:SHOWN]}{wrong}", STAGE, f"{known_as(field)}{wrong}")


def _plain(values: pa.Array) -> list[Any]:
    """Python's values. Dates and times as numbers, because Python has none of the year 0."""
    if pa.types.is_date(values.type):
        values = pc.cast(values, pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = pc.cast(values, pa.int64())
    return values.to_pylist()  # type: ignore[no-any-return]


def _as_read(value: Any, wire: pa.DataType, field: str, tree: Tree | None) -> str:
    if tree is not None and field in tree:
        return json_text(tree[field])
    return json_text(as_text(value, wire)) if isinstance(value, int) and pa.types.is_date(wire) else json_text(value)


def _parts(at: pa.Array, parts: Sequence[str]) -> list[pa.Array]:
    """Parts of the event time as text. Thousands of rows have few hours, and each hour is worded once."""
    if not parts:
        return []
    hours = pc.dictionary_encode(pc.floor_temporal(pc.cast(at, pa.timestamp("us")), unit="hour"))
    known = hours.dictionary.to_pylist()
    return [pc.take(pa.array([PARTS[part](hour) for hour in known], pa.string()), hours.indices) for part in parts]


def _rescued(size: int, rescued: Mapping[int, Mapping[str, str]]) -> pa.Array:
    if not rescued:
        return pa.nulls(size, pa.string())
    texts: list[str | None] = [None] * size
    for position, fields in rescued.items():
        texts[position] = _object(fields) if fields else None
    return pa.array(texts, pa.string())


def _object(fields: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{json_text(name)}:{text}' for name, text in fields.items())}}}"
