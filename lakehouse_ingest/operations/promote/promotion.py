"""Promoting one field of one table: what it would become, how many rows have it, and doing it.

The column is added first. Then the files that hold such values are rewritten, in one commit that keeps every mark of
the ledger. A pipeline that runs fills the column from its next batch on. Promote again if the verb was interrupted, or
if the pipeline has rescued more in between: it goes on where it stopped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.promote.json_values import (
    covered,
    fitted,
    found_at,
    parts_of,
    put_at,
    type_of,
    value_of,
    written,
)
from lakehouse_ingest.operations.proposal import Proposal
from lakehouse_ingest.records import RESCUED
from lakehouse_ingest.schema.columns import ColumnPlan, declared, from_table
from lakehouse_ingest.schema.names import told_apart
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import REWRITTEN_FORMAT, Add, Column, PipelineTables, TableState, arrow_type, fields_of
from lakehouse_ingest.tables.pipeline_tables import tables_of

HOW = "Give --yes to do it."
ROUNDS = 5  # passes over the table, because the pipeline may rescue more values while we write
SHOWN = 10


@dataclass(frozen=True)
class Promotion:
    """One field of one table."""

    lake: PipelineTables
    table: str
    path: tuple[str, ...]  # of the field, in `_rescued`
    column: tuple[str, ...]  # and of its column
    iceberg: str
    doc: str | None = None
    added: Column | None = None  # None: it is there
    rows: int = 0  # that have the field in `_rescued`
    fitting: int = 0  # of these the ones whose value the column takes
    filled: int = 0
    between: tuple[int, int] | None = None  # the range that was declared for the column, if it is less than its type's

    def takes(self, value: Any, kind: pa.DataType) -> bool:
        try:
            found = fitted(value, kind)
        except ValueError:
            return False
        return self.between is None or found is None or self.between[0] <= found <= self.between[1]


def look(settings: Settings, uri: str, *, table: str, name: str, kind: str | None) -> Proposal[Promotion]:
    """`uri`: of the catalog; `name`: of the field; `kind`: the type of a new column, or None for that of its values."""
    lake = tables_of(settings, uri)
    full = table if "." in table else f"{settings.catalog.namespace}.{table}"
    promotion = promotion_of(lake, full, name, kind)
    return Proposal(promotion, says=HOW, apply=lambda: Proposal(_applied(promotion)))


# -- what it would become ---------------------------------------------------------------------------------


def promotion_of(lake: PipelineTables, table: str, name: str, kind: str | None) -> Promotion:
    state = lake.find(table)
    if state is None:
        raise SettingsRefused(f"there is no table {table}: --table names one of `catalog.namespace`, or namespace.name")
    if not any(each.name == RESCUED for each in state.columns):
        raise SettingsRefused(f"the table {table} has no column {RESCUED}, so no field of it was ever rescued")
    if state.format_version > REWRITTEN_FORMAT:
        raise SettingsRefused(
            f"{table} has format version {state.format_version}, whose files only engines can rewrite: fill a column"
            " of your own there, by SQL"
        )
    # If there is a key with dots, such a name means that key and no path.
    is_name = "." not in name or any(name in parts for parts in _rescued(lake, table))
    path = (name,) if is_name else tuple(name.split("."))
    promotion = planned(lake, state, path, kind, _values(lake, table, path))
    arrow = arrow_type(promotion.iceberg)
    counted = Counter(promotion.takes(value, arrow) for value in _values(lake, table, path))
    if promotion.added and not counted:
        there = ", ".join(sorted({key for parts in _rescued(lake, table) for key in parts})[:SHOWN]) or "nothing"
        raise SettingsRefused(f"no row of {table} has a rescued field {name}; there is {there}")
    return replace(promotion, rows=counted.total(), fitting=counted[True])


def _rescued(lake: PipelineTables, table: str) -> Iterator[dict[str, str]]:
    """The rescued fields of each row. They are read again each time, so that no more than one file is in memory."""
    for rows in lake.rows_with(table, [RESCUED], RESCUED):
        yield from (parts_of(text.as_py()) for text in rows[RESCUED])


def _values(lake: PipelineTables, table: str, path: Sequence[str]) -> Iterator[Any]:
    return (found for parts in _rescued(lake, table) if (found := _value(parts, path)) is not None)


def planned(
    lake: PipelineTables, state: TableState, path: tuple[str, ...], kind: str | None, values: Iterable[Any]
) -> Promotion:
    columns = [from_table(each.name, each.type, each.doc, required=each.required) for each in state.columns]
    root = next((each for each in columns if each.field == path[0]), None)
    if root is None and len(path) > 1:
        raise SettingsRefused(f"--field {'.'.join(path)}: {state.name} has no column {path[0]}; promote that one first")
    way = path if root is None else (root.name, *path[1:])
    there = root.iceberg if root else None
    for name in path[1:]:
        there = _inside(there, name)
    wanted = declared(path[-1], kind, required=False, by="--type gives") if kind else None
    if there is not None:
        _refuse_partition(state, way)
        if wanted and wanted.iceberg.replace(" ", "") != there.replace(" ", ""):
            raise SettingsRefused(f"{'.'.join(path)} is {there} in {state.name} already, not {wanted.iceberg}")
        return Promotion(lake, state.name, path, way, there, between=_range(root) if len(path) == 1 else None)
    wanted = wanted or ColumnPlan(path[-1], path[-1], type_of(values))
    if root is None:
        used = {name.casefold() for name in (*(each.name for each in state.columns), *state.partition_names)}
        wanted = replace(wanted, name=told_apart(path[0], used))
        way = (wanted.name,)
    added = Column(way[-1], wanted.iceberg, doc=wanted.doc)
    return Promotion(lake, state.name, path, way, wanted.iceberg, added=added, between=_range(wanted))


def _range(column: ColumnPlan | None) -> tuple[int, int] | None:
    return (column.low, column.high) if column and column.low is not None and column.high is not None else None


def _refuse_partition(state: TableState, way: Sequence[str]) -> None:
    """A rewritten file stays in its partition, so a query for the new value would find none of its rows."""
    column = ".".join(way)
    of = [each for each in state.partitions if f"{each.column}.".startswith(f"{column}.") and each.transform != "void"]
    if of:
        raise SettingsRefused(
            f"{column} says in which partition of {state.name} a row lies ({of[0]}), and rows stay where they are:"
            " drop this partition field and rewrite the files, then promote"
        )


def _inside(kind: str | None, name: str) -> str | None:
    """The type of a struct's field, or None if the struct has no such field."""
    if kind is None or not kind.startswith("struct<"):
        raise SettingsRefused(
            f"--field leads to {name} through a column that is not a struct: only structs have fields"
        )
    return fields_of(kind).get(name)


