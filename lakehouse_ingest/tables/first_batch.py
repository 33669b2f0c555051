"""Plan a table from its first records."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.schema.column_types import to_iceberg
from lakehouse_ingest.schema.columns import ELEMENT, EVENT_TIME, ColumnPlan, RefusedField, TablePlan, declared, named
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.declared import (
    event_time_field,
    plan_from_settings,
    refuse_own,
)
from lakehouse_ingest.schema.layout import (
    derived_of,
    partition_names,
)
from lakehouse_ingest.schema.planning.first_batch import Planned
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.shaping import unit_of
from lakehouse_ingest.tables import (
    FOLLOW,
    Contract,
    Rule,
)
from lakehouse_ingest.tables.unseen_fields import Fields, beyond_hints

__all__ = ["Planned", "allowed", "named_columns", "plan_from_records", "wanted_columns"]


def plan_from_records(
    table: str, settings: TableSettings, form: Format, fields: Fields, rows: DataFrame, *, refuse_names: bool = False
) -> Planned:
    """Plan from the first batch: the columns, unless the settings declare them, and the unit of the event times."""
    columns, aside = plan_from_settings(table, settings), aside_of(settings)
    refused: tuple[RefusedField, ...] = ()
    if not columns:
        wanted = wanted_columns(form, fields, rows, settings)
        names = [column.field for column in wanted]
        event_time = event_time_field(settings, names)
        if not wanted:
            return Planned(TablePlan(table, (), None, "iso", aside=aside), settled=False)
        if event_time is not None and event_time not in names:
            known = ", ".join(names[:20])
            raise SettingsRefused(
                f"`event_time` names {event_time}, and no record so far has this field; there are {known}"
            )
        taken = (
            *derived_of(settings),
            *(() if event_time == EVENT_TIME else (EVENT_TIME,)),
            *partition_names(settings),
        )
        room = settings.max_columns
        columns, refused = named_columns(
            form, wanted, rows, settings, event_time, taken, room, refuse_names=refuse_names
        )
        refused += beyond_hints(form, columns, fields, rows, settings)
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
    )
    if event_time is None or settings.event_time_unit != "auto":
        return Planned(plan, refused=refused)
    unit = unit_of(form.decode(rows, columns), event_time)
    return Planned(replace(plan, unit=unit or "ms", unit_was_given=False), settled=unit is not None, refused=refused)


# -- columns from the data --------------------------------------------------------------------------------


def wanted_columns(
    form: Format, fields: Fields, rows: DataFrame, settings: TableSettings, contract: Contract = FOLLOW
) -> list[ColumnPlan]:
    """A column for each field whose type is known, still under the field's own name."""
    mixed = [name for name, kind in fields if isinstance(kind, T.VariantType) and name not in settings.hints]
    usual = form.usual(rows, mixed) if mixed else {}
    found = []
    for name, kind in fields:
        if name in settings.hints:
            found.append(declared(name, settings.hints[name], required=False))
        elif text := to_iceberg(allowed(usual.get(name, kind), (name,), contract), settings.max_depth):
            found.append(ColumnPlan(name, name, text))
    return found


def named_columns(
    form: Format,
    wanted: Sequence[ColumnPlan],
    rows: DataFrame,
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
    # The event time's own field keeps its type: it may hold a date today and a number tomorrow.
    texts = [column.field for column in columns if column.iceberg == "string" and column.field not in first]
    times = form.times(rows, texts) if texts and settings.infer_times else {}
    return tuple(replace(each, iceberg=times.get(each.field, each.iceberg)) for each in columns), refused


def allowed(kind: T.DataType, path: tuple[str, ...], contract: Contract) -> T.DataType:
    """The type of a new field, without the nested fields that the contract does not allow."""
    match kind:
        case T.StructType():
            return T.StructType(
                [
                    T.StructField(field.name, allowed(field.dataType, (*path, field.name), contract))
                    for field in kind.fields
                    if contract.rule_of(*path, field.name) is Rule.EVOLVE
                ]
            )
        case T.ArrayType():
            return T.ArrayType(allowed(kind.elementType, (*path, ELEMENT), contract))
    return kind
