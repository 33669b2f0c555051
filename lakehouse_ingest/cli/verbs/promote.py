"""`lakehouse-ingest promote`: a field that was set aside becomes a column, and rows that are there get their values.

Nothing is changed without `--yes`. Then the column is added, and the files that hold such values are written anew, in
one commit that leaves every mark of the ledger as it is; a pipeline that runs fills the column from its next batch on.
Should it end in between, or the pipeline have set more aside meanwhile: run again, and it goes on.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.json_values import (
    covered,
    fitted,
    found_at,
    parts_of,
    put_at,
    type_of,
    value_of,
    written,
)
from lakehouse_ingest.records import RESCUED
from lakehouse_ingest.schema.columns import ColumnPlan, declared, from_table
from lakehouse_ingest.schema.names import told_apart
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import WRITTEN_FORMAT, Add, Column, Lake, TableState, arrow_type, fields_of
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.clients import connection_of

ROUNDS = 5  # looks for what was set aside while we wrote
SHOWN = 10


@dataclass
class Promotion:
    """One field of one table."""

    lake: Lake
    table: str
    path: tuple[str, ...]  # of the field, in what was set aside
    column: tuple[str, ...]  # and of its column
    iceberg: str
    doc: str | None = None
    added: Column | None = None  # None: it is there
    rows: int = 0  # that have the field set aside
    fitting: int = 0  # of these the ones whose value the column takes
    filled: int = field(default=0)
    between: tuple[int, int] | None = None  # what a declared range leaves of the type

    def takes(self, value: Any, kind: pa.DataType) -> bool:
        try:
            found = fitted(value, kind)
        except ValueError:
            return False
        return self.between is None or found is None or self.between[0] <= found <= self.between[1]


def promote(
    settings: Settings,
    table: str,
    name: str,
    *,
    kind: str | None = None,
    yes: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: always 0; what is wrong is raised."""
    if not (table and name):
        raise SettingsRefused("--table and --field each need a name")
    with catalog_at(settings, jars) as uri:
        connection = connection_of(settings.catalog, settings.s3, uri)
        lake = Lake(connection, settings.identity_of(settings.streams[0]), settings.catalog.publish)
        full = table if "." in table else f"{settings.catalog.namespace}.{table}"
        wanted = _looked(lake, full, name, kind)
        if yes:
            _carry_out(wanted)
    if as_json:
        say(json.dumps(_plain(wanted, done=yes), indent=2))
    else:
        _say(Terminal(soft_wrap=True), wanted, done=yes)
    return 0


# -- what would be done -----------------------------------------------------------------------------------


def _looked(lake: Lake, table: str, name: str, kind: str | None) -> Promotion:
    state = lake.find(table)
    if state is None:
        raise SettingsRefused(f"there is no table {table}: --table names one of `catalog.namespace`, or namespace.name")
    if not any(each.name == RESCUED for each in state.columns):
        raise SettingsRefused(f"the table {table} has no column {RESCUED}, so nothing of it was ever set aside")
    if state.format_version > WRITTEN_FORMAT:
        raise SettingsRefused(
            f"{table} has format version {state.format_version}, and files of that are exchanged by engines only:"
            " fill a column of your own there, by SQL"
        )
    # A key with dots is a name as it is, where there is such a key.
    is_name = "." not in name or any(name in parts for parts in _aside(lake, table))
    path = (name,) if is_name else tuple(name.split("."))
    promotion = _planned(lake, state, path, kind, _values(lake, table, path))
    arrow = arrow_type(promotion.iceberg)
    counted = Counter(promotion.takes(value, arrow) for value in _values(lake, table, path))
    if promotion.added and not counted:
        there = ", ".join(sorted({key for parts in _aside(lake, table) for key in parts})[:SHOWN]) or "nothing"
        raise SettingsRefused(f"no row of {table} has a field {name} set aside; there is {there}")
    return replace(promotion, rows=counted.total(), fitting=counted[True])


def _aside(lake: Lake, table: str) -> Iterator[dict[str, str]]:
    """What was set aside of each row; read anew each time, as no more than a file of it has to fit in memory."""
    for rows in lake.rows_with(table, [RESCUED], RESCUED):
        yield from (parts_of(text.as_py()) for text in rows[RESCUED])


