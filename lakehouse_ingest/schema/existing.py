"""The table plan of an existing table, checked against the settings."""

import re
from collections.abc import Collection
from dataclasses import replace

from catalog import Add, TableState, bare
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.ledger.keys import EVENT_TIME_FIELD, EVENT_TIME_UNIT, GUESSED
from lakehouse_ingest.records import RESCUED, SOURCE
from lakehouse_ingest.schema.column_types import QUOTED, is_written
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan, declared, from_table
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.declared import event_time_field, plan_from_settings, spec
from lakehouse_ingest.schema.layout import derived_of, truncated
from lakehouse_ingest.settings import TableSettings


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
