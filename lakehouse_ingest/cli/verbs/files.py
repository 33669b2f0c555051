"""`lakehouse-ingest files`: the files that hold the rows of tables now, for engines that know only files. No Spark."""

import json
from collections.abc import Iterator
from pathlib import Path

from lakehouse_ingest.environment.terminal import say
from lakehouse_ingest.errors import LakehouseError, SettingsRefused
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import LiveFile, PipelineTables
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.pipeline_tables import tables_of

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
    """Print one line for each file as it is found, so that memory does not grow with their number. Tables that can't
    be read are named at the end, after the files of all others."""
    if snapshot is not None and table is None:
        raise SettingsRefused("--snapshot needs a table, because a snapshot belongs to one: name it")
    with catalog_at(settings, jars) as uri:
        lake = tables_of(settings, uri)
        namespace = settings.catalog.namespace
        names = lake.names_in(namespace) if table is None else [table if "." in table else f"{namespace}.{table}"]
        unread: list[LakehouseError] = []
        for name in names:
            try:
                for _, file in listed(lake, [name], snapshot, deletes=deletes):
                    kind = f"{file.content}\t" if deletes else ""
                    say(_as_json(name, file) if as_json else f"{kind}{file.path}")
            except LakehouseError as failure:
                if table is not None:
                    raise
                unread.append(failure)
    if unread:
        raise type(unread[0])(
            f"{unread[0]}; not listed, or not all of it: {len(unread)} of {many(len(names), 'table')}"
        )


def listed(
    lake: PipelineTables, tables: list[str], snapshot: int | None = None, *, deletes: bool = False
) -> Iterator[tuple[str, LiveFile]]:
    for table in tables:
        for file in lake.live_files(table, snapshot, deletes=deletes):
            yield table, file


def _as_json(table: str, file: LiveFile) -> str:
    return json.dumps({"table": table, **vars(file)})
