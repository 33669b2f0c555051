"""Transforms: a function of the user changes the decoded records of a table, before they are shaped.

The function gets an Arrow table and returns one. Its input has a row for each sound record of a chunk, some ten
thousand records of one Kafka partition. The columns are the fields of the records, and these two:

- `_record`: the record as the source gave it: topic, partition, offset, timestamp, key, value and headers.
- `_row`: a number. A row of the result belongs to the record with the same number.

The function may

- change values. Each field's column has to be there, with a type that Arrow can cast to the column's. A value that
  can't be cast is a fault of its record.
- leave out rows. Records without a row are counted as filtered.
- reject records: by `set_aside`, or by a text in a column `_fault`. It becomes the detail of the dead-letter record.
- return several rows with the same `_row`. All of them are written, or none: if one of them has a fault, the record is
  dead-lettered. In the table they differ by `_source.index`, which counts them in their order.

It sees one chunk at a time, so it can't compare records of different chunks. After a crash it sees records again. The
result may be anything that offers Arrow's stream interface, such as a frame of polars or pandas, or DuckDB's relation:

    def in_celsius(rows: pa.Table) -> pa.Table:
        rows = set_aside(rows, pc.not_equal(rows["unit"], "F"), "the unit is not F")
        degrees = pc.divide(pc.subtract(rows["degrees"], 32), 1.8)
        return rows.set_column(rows.schema.get_field_index("degrees"), "degrees", degrees)

    def in_celsius(rows):  # the other libraries read the same memory
        return polars.DataFrame(rows).with_columns((polars.col("degrees") - 32) / 1.8)
        return duckdb.sql("SELECT * REPLACE ((degrees - 32) / 1.8 AS degrees) FROM rows")
        return rows.to_pandas(types_mapper=pandas.ArrowDtype).query("degrees > -459.67")
"""

import importlib
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, TryAgain
from lakehouse_ingest.records import FAULT, RECORD, RESCUED, Reason
from lakehouse_ingest.schema.arrow_types import wire_type
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.settings.named_code import ASKED_FOR
from lakehouse_ingest.stages.faults import SHOWN, known_as, misfit_told
from lakehouse_ingest.stages.records import Fault, Records
from lakehouse_ingest.stages.rows import Decoded, RowBuilder, Shaped

STAGE = "transform"
GROUP = "lakehouse_ingest.transforms"
ROW = "_row"
OURS = (RECORD, ROW, FAULT)
LITERAL = {b"lakehouse_ingest": b"every text is one of the program's own"}  # so it may be shown

Transform = Callable[[pa.Table], Any]


def set_aside(table: pa.Table, mask: pa.Array | pa.ChunkedArray, detail: str) -> pa.Table:
    """Dead-letter the records of the rows for which the mask is true. A row that is rejected already keeps its detail.

    The detail is shown in logs and on pages as well, so it should not hold anything of a record.
    """
    at = table.schema.get_field_index(FAULT)
    known = table.column(at) if at >= 0 else pa.nulls(table.num_rows, pa.string())
    said = pc.coalesce(known, pc.if_else(pc.fill_null(mask, fill_value=False), detail, None))
    field = table.schema.field(at) if at >= 0 else pa.field(FAULT, pa.string(), metadata=LITERAL)
    return table.set_column(at, field, said) if at >= 0 else table.append_column(field, said)


