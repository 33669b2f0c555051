"""Tables read back through the REST catalog: by pyiceberg and by DuckDB, each by its own means."""

import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tests.services.doors import client, token_at

EXTENSIONS = ("avro", "httpfs", "iceberg")
Coordinates = Counter[tuple[str, int, int]]
"""How often each topic, partition and offset is there."""


class Reader:
    """One namespace behind a REST catalog; `files`: Iceberg's properties of a store for the tables' files."""

    def __init__(self, uri: str, namespace: str, files: Mapping[str, str] | None = None) -> None:
        self.uri, self.namespace, self._files = uri, namespace, files
        self.catalog: Catalog = load_catalog("lake", **client(uri), **(files or {}))

    def table(self, name: str) -> Table:
        return self.catalog.load_table((self.namespace, name))

    def exists(self, name: str) -> bool:
        return self.catalog.table_exists((self.namespace, name))

    def by_pyiceberg(self, *names: str) -> Coordinates:
        found: Coordinates = Counter()
        for name in filter(self.exists, names):
            read = self.table(name).scan(selected_fields=("_source",)).to_arrow()
            found.update(_coordinates(row) for row in read.column("_source").to_pylist())
        return found

    def by_duckdb(self, *names: str) -> Coordinates:
        found: Coordinates = Counter()
        with self.duckdb() as connection:
            for name in filter(self.exists, names):
                read = connection.sql(
                    f'SELECT _source.topic, _source.partition, _source."offset" FROM lake.{self.namespace}.{name}'
                )
                found.update((str(topic), int(part), int(offset)) for topic, part, offset in read.fetchall())
        return found

    def duckdb(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return duckdb_at(self.uri, self._files)

    # -- what is behind a table ---------------------------------------------------------------------------

    def main(self, name: str) -> list[int]:
        """Main's snapshots, newest first."""
        table = self.table(name)
        at = table.metadata.refs.get("main")
        found: list[int] = []
        snapshot = table.snapshot_by_id(at.snapshot_id) if at else None
        while snapshot:
            found.append(snapshot.snapshot_id)
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        return found

    def folder(self, name: str) -> Path:
        return local(self.table(name).location())

    def files_of_main(self, name: str) -> set[Path]:
        return {local(task.file.file_path) for task in self.table(name).scan().plan_files()}

    def unpublished(self, name: str) -> set[Path]:
        """Data files that are in the table's folder, and that main does not know."""
        on_disk = data_files(self.folder(name))  # listed first: what is published meanwhile does not count
        return on_disk - self.files_of_main(name)


def data_files(folder: Path) -> set[Path]:
    return set((folder / "data").rglob("*.parquet"))


def is_whole(file: Path) -> bool:
    """False while somebody writes it. What is in a bucket is whole, or it would not be there."""
    if not file.exists():
        return True
    return file.read_bytes().endswith(b"PAR1") and file.stat().st_size > len(b"PAR1")


def local(location: str) -> Path:
    """Within a bucket: its key, as of a root."""
    return Path(unquote(urlparse(location).path))


def _coordinates(source: dict[str, Any]) -> tuple[str, int, int]:
    return source["topic"], source["partition"], source["offset"]


@contextmanager
def duckdb_at(uri: str, files: Mapping[str, str] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the catalog attached as `lake`; the extensions come from their wheels, not from the network."""
    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            connection.load_extension(str(_extension(name)))
        if files:
            connection.sql(
                f"CREATE SECRET (TYPE s3, KEY_ID '{files['s3.access-key-id']}', REGION '{files['client.region']}',"
                f" SECRET '{files['s3.secret-access-key']}', ENDPOINT '{urlparse(files['s3.endpoint']).netloc}',"
                " URL_STYLE 'path', USE_SSL false)"
            )
        admitted = f"TOKEN '{token}'" if (token := token_at(uri)) else "AUTHORIZATION_TYPE 'none'"
        connection.sql(
            f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}', {admitted}, ACCESS_DELEGATION_MODE 'none')"
        )
        yield connection


def _extension(name: str) -> Path:
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert found
    assert found.origin
    return next(Path(found.origin).parent.rglob("*.duckdb_extension"))
