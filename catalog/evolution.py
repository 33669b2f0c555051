"""Columns added to a table while others read and write it."""

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from catalog.attempts import patiently
from catalog.commits import Requirements, Updates, commit
from catalog.connection import Lake
from catalog.errors import Conflict, OutcomeUnknown, Refused
from catalog.specs import Column, TableState
from catalog.states import state_of
from catalog.typenames import canonical, parse_type, type_text


def add_columns(lake: Lake, name: str, columns: Sequence[tuple[str, Column]]) -> TableState:
    """Add the columns below the paths of their parents ("" is the table itself), all in one commit.

    A path may lead through lists and maps (`items.element`, `tags.value`). A column that is there already
    with the same type is no error, so many may add it at once; one with another type is Refused.
    """
    for last in patiently():
        table = lake.table(name)
        with lake.calling(f"adding columns to table {name}"):
            missing = [(parent, column) for parent, column in columns if not _present(table.schema(), parent, column)]
            if not missing:
                return state_of(table)
            updates, requirements = _planned(table, missing)
        try:
            return commit(lake, table, "adding columns", requirements, updates)
        except (Conflict, OutcomeUnknown):
            # Another may have added them, or ours were heard without an answer: the next look tells.
            if last:
                raise
    raise AssertionError


def _present(schema: Schema, parent: str, column: Column) -> bool:
    path = f"{parent}.{column.name}" if parent else column.name
    try:
        found = schema.find_field(path)
    except ValueError:
        return False
    if type_text(found.field_type) != canonical(column.type):
        raise Refused(f"column {path} is there as {type_text(found.field_type)}, not as {column.type}")
    return True


def _planned(table: Table, columns: Sequence[tuple[str, Column]]) -> tuple[Updates, Requirements]:
    update = table.transaction().update_schema()
    for parent, column in columns:
        path = (parent, column.name) if parent else (column.name,)
        update.add_column(path, parse_type(column.type), doc=column.doc, required=column.required)
    return update._commit()  # noqa: SLF001 - the public way commits by itself
