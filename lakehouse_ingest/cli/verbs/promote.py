"""`lakehouse-ingest promote`: a field that was rescued becomes a column, and rows that are there get their values."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lakehouse_ingest.cli.repair import repair
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.promote.promotion import Promotion, look
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import Settings


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
    looked = partial(look, settings, table=table, name=name, kind=kind)
    return repair(settings, looked, partial(_shown, done=yes), _plain, yes=yes, jars=jars, as_json=as_json)


def _shown(found: Promotion, *, done: bool) -> Iterator[RenderableType]:
    name = ".".join(found.column)
    if found.added:
        yield Text(f"+ {name} {found.iceberg} in {found.table}")
    else:
        yield Text(f"{found.table} has the column {name} {found.iceberg} already.")
    yield Text(
        f"{many(found.rows, 'row has', 'rows have')} it in `_rescued`;"
        f" the column takes {found.fitting:,} of these values."
    )
    if found.rows > found.fitting:
        yield Text("The others stay where they are; --type names another type for a new column.")
    if done:
        yield Text(f"{many(found.filled, 'row was', 'rows were')} filled.")


def _plain(found: Promotion) -> dict[str, Any]:
    return {
        "table": found.table,
        "field": ".".join(found.path),
        "column": ".".join(found.column),
        "type": found.iceberg,
        "new": found.added is not None,
        "rows": found.rows,
        "fitting": found.fitting,
        "filled": found.filled,
    }