@dataclass(frozen=True)
class Transformer:
    """Applies a transform to the records of one route. It holds the function to its contract."""

    transform: Transform
    columns: Sequence[ColumnPlan]

    def rows(self, records: Records, builder: RowBuilder) -> tuple[Shaped, int]:
        """Decode, transform and shape records. Returns their rows, and how many records the transform left out."""
        decoded, filtered = self.applied(builder.decoded(records))
        return whole(builder.shaped(decoded)), filtered

    def applied(self, decoded: Decoded) -> tuple[Decoded, int]:
        if not len(decoded.numbers):
            return decoded, 0
        given = given_to(decoded)
        made = self._checked(self._called(given), given)
        numbers = made[ROW]
        faults = _rejected(made)
        data = []
        for column in self.columns:
            values, misfits = self._column(made, column, decoded)
            data.append(values)
            for at, fault in misfits.items():
                faults.setdefault(numbers[at].as_py(), fault)
        fields = [pa.field(each.field, wire_type(each)) for each in self.columns]
        empty = pa.array([{}] * len(numbers), pa.struct([]))
        rows = pa.StructArray.from_arrays(data, fields=fields) if fields else empty
        filtered = len(decoded.numbers) - pc.count_distinct(numbers).as_py()
        if faults:
            kept = pc.invert(_is_one_of(numbers, faults))
            rows, numbers = rows.filter(kept), numbers.filter(kept)
        if not _ascend(numbers):
            order = pc.array_sort_indices(numbers)  # stable, so the rows of one record stay in their order
            rows, numbers = rows.take(order), numbers.take(order)
        changed = replace(
            decoded,
            data=rows,
            numbers=numbers,
            faults={**decoded.faults, **faults},
            index=_index(numbers),
            is_changed=True,
        )
        return changed, filtered

    def _called(self, given: pa.Table) -> pa.Table:
        """The result as a table. A failure of the function is a mistake in it, unless it asked another service."""
        try:
            made = self.transform(given)
            if hasattr(made, "__arrow_c_stream__"):
                return made if isinstance(made, pa.Table) else pa.table(made)
        except (LakehouseError, MemoryError):
            raise
        except OSError as failure:
            raise TryAgain(f"`streams.transform` {self._name} failed: {type(failure).__name__}") from failure
        except Exception as failure:
            raise self._refusal(self._said(failure, given)) from failure
        raise self._refusal(f"it returned {type(made).__name__} and not an Arrow table")

    def _said(self, failure: Exception, given: pa.Table) -> str:
        """What may be said of a failure. Its words may quote a record, unless it fails without records as well."""
        kind, without_records = type(failure), _failure_of(self.transform, given.slice(0, 0))
        if type(without_records) is kind:
            return f"{kind.__name__}: {_first_line(without_records)}"
        return f"{kind.__name__} in line {_line(failure)}"

    def _checked(self, made: pa.Table, given: pa.Table) -> pa.RecordBatch:
        """The result as one batch, if it has the right columns, and only numbers that were given."""
        wanted = {*given.schema.names}
        if ROW not in made.schema.names:
            raise self._untraceable(f"no column `{ROW}`")
        for name in made.schema.names:
            if made.schema.names.count(name) > 1:
                raise self._refusal(f"it returned two columns with the name {known_as(name)}")
            if name not in wanted and not name.startswith("_"):
                raise self._refusal(
                    f"it returned the column {known_as(name)}, which the table does not have: declare it first"
                )
        if gone := [each for each in given.schema.names if each not in made.schema.names and each != RECORD]:
            raise self._refusal(f"it returned no column {known_as(gone[0])}")
        try:
            numbers = _one(made[ROW]).cast(pa.int64())
        except pa.ArrowException:
            raise self._untraceable(f"a column `{ROW}` of the type {made[ROW].type}") from None
        if not pc.all(pc.is_in(numbers, _one(given[ROW])), min_count=0).as_py():
            raise self._untraceable(f"a `{ROW}` that it was not given")
        if FAULT in made.schema.names and not _is_text(made.schema.field(FAULT).type):
            raise self._refusal(f"it returned `{FAULT}` as {made.schema.field(FAULT).type}, and it should be text")
        columns = {name: _one(made[name]) for name in made.schema.names if name not in (ROW, RECORD)}
        schema = pa.schema([(ROW, pa.int64()), *(made.schema.field(name) for name in columns)])
        return pa.RecordBatch.from_arrays([numbers, *columns.values()], schema=schema)

    def _column(self, made: pa.RecordBatch, column: ColumnPlan, decoded: Decoded) -> tuple[pa.Array, dict[int, Fault]]:
        """The values in their wire type, and the faults of those that have none, by their position."""
        wire = wire_type(column)
        if column.field in OURS:  # the function has not seen it
            values = decoded.data.field(column.field)
            return values.take(pc.index_in(made[ROW], decoded.numbers)), {}
        values = made[column.field]
        try:
            values.slice(0, 0).cast(wire)
        except pa.ArrowException:
            said = f"it returned {known_as(column.field)} as {values.type}, which can't become {column.takes}"
            raise self._refusal(said) from None
        try:
            return values.cast(wire), {}
        except pa.ArrowInvalid:  # some of the values
            pass
        faults: dict[int, Fault] = {}
        casts = [_cast(values.slice(at, 1), wire) for at in range(len(values))]
        for at, cast_value in enumerate(casts):
            if cast_value is None:
                reason = Reason.OUT_OF_RANGE if pa.types.is_integer(values.type) else Reason.WRONG_TYPE
                shown = f"{values[at].as_py()}"[:SHOWN]
                faults[at] = Fault(reason, f"{column.field}: {shown} is not {column.takes}", STAGE, misfit_told(column))
        return pa.concat_arrays([pa.nulls(1, wire) if each is None else each for each in casts]), faults

    @property
    def _name(self) -> str:
        return getattr(self.transform, "__qualname__", None) or repr(self.transform)

    def _refusal(self, why: str) -> SettingsRefused:
        return SettingsRefused(f"`streams.transform` {self._name} can't be applied: {why}")

    def _untraceable(self, what: str) -> NeedsOperator:
        return NeedsOperator(
            f"`streams.transform` {self._name} returned {what}, so its rows belong to no record; nothing of the batch"
            f" is committed; let it keep `{ROW}` in every row"
        )


