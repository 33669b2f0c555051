"""What a table should look like: from the settings, from the table itself, or from the first records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse_ingest.columns import (
    EVENT_TIME,
    SOURCE_TYPE,
    TAKEN,
    ColumnPlan,
    declared,
    from_table,
    inferred,
    to_iceberg,
)
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.formats import json_object
from lakehouse_ingest.records import SOURCE
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.shaping import TablePlan, unit_of
from lakehouse_ingest.tables import Column, Partition, Sort, TableSpec, TableState
from lakehouse_ingest.writers.iceberg import FileOptions

# Without `event_time` in the settings the first of these fields is it; else the record's own timestamp.
USUAL_EVENT_TIMES = (EVENT_TIME, "ts_ms")
FIELD, UNIT = "lakehouse.event-time", "lakehouse.event-time-unit"
GUESSED = "guessed "  # before a unit that the magnitude told


@dataclass(frozen=True)
class Planned:
    """A plan, and whether it may make a table: not while the records seen so far tell too little."""

    plan: TablePlan
    settled: bool = True


def plan_from_settings(table: str, settings: TableSettings) -> tuple[ColumnPlan, ...]:
    columns = tuple(declared(each.name, each.type, required=each.required) for each in settings.columns)
    names = [column.name for column in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsRefused(f"the column {twice} is declared twice for table {table}")
    if ours := next((name for name in names if name in TAKEN), None):
        raise SettingsRefused(f"the column name {ours} is taken: it is one of ours ({', '.join(TAKEN)})")
    if columns and settings.event_time and settings.event_time not in names:
        raise SettingsRefused(
            f"`event_time` names {settings.event_time}, which is not among the columns of table {table}"
        )
    if EVENT_TIME in names and settings.event_time not in (None, EVENT_TIME):
        raise SettingsRefused(f"the column name {EVENT_TIME} is taken by the time found in {settings.event_time}")
    return columns


def plan_from_table(state: TableState, settings: TableSettings) -> TablePlan | None:
    """None when the table can't tell how its event times were read; then the records must."""
    declared_columns = plan_from_settings(state.name, settings)
    field = state.properties.get(FIELD)
    if field is None:
        field = _event_time_field(settings, [column.name for column in state.columns]) or ""
    unit = state.properties.get(UNIT) or settings.event_time_unit
    if field and unit == "auto":
        return None
    found = tuple(
        from_table(column.name, column.type, column.doc, required=column.required)
        for column in state.columns
        if column.name != SOURCE and (column.name != EVENT_TIME or field == EVENT_TIME)
    )
    types = {column.name: column for column in found}
    for column in declared_columns:
        there = types.get(column.name)
        if there and column.name != EVENT_TIME and there.iceberg.replace(" ", "") != column.iceberg.replace(" ", ""):
            raise TableChanged(
                f"the column {column.name} of {state.name} is {there.iceberg}, the settings say {column.iceberg}:"
                " change the settings, or name another table"
            )
    return TablePlan(
        state.name,
        declared_columns or found,
        field or None,
        unit.removeprefix(GUESSED),
        not unit.startswith(GUESSED),
    )


def plan_from_records(table: str, settings: TableSettings, records: DataFrame) -> Planned:
    """Looks at the records of the first batch: their fields unless declared, and the unit of their event times."""
    columns = plan_from_settings(table, settings)
    if not columns:
        fields = [(name, text) for name, kind in json_object.infer(records) if (text := to_iceberg(kind))]
        names = [name for name, _ in fields]
        event_time = _event_time_field(settings, names)
        columns = inferred(fields, () if event_time == EVENT_TIME else (EVENT_TIME,))
        if not columns:
            return Planned(TablePlan(table, (), None, "iso"), settled=False)
        if event_time is not None and event_time not in names:
            known = ", ".join(names[:20])
            raise SettingsRefused(
                f"`event_time` names {event_time}, and no record so far has such a field; there are {known}"
            )
    event_time = _event_time_field(settings, [column.field for column in columns])
    # As text, whatever it is: a column of that name becomes the time itself.
    columns = tuple(
        replace(column, iceberg="timestamptz", name=EVENT_TIME) if column.field == event_time == EVENT_TIME else column
        for column in columns
    )
    if event_time is None or settings.event_time_unit != "auto":
        return Planned(TablePlan(table, columns, event_time, settings.event_time_unit))
    unit = unit_of(json_object.decode(records, columns), event_time)
    return Planned(TablePlan(table, columns, event_time, unit or "ms", unit_was_told=False), settled=unit is not None)


