"""Plan new columns for an existing table."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from lakehouse_ingest.schema.column_types import are_names, to_iceberg, width
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
from lakehouse_ingest.schema.planning.growth import Growth
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.tables import Column, Contract, Rule
from lakehouse_ingest.tables.first_batch import allowed, named_columns, wanted_columns
from lakehouse_ingest.tables.unseen_fields import Fields, Where, beyond_hints, unhidden, unseen

__all__ = ["Growth", "new_fields"]


def new_fields(
    plan: TablePlan,
    settings: TableSettings,
    form: Format,
    fields: Fields,
    rows: DataFrame,
    *,
    refuse_names: bool = False,
) -> Growth:
    """Columns for fields, also nested ones, that these rows have and the table lacks."""
    contract = contract_of(settings)
    if Rule.EVOLVE not in {contract.rule, *contract.columns.values()}:
        return Growth([], ())
    known = {column.field: column for column in plan.columns}
    growing = {
        field: column for field, column in known.items() if "struct<" in column.iceberg and field not in settings.hints
    }
    fields = unhidden(form, plan.columns, growing, fields, rows)
    room = settings.max_columns - sum(width(column.iceberg) for column in plan.columns)
    limited = settings.max_new is not None and settings.max_new < room
    room = min(room, settings.max_new or room)
    within = _within(growing, fields, room, contract, settings.max_depth)
    room -= sum(width(column.type) for _, column in within.columns)
    new = [(name, kind) for name, kind in fields if name not in known and contract.rule_of(name) is Rule.EVOLVE]
    taken = (EVENT_TIME, *plan.derived, *plan.partitions, *(column.name for column in plan.columns))
    wanted = wanted_columns(form, new, rows, settings, contract)
    columns, more = named_columns(form, wanted, rows, settings, plan.event_time, taken, room, refuse_names=refuse_names)
    beyond = beyond_hints(form, (*plan.columns, *columns), fields, rows, settings)
    refused = (*within.refused, *more, *beyond)
    if limited:
        refused = tuple(replace(each, why=TOO_MANY_NEW) if each.why == TOO_MANY else each for each in refused)
    return Growth(
        [*within.columns, *(("", Column(each.name, each.iceberg, doc=each.doc)) for each in columns)],
        refused,
        (*within.whence, *(((), each.field) for each in columns)),
    )


def _within(growing: Mapping[str, ColumnPlan], fields: Fields, room: int, contract: Contract, max_depth: int) -> Growth:
    """New fields inside objects that have a column already."""
    found: list[tuple[str, Column]] = []
    whence: list[tuple[Where, str]] = []
    refused: list[RefusedField] = []
    used: dict[Where, set[str]] = {}
    for field, kind in fields:
        if field not in growing:
            continue
        for where, path, siblings, name, new in unseen(growing[field], kind):
            kept = allowed(new, (field, *path, name), contract)
            if (text := to_iceberg(kept, max_depth - len(where))) is None:
                continue
            if contract.rule_of(field, *path, name) is not Rule.EVOLVE:
                continue
            text = text if width(text) <= room else "string"
            taken = used.setdefault(where, {each.casefold() for each in siblings})
            if why := _why_not(name, taken, room):
                refused.append(RefusedField(where, name, why))
                continue
            found.append((".".join((growing[field].name, *path)), Column(name, text)))
            whence.append((where, name))
            taken.add(name.casefold())
            room -= width(text)
    return Growth(found, tuple(refused), tuple(whence))


def _why_not(name: str, taken: Collection[str], room: int) -> str | None:
    if not are_names([name]):
        return NO_NAME
    if name.casefold() in taken:
        return MEETS
    return None if room > 0 else TOO_MANY
