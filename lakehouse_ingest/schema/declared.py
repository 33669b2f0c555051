"""The table plan that the settings declare."""

from collections.abc import Collection, Sequence

from catalog import Column, Sort, TableSpec
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger.keys import EVENT_TIME_FIELD, EVENT_TIME_UNIT, GUESSED, PART_OF_TIME, RESCUED_DOC
from lakehouse_ingest.records import RESCUED, SOURCE
from lakehouse_ingest.schema.columns import EVENT_TIME, SOURCE_TYPE, TAKEN, ColumnPlan, TablePlan, declared
from lakehouse_ingest.schema.layout import TIME_PARTS, FileOptions, check_layout_names, derived_of, partitions_of
from lakehouse_ingest.settings import TableSettings

# Without `event_time` in the settings we take the first of these fields, or else the record's own timestamp.
USUAL_EVENT_TIMES = (EVENT_TIME, "ts_ms")


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


def refuse_own(table: str, settings: TableSettings, names: Collection[str]) -> None:
    if own := next((each for each in settings.partition_by if each in TIME_PARTS and each in names), None):
        raise SettingsRefused(
            f"`partition_by` means the {own} of the event time, but the records of {table} have a field {own} of their"
            f" own: write {own}({EVENT_TIME}), or `{own} as of_record` for the field"
        )