def given_to(decoded: Decoded) -> pa.Table:
    """What a transform gets. A field with a name of ours is not in it, and stays as it is."""
    names = [each.name for each in decoded.data.type if each.name not in OURS]
    columns = [decoded.data.field(name) for name in names]
    return pa.table([*columns, _record(decoded), decoded.numbers], names=[*names, RECORD, ROW])


def whole(shaped: Shaped) -> Shaped:
    """Leave out the rows of records of which another row has a fault or is news: a record is in one place only."""
    split = _is_one_of(shaped.numbers, {*shaped.faults, *shaped.news})
    if not pc.any(split, min_count=0).as_py():
        return shaped
    kept = pc.invert(split)
    rows = shaped.rows.filter(kept)
    rescued = rows.num_rows - rows.column(RESCUED).null_count if RESCUED in rows.schema.names else 0
    return replace(shaped, rows=rows, numbers=shaped.numbers.filter(kept), rescued=rescued)


def _record(decoded: Decoded) -> pa.StructArray:
    records: Records = decoded.records
    count = len(decoded.numbers)
    columns = {name: decoded.of_records(name) for name in ("offset", "timestamp", "key", "value", "headers")}
    place = {
        "topic": pa.repeat(records.topic, count),
        "partition": pa.repeat(pa.scalar(records.partition, pa.int32()), count),
    }
    named = place | columns
    return pa.StructArray.from_arrays([*named.values()], names=[*named])


def _rejected(made: pa.RecordBatch) -> dict[int, Fault]:
    """The faults of records that the function rejects. The first text of a record counts."""
    if FAULT not in made.schema.names:
        return {}
    field, details = made.schema.field(FAULT), made[FAULT].cast(pa.string())
    rows = pc.is_valid(details)
    faults: dict[int, Fault] = {}
    for number, detail in zip(made[ROW].filter(rows).to_pylist(), details.filter(rows).to_pylist(), strict=True):
        told = detail if LITERAL.items() <= (field.metadata or {}).items() else ""
        faults.setdefault(number, Fault(Reason.SET_ASIDE, detail, STAGE, told))
    return faults


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def _is_one_of(numbers: pa.Array, some: Collection[int]) -> pa.BooleanArray:
    return pc.is_in(numbers, pa.array(sorted(some), pa.int64()))


def _ascend(numbers: pa.Int64Array) -> bool:
    return bool(pc.all(pc.less_equal(numbers[:-1], numbers[1:]), min_count=0).as_py())


def _index(numbers: pa.Int64Array) -> pa.Int32Array | None:
    """How many rows of the same record come before each row. The numbers are sorted. None if they are all different."""
    ends = pc.run_end_encode(numbers).run_ends.to_pylist() if len(numbers) else []
    if len(ends) == len(numbers):
        return None
    starts = [0, *ends[:-1]]
    return pa.array(
        [at - start for start, end in zip(starts, ends, strict=True) for at in range(start, end)], pa.int32()
    )


def _one(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks()


def _cast(value: pa.Array, wire: pa.DataType) -> pa.Array | None:
    try:
        return value.cast(wire)
    except pa.ArrowInvalid:
        return None


# -- the function that the settings name ------------------------------------------------------------------


def chosen(stream: StreamSettings, *, allow_code: bool) -> Transform | None:
    """The function that the settings name, if any."""
    return _named(stream.transform, allow_code=allow_code) if stream.transform else None


def _named(name: str, *, allow_code: bool) -> Transform:
    module, colon, attribute = name.partition(":")
    if colon and not allow_code:
        raise SettingsRefused(f"`streams.transform` names code ({name}): {ASKED_FOR}")
    offered = {each.name: each for each in entry_points(group=GROUP)}
    if not colon and name not in offered:
        there = ", ".join(sorted(offered)) or "none is installed"
        raise SettingsRefused(
            f"`streams.transform` names {name}, and no package has such an entry point: {there}; install its package"
        )
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else offered[name].load()
    except Exception as failure:
        said = f"{type(failure).__name__}: {_first_line(failure)}"
        raise SettingsRefused(f"`streams.transform` names {name}, which can't be loaded: {said}") from failure
    if not callable(found):
        raise SettingsRefused(f"`streams.transform` names {name}, which is not a function; name a function")
    return cast("Transform", found)


def _first_line(failure: Exception) -> str:
    return (str(failure).strip().splitlines() or [""])[0][:120]


def _failure_of(transform: Transform, table: pa.Table) -> Exception | None:
    try:
        transform(table)
    except Exception as failure:  # noqa: BLE001 a function of the user may raise anything
        return failure
    return None


def _line(failure: Exception) -> str:
    """Where the user's function failed: the file and the line, which hold nothing of a record."""
    frames = traceback.extract_tb(failure.__traceback__)[1:]
    return f"{frames[0].lineno} of {Path(frames[0].filename).name}" if frames else "?"
