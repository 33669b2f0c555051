"""The plan of a table: as the settings declare it, from what its first records hold, or from the table that exists.

`spec` says how a table is created from its plan.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog import Add, Column, Contract, Sort, TableSpec, TableState, bare
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.ledger.keys import EVENT_TIME_FIELD, EVENT_TIME_UNIT, GUESSED, PART_OF_TIME, RESCUED_DOC
from lakehouse_ingest.records import RESCUED, SOURCE
from lakehouse_ingest.schema.column_types import DEEPEST, QUOTED, is_written
from lakehouse_ingest.schema.columns import (
    EVENT_TIME,
    SOURCE_TYPE,
    TAKEN,
    ColumnPlan,
    RefusedField,
    TablePlan,
    declared,
    from_table,
    named,
)
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.layout import (
    TIME_PARTS,
    FileOptions,
    check_layout_names,
    derived_of,
    partition_names,
    partitions_of,
    truncated,
)
from lakehouse_ingest.schema.planning.inference import ALL, column_type, unit_of
from lakehouse_ingest.schema.planning.nested import beyond_hints
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.settings import TableSettings

# Without `event_time` in the settings we take the first of these fields, or else the record's own timestamp.
USUAL_EVENT_TIMES = (EVENT_TIME, "ts_ms")


# -- settings ---------------------------------------------------------------------------------------------


def plan_from_settings(table: str, settings: TableSettings) -> tuple[ColumnPlan, ...]:
    columns = tuple(declared(each.name, each.type, required=each.required) for each in settings.columns)
    names = [column.name for column in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsRefused(f"the column {twice} is declared twice for table {table}; remove one of them")
    if ours := next((name for name in names if name in TAKEN), None):
        raise SettingsRefused(
            f"the column name {ours} of table {table} is reserved, like {', '.join(TAKEN)}; choose another name"
        )
    if columns and settings.event_time and settings.event_time not in names:
        raise SettingsRefused(
            f"`event_time` names {settings.event_time}, which is not among the columns of table {table}; declare it, or"
            " name a declared column"
        )
    if EVENT_TIME in names and settings.event_time not in (None, EVENT_TIME):
        raise SettingsRefused(
            f"the column name {EVENT_TIME} is taken by the time found in {settings.event_time}; choose another name"
        )
    if columns and settings.hints:
        raise SettingsRefused(
            f"`hints` are for columns taken from the data, and those of table {table} are declared; remove `hints` or"
            " `columns`"
        )
    for field, kind in settings.hints.items():
        declared(field, kind, required=False)
    if columns:
        check_layout_names(table, settings, {*names, EVENT_TIME, SOURCE, *derived_of(settings)})
    refuse_own(table, settings, names)
    return columns


def event_time_field(settings: TableSettings, names: Sequence[str]) -> str | None:
    return settings.event_time or next((name for name in USUAL_EVENT_TIMES if name in names), None)


def refuse_own(table: str, settings: TableSettings, names: Collection[str]) -> None:
    if own := next((each for each in settings.partition_by if each in TIME_PARTS and each in names), None):
        raise SettingsRefused(
            f"`partition_by` means the {own} of the event time, but the records of {table} have a field {own} of their"
            f" own: write {own}({EVENT_TIME}), or `{own} as of_record` for the field"
        )


# -- first records ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """A plan, and whether the records seen so far say enough to create a table from it."""

    plan: TablePlan
    settled: bool = True
    refused: tuple[RefusedField, ...] = ()
    why: str = "no field or no event time has been seen in these records yet"  # why it is not settled
    beyond: bool = True  # True if these records may have fields without a column


def first_fields(settings: TableSettings, plan: TablePlan | None = None) -> frozenset[str]:
    """The fields that planning must know of, however many others a batch has: see `SeenFields`."""
    columns = [each.field for each in plan.columns] if plan else []
    return frozenset((*columns, *settings.hints, *USUAL_EVENT_TIMES, *filter(None, [settings.event_time])))


def plan_from_seen(
    table: str, settings: TableSettings, fields: Mapping[str, SeenValues], *, refuse_names: bool = False
) -> Planned:
    """Plan from the first batch: the columns, unless the settings declare them, and the unit of the event times."""
    columns, aside = plan_from_settings(table, settings), aside_of(settings)
    refused: tuple[RefusedField, ...] = ()
    if not columns:
        wanted = wanted_columns(fields, settings)
        names = [column.field for column in wanted]
        event_time = event_time_field(settings, names)
        if not wanted:
            return Planned(TablePlan(table, (), None, "iso", aside=aside), settled=False)
        if event_time is not None and event_time not in names:
            known = ", ".join(names[:20])
            raise SettingsRefused(
                f"`event_time` names {event_time}, and no record so far has this field; there are {known}"
            )
        ours = () if event_time == EVENT_TIME else (EVENT_TIME,)
        taken = (*derived_of(settings), *ours, *partition_names(settings))
        columns, refused = named_columns(
            wanted, fields, settings, event_time, taken, settings.max_columns, refuse_names=refuse_names
        )
        refused += beyond_hints(columns, fields, settings)
        refuse_own(table, settings, [column.name for column in columns])
    event_time = event_time_field(settings, [column.field for column in columns])
    # A field with the name of the event time column becomes that column.
    columns = tuple(
        replace(column, iceberg="timestamptz", name=EVENT_TIME) if column.field == event_time == EVENT_TIME else column
        for column in columns
    )
    plan = TablePlan(
        table,
        columns,
        event_time,
        settings.event_time_unit,
        aside=aside,
        derived=derived_of(settings),
        partitions=partition_names(settings),
        truncated=truncated(partitions_of(settings)),
    )
    if event_time is None or settings.event_time_unit != "auto":
        return Planned(plan, refused=refused)
    unit = next((unit_of(fields.get(event_time), each) for each in columns if each.field == event_time), None)
    return Planned(replace(plan, unit=unit or "ms", unit_was_given=False), settled=unit is not None, refused=refused)


def wanted_columns(
    fields: Mapping[str, SeenValues], settings: TableSettings, contract: Contract = ALL
) -> list[ColumnPlan]:
    """A column for each field whose type is known, still under the field's own name."""
    found = []
    for name, seen in sorted(fields.items()):
        if name in settings.hints:
            found.append(declared(name, settings.hints[name], required=False))
        elif text := column_type(seen, min(DEEPEST, settings.max_depth), (name,), contract):
            found.append(ColumnPlan(name, name, text))
    return found