def _value(parts: dict[str, str], path: Sequence[str]) -> Any:
    return found_at(value_of(parts[path[0]]), path[1:]) if path[0] in parts else None


# -- doing it ---------------------------------------------------------------------------------------------


def _applied(promotion: Promotion) -> Promotion:
    lake, table = promotion.lake, promotion.table
    if promotion.added:
        _, plan = lake.change(table, [Add(".".join(promotion.column[:-1]), promotion.added)])
        if plan.refusals:
            raise SettingsRefused(f"{table} takes no such column: {plan.refusals[0]}")
    arrow, total = arrow_type(promotion.iceberg), 0
    for _ in range(ROUNDS):
        filled = lake.change_rows(
            table, RESCUED, lambda rows: _filled(rows, promotion, arrow), ".".join(promotion.path)
        )
        if not filled:
            break
        total += filled
    return replace(promotion, filled=total)


def _filled(rows: pa.Table, promotion: Promotion, kind: pa.DataType) -> tuple[pa.Table, int] | None:
    """The rows of a file with the column filled, and how many were filled; None if none of them can be."""
    root, *inside = promotion.column
    rescued, values = rows[RESCUED].to_pylist(), rows[root].to_pylist()
    filled = 0
    for number, text in enumerate(rescued):
        parts = parts_of(text) if text is not None else {}
        value = _value(parts, promotion.path)
        if value is None or found_at(values[number], inside) is not None or not promotion.takes(value, kind):
            continue
        values[number] = put_at(values[number], inside, fitted(value, kind))
        if covered(value_of(parts[promotion.path[0]]), values[number]):
            del parts[promotion.path[0]]
            rescued[number] = written(parts)
        filled += 1
    if not filled:
        return None
    for name, column in ((root, values), (RESCUED, rescued)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
    return rows, filled
