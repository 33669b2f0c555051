"""Plan a table from what was seen in its first records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog import Contract
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.schema.column_types import DEEPEST
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, RefusedField, TablePlan, declared, named
from lakehouse_ingest.schema.contract import aside_of
from lakehouse_ingest.schema.declared import USUAL_EVENT_TIMES, event_time_field, plan_from_settings, refuse_own
from lakehouse_ingest.schema.layout import derived_of, partition_names, partitions_of, truncated
from lakehouse_ingest.schema.planning.inference import ALL, column_type, unit_of
from lakehouse_ingest.schema.planning.nested import beyond_hints
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.settings import TableSettings


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