def _values(lake: Lake, table: str, path: Sequence[str]) -> Iterator[Any]:
    return (found for parts in _aside(lake, table) if (found := _value(parts, path)) is not None)


def _planned(
    lake: Lake, state: TableState, path: tuple[str, ...], kind: str | None, values: Iterable[Any]
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
    """A file that is written anew stays in its partition: who asks for the value would be shown none of its rows."""
    column = ".".join(way)
    of = [each for each in state.partitions if f"{each.column}.".startswith(f"{column}.") and each.transform != "void"]
    if of:
        raise SettingsRefused(
            f"{column} says in which partition of {state.name} a row lies ({of[0]}), and rows stay where they are:"
            " without this partition, and with the files rewritten, it can be promoted"
        )


def _inside(kind: str | None, name: str) -> str | None:
    """The type of a struct's field; None where it has none such."""
    if kind is None or not kind.startswith("struct<"):
        raise SettingsRefused(f"--field leads to {name} through what is no struct: only what is in one can be promoted")
    return fields_of(kind).get(name)


def _value(parts: dict[str, str], path: Sequence[str]) -> Any:
    return found_at(value_of(parts[path[0]]), path[1:]) if path[0] in parts else None


# -- the doing of it --------------------------------------------------------------------------------------


def _carry_out(wanted: Promotion) -> None:
    if wanted.added:
        _, plan = wanted.lake.follow(wanted.table, [Add(".".join(wanted.column[:-1]), wanted.added)])
        if plan.refusals:
            raise SettingsRefused(f"{wanted.table} takes no such column: {plan.refusals[0]}")
    arrow = arrow_type(wanted.iceberg)
    for _ in range(ROUNDS):
        filled = wanted.lake.change_rows(
            wanted.table, RESCUED, lambda rows: _filled(rows, wanted, arrow), ".".join(wanted.path)
        )
        if not filled:
            return
        wanted.filled += filled


def _filled(rows: pa.Table, wanted: Promotion, kind: pa.DataType) -> tuple[pa.Table, int] | None:
    """The rows of a file with the column filled, and how many were; none where there is nothing to fill it with."""
    root, *inside = wanted.column
    aside, values = rows[RESCUED].to_pylist(), rows[root].to_pylist()
    filled = 0
    for number, text in enumerate(aside):
        parts = parts_of(text) if text is not None else {}
        value = _value(parts, wanted.path)
        if value is None or found_at(values[number], inside) is not None or not wanted.takes(value, kind):
            continue
        values[number] = put_at(values[number], inside, fitted(value, kind))
        if covered(value_of(parts[wanted.path[0]]), values[number]):
            del parts[wanted.path[0]]
            aside[number] = written(parts)
        filled += 1
    if not filled:
        return None
    for name, column in ((root, values), (RESCUED, aside)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
    return rows, filled


# -- what is said -----------------------------------------------------------------------------------------


def _say(console: Terminal, wanted: Promotion, *, done: bool) -> None:
    name = ".".join(wanted.column)
    if wanted.added:
        console.print(f"+ {name} {wanted.iceberg} in {wanted.table}")
    else:
        console.print(f"{wanted.table} has the column {name} {wanted.iceberg} already.")
    console.print(f"{wanted.rows:,} rows have it set aside; the column takes {wanted.fitting:,} of these values.")
    if wanted.rows > wanted.fitting:
        console.print("The others stay where they are; --type names another type for a column that is new.")
    if done:
        console.print(f"{wanted.filled:,} rows were filled.")
    else:
        console.print("\nNothing has been changed. --yes does it.")


def _plain(wanted: Promotion, *, done: bool) -> dict[str, Any]:
    return {
        "table": wanted.table,
        "field": ".".join(wanted.path),
        "column": ".".join(wanted.column),
        "type": wanted.iceberg,
        "new": wanted.added is not None,
        "rows": wanted.rows,
        "fitting": wanted.fitting,
        "filled": wanted.filled if done else 0,
    }