def _event_time_field(settings: TableSettings, names: Sequence[str]) -> str | None:
    return settings.event_time or next((name for name in USUAL_EVENT_TIMES if name in names), None)


def spec(plan: TablePlan, settings: TableSettings) -> TableSpec:
    columns = [
        Column(each.name, each.iceberg, each.required, each.doc) for each in plan.columns if each.name != EVENT_TIME
    ]
    columns += [Column(EVENT_TIME, "timestamptz"), Column(SOURCE, SOURCE_TYPE)]
    names = {column.name for column in columns}
    partitions, sort = partitions_of(settings), tuple(Sort.parse(each) for each in settings.sort_by)
    for setting, wanted in (("partition_by", partitions), ("sort_by", sort)):
        for each in wanted:
            if each.column not in names:
                raise SettingsRefused(
                    f"`{setting}` names {each.column}, which is no column of {plan.table}: {', '.join(sorted(names))}"
                )
    properties = {
        **FileOptions.of(settings).properties(),
        FIELD: plan.event_time or "",
        UNIT: plan.unit if plan.unit_was_told else f"{GUESSED}{plan.unit}",
        **settings.properties,
    }
    return TableSpec(plan.table, tuple(columns), partitions, sort, properties)


def partitions_of(settings: TableSettings) -> tuple[Partition, ...]:
    try:
        return tuple(Partition.parse(each) for each in settings.partition_by)
    except ValueError as refusal:
        raise SettingsRefused(f"the setting `partition_by` can't be understood: {refusal}") from None


def check_layout(state: TableState, settings: TableSettings) -> None:
    """Refuses before anything is written."""
    wanted, found = partitions_of(settings), state.partitions
    if [(each.column, each.transform) for each in wanted] != [(each.column, each.transform) for each in found]:
        raise TableChanged(
            f"the table {state.name} is partitioned by [{', '.join(map(str, found))}],"
            f" the settings say [{', '.join(map(str, wanted))}]: change `partition_by`, or name another table"
        )


def additions(state: TableState, plan: TablePlan, settings: TableSettings) -> list[tuple[str, Column]]:
    """Columns that the plan has and the table lacks."""
    there = {column.name for column in state.columns}
    return [("", column) for column in spec(plan, settings).columns if column.name not in there]


def new_fields(plan: TablePlan, records: DataFrame) -> list[tuple[str, Column]]:
    """Columns for fields that these records have and the table lacks, nested ones too; runs over the records."""
    known = {column.field: column for column in plan.columns}
    taken = {EVENT_TIME, *(column.name for column in plan.columns)}
    found: list[tuple[str, Column]] = []
    for name, kind in json_object.infer(records):
        column = known.get(name)
        if column is not None:
            found += _nested(column.name, T.DataType.fromDDL(column.spark), kind)
        elif text := to_iceberg(kind):
            (new,) = inferred([(name, text)], taken)
            taken.add(new.name)
            found.append(("", Column(new.name, text, doc=new.doc)))
    return found


def _nested(path: str, there: T.DataType, seen: T.DataType) -> list[tuple[str, Column]]:
    match there, seen:
        case T.ArrayType(), T.ArrayType():
            return _nested(f"{path}.element", there.elementType, seen.elementType)
        case T.StructType(), T.StructType():
            inner: Mapping[str, T.DataType] = {field.name: field.dataType for field in there.fields}
            found: list[tuple[str, Column]] = []
            for field in seen.fields:
                if field.name in inner:
                    found += _nested(f"{path}.{field.name}", inner[field.name], field.dataType)
                elif text := to_iceberg(field.dataType):
                    found.append((path, Column(field.name, text)))
            return found
    return []
