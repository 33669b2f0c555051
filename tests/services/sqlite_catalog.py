"""Pyiceberg's own catalog in a file. It does not wait for the disk: no test takes the power away from it."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def _wait_for_no_disk(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")


def sqlite_catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("lake", **kept_in(folder))


def kept_in(folder: Path) -> Mapping[str, str]:
    """Properties of a catalog whose tables are in the folder too; several clients of it wait for each other."""
    return {"uri": f"sqlite:///{folder}/catalog.db?timeout=60", "warehouse": f"file://{folder}"}
