"""Pyiceberg's own catalog in a file. It does not wait for the disk: no test takes the power away from it."""

import sqlite3
from pathlib import Path
from typing import TypeVar, overload

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, event

FileCatalogKind = TypeVar("FileCatalogKind", bound=SqlCatalog)


@event.listens_for(Engine, "connect")
def _wait_for_no_disk(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")


@overload
def sqlite_catalog(folder: Path) -> SqlCatalog: ...


@overload
def sqlite_catalog(folder: Path, kind: type[FileCatalogKind]) -> FileCatalogKind: ...


def sqlite_catalog(folder: Path, kind: type[SqlCatalog] = SqlCatalog) -> SqlCatalog:
    """Its tables are in the folder too; several clients of one folder wait for each other."""
    return kind("lake", uri=f"sqlite:///{folder}/catalog.db?timeout=60", warehouse=f"file://{folder}")