def named_columns(
    wanted: Sequence[ColumnPlan],
    fields: Mapping[str, SeenValues],
    settings: TableSettings,
    event_time: str | None,
    taken: Iterable[str],
    room: int,
    *,
    refuse_names: bool,
) -> tuple[tuple[ColumnPlan, ...], tuple[RefusedField, ...]]:
    first = {event_time, *settings.hints}  # these get their room and their names before all others
    ordered = sorted(wanted, key=lambda column: column.field not in first)
    columns, refused = named(ordered, taken, room, settings.hints, refuse=refuse_names)
    if not settings.infer_times:
        return columns, refused
    # The event time's own field keeps its type: it may hold a date today and a number tomorrow.
    texts = {column.field for column in columns if column.iceberg == "string"} - first
    times = {field: kind for field in texts if (kind := fields[field].time_type)}
    return tuple(replace(each, iceberg=times.get(each.field, each.iceberg)) for each in columns), refused


# -- the table to create ----------------------------------------------------------------------------------


def spec(plan: TablePlan, settings: TableSettings) -> TableSpec:
    columns = [
        Column(each.name, each.iceberg, each.required, each.doc) for each in plan.columns if each.name != EVENT_TIME
    ]
    columns.append(Column(EVENT_TIME, "timestamptz"))
    columns += [Column(each, "string", doc=f"{each}{PART_OF_TIME}") for each in plan.derived]
    if settings.rescues:
        columns.append(Column(RESCUED, "string", doc=RESCUED_DOC))
    columns.append(Column(SOURCE, SOURCE_TYPE))
    check_layout_names(plan.table, settings, {column.name for column in columns})
    partitions, sort = partitions_of(settings), tuple(Sort.parse(each) for each in settings.sort_by)
    plainly = {"write.object-storage.enabled": "false"} if settings.hive_directories else {}
    properties = {**FileOptions.of(settings).properties(), **plainly, **event_time_of(plan), **settings.properties}
    return TableSpec(plan.table, tuple(columns), partitions, sort, properties)


