"""`lakehouse-ingest files`: the files that hold the rows of tables now, for engines that know only files. No Spark."""

import json
from collections.abc import Iterator
from pathlib import Path

import typer

from lakehouse_ingest.catalog_access import connection_of
from lakehouse_ingest.commands.status import reached
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Lake, LiveFile

DATA = "data"


def files(
    settings: Settings,
    table: str | None,
    *,
    snapshot: int | None = None,
    deletes: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> None:
    """A line each, as they are found: how many there are does not matter."""
    if snapshot is not None and table is None:
        raise SettingsRefused("a snapshot is one of a single table: name the table")
    with reached(settings, jars) as uri:
        lake = Lake(connection_of(settings.catalog, settings.s3, uri), settings.name)
        namespace = settings.catalog.namespace
        names = lake.names_in(namespace) if table is None else [table if "." in table else f"{namespace}.{table}"]
        for name, file in listed(lake, names, snapshot, deletes=deletes):
            typer.echo(_as_json(name, file) if as_json else f"{file.content}\t{file.path}" if deletes else file.path)


def listed(
    lake: Lake, tables: list[str], snapshot: int | None = None, *, deletes: bool = False
) -> Iterator[tuple[str, LiveFile]]:
    for table in tables:
        for file in lake.live_files(table, snapshot, deletes=deletes):
            yield table, file


def _as_json(table: str, file: LiveFile) -> str:
    return json.dumps({"table": table, **vars(file)})
