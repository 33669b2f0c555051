"""Plan new columns for an existing table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from catalog import Column, Contract, Rule
from lakehouse_ingest.schema.column_types import are_names, width
from lakehouse_ingest.schema.columns import (
    EVENT_TIME,
    MEETS,
    NO_NAME,
    TOO_MANY,
    TOO_MANY_NEW,
    ColumnPlan,
    RefusedField,
    TablePlan,
)
from lakehouse_ingest.schema.contract import contract_of
from lakehouse_ingest.schema.planning.inference import JSON_TEXT, column_type
from lakehouse_ingest.schema.planning.nested import NewField, Where, beyond_hints, new_within
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.schema.table_plans import named_columns, wanted_columns
from lakehouse_ingest.settings import TableSettings


@dataclass(frozen=True)
class Growth:
    """The fields of a batch for which the table has no column."""

    columns: list[tuple[str, Column]]  # each with the path of the object that it is added to; "" is the table
    refused: tuple[RefusedField, ...]
    whence: tuple[tuple[Where, str], ...] = ()  # the field of each column: the keys that lead to it, and its name


def new_fields(
    plan: TablePlan, settings: TableSettings, fields: Mapping[str, SeenValues], *, refuse_names: bool = False
) -> Growth:
    """Columns for fields, also nested ones, that were seen and that the table lacks."""
    contract = contract_of(settings)
    if Rule.EVOLVE not in {contract.rule, *contract.columns.values()}:
        return Growth([], ())
    room = settings.max_columns - sum(width(column.iceberg) for column in plan.columns)
    limited = settings.max_new is not None and settings.max_new < room
    room = room if settings.max_new is None else min(room, settings.max_new)
    within = _within(plan, settings, fields, room, contract)
    room -= sum(width(column.type) for _, column in within.columns)
    known = {column.field for column in plan.columns}
    new = {name: seen for name, seen in fields.items() if name not in known and contract.rule_of(name) is Rule.EVOLVE}
    taken = (EVENT_TIME, *plan.derived, *plan.partitions, *(column.name for column in plan.columns))
    wanted = wanted_columns(new, settings, contract)
    columns, more = named_columns(wanted, new, settings, plan.event_time, taken, room, refuse_names=refuse_names)
    refused = (*within.refused, *more, *beyond_hints((*plan.columns, *columns), fields, settings))
    if limited:
        refused = tuple(replace(each, why=TOO_MANY_NEW) if each.why == TOO_MANY else each for each in refused)
    return Growth(
        [*within.columns, *(("", Column(each.name, each.iceberg, doc=each.doc)) for each in columns)],
        refused,
        (*within.whence, *(((), each.field) for each in columns)),
    )


def _within(
    plan: TablePlan, settings: TableSettings, fields: Mapping[str, SeenValues], room: int, contract: Contract
) -> Growth:
    """New fields inside objects that have a column already."""
    found: list[tuple[str, Column]] = []
    whence: list[tuple[Where, str]] = []
    refused: list[RefusedField] = []
    used: dict[Where, set[str]] = {}
    for column, new in _candidates(plan, settings, fields):
        path = (column.field, *new.path, new.name)
        text = column_type(new.seen, settings.max_depth - len(new.where), path, contract, usual=False)
        if text is None or contract.rule_of(*path) is not Rule.EVOLVE:
            continue
        text = text if width(text) <= room else JSON_TEXT
        taken = used.setdefault(new.where, {each.casefold() for each in new.siblings})
        if why := _why_not(new.name, taken, room):
            refused.append(RefusedField(new.where, new.name, why))
            continue
        found.append((".".join((column.name, *new.path)), Column(new.name, text)))
        whence.append((new.where, new.name))
        taken.add(new.name.casefold())
        room -= width(text)
    return Growth(found, tuple(refused), tuple(whence))


def _candidates(
    plan: TablePlan, settings: TableSettings, fields: Mapping[str, SeenValues]
) -> list[tuple[ColumnPlan, NewField]]:
    growing = sorted((each for each in plan.columns if each.field not in settings.hints), key=lambda it: it.field)
    return [
        (column, new)
        for column in growing
        if column.field in fields and "struct<" in column.iceberg
        for new in new_within(column, fields[column.field])
    ]


def _why_not(name: str, taken: Collection[str], room: int) -> str | None:
    if not are_names([name]):
        return NO_NAME
    if name.casefold() in taken:
        return MEETS
    return None if room > 0 else TOO_MANY