def event_time_of(plan: TablePlan) -> dict[str, str]:
    """Properties that say how the event time is read. Without them we would take our own column for a field."""
    unit = plan.unit if plan.unit_was_given else f"{GUESSED}{plan.unit}"
    return {EVENT_TIME_FIELD: plan.event_time or "", EVENT_TIME_UNIT: unit}


# -- an existing table ------------------------------------------------------------------------------------


def plan_from_table(state: TableState, settings: TableSettings) -> TablePlan | None:
    """The plan, or None if the table does not say how its event times were read. Then the records have to show it."""
    declared_columns = plan_from_settings(state.name, settings)
    field = state.properties.get(EVENT_TIME_FIELD)
    if field is None:
        field = event_time_field(settings, [column.name for column in state.columns]) or ""
    unit = state.properties.get(EVENT_TIME_UNIT) or settings.event_time_unit
    if field and unit == "auto":
        return None
    if settings.rescues and any(each.name == RESCUED and each.type != "string" for each in state.columns):
        raise TableChanged(
            f"the column {RESCUED} of {state.name} is not text, but the contract writes JSON to it; rename that column"
        )
    derived = derived_of(settings)
    _check_writable(state, derived)
    found = tuple(
        from_table(column.name, bare(column.type), column.doc, required=column.required)
        for column in state.columns
        if column.name not in (SOURCE, RESCUED, *derived) and (column.name != EVENT_TIME or field == EVENT_TIME)
    )
    types = {column.name: column for column in found}
    for column in declared_columns:
        _check_type(state.name, types.get(column.name), column)
    return TablePlan(
        state.name,
        declared_columns or tuple(_as_hinted(state.name, column, settings) for column in found),
        field or None,
        unit.removeprefix(GUESSED),
        not unit.startswith(GUESSED),
        aside_of(settings),
        derived,
        state.partition_names,
        truncated(state.partitions),
    )


def _check_writable(state: TableState, derived: Collection[str]) -> None:
    for column in state.columns:
        if column.name != SOURCE and not is_written(bare(column.type)):
            raise TableChanged(
                f"the column {column.name} of {state.name} is {column.type[:60]}, a type that this program does not"
                " write; name another table"
            )
        if re.search(r"\brequired\s+\w", re.sub(QUOTED, "", column.type)):
            # A missing value would be found only when the row is written: too late for a dead letter.
            raise TableChanged(
                f"the column {column.name} of {state.name} has required fields inside, and records may lack them; make"
                " them optional, or name another table"
            )
        if column.name in derived and column.type != "string":
            raise TableChanged(
                f"the column {column.name} of {state.name} is {column.type}, and `hive_directories` needs it as text;"
                " name another table"
            )


def plan_that_stands(state: TableState, settings: TableSettings) -> TablePlan:
    """The plan of an existing table, no matter who created it."""
    if (plan := plan_from_table(state, settings)) is None:
        raise SettingsRefused(
            f"the table {state.name} does not say in which unit its event times are; set `event_time_unit`"
        )
    return plan


def _as_hinted(table: str, there: ColumnPlan, settings: TableSettings) -> ColumnPlan:
    if there.field not in settings.hints or there.name == EVENT_TIME:
        return there
    column = declared(there.field, settings.hints[there.field], required=False)
    _check_type(table, there, column)
    return replace(column, name=there.name, required=there.required)


def _check_type(table: str, there: ColumnPlan | None, wanted: ColumnPlan) -> None:
    if there is None or there.name == EVENT_TIME:
        return
    if there.iceberg.replace(" ", "") != wanted.iceberg.replace(" ", ""):
        raise TableChanged(
            f"the column {there.name} of {table} is {there.iceberg}, the settings say {wanted.iceberg};"
            " change the settings, or name another table"
        )


def additions(state: TableState, plan: TablePlan, settings: TableSettings) -> list[Add]:
    """Columns that the plan has and the table lacks."""
    there = {column.name for column in state.columns}
    missing = [column for column in spec(plan, settings).columns if column.name not in there]
    if met := next((column.name for column in missing if column.name in state.partition_names), None):
        raise TableChanged(
            f"{state.name} needs a column {met}, but has or had a partition field of that name, and Iceberg does not"
            " allow both; name another table"
        )
    return [Add("", column) for column in missing]
