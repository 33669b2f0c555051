"""The engines that read what we write, each through the REST catalog and by its own means.

A further one is one class with `rows` and `version`, and one line in `READERS`. What an engine can't do stands in its
`cannot`, with what it says instead; that is tried as well, so that a newer version which can is noticed.
"""

import datetime as dt
import importlib
import importlib.metadata
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tests.readers.trino_server import Ask, running_trino
from tests.readers.written import NAMESPACE
from tests.services.doors import client, token_at
from tests.services.readers import duckdb_at

Rows = list[dict[str, Any]]
EVENT_TIME = "event_time"
STORES = ("files", "s3")


@dataclass(frozen=True)
class Day:
    """The rows of one day, by their event time."""

    begins: dt.datetime

    @property
    def ends(self) -> dt.datetime:
        return self.begins + dt.timedelta(days=1)


@dataclass(frozen=True)
class Store:
    """One catalog, and where it keeps the tables' files; `files`: Iceberg's properties of an object store."""

    name: str
    uri: str
    files: Mapping[str, str]
    spark: SparkSession
    folder: Path  # for what an engine has to write


class Reader(ABC):
    """One engine at one catalog."""

    name: ClassVar[str]
    without: ClassVar[Mapping[str, str]] = {}  # store: why it reads nothing there
    long: ClassVar[bool] = False  # too much to fetch or to start for `make test`
    cannot: ClassVar[Mapping[str, str]] = {}  # question: what is the matter, in the words of the page

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    @contextmanager
    def at(cls, store: Store) -> Iterator["Reader"]:
        yield cls(store)

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def rows(self, table: str, columns: Sequence[str], day: Day | None = None) -> Rows:
        """These columns of a table, all of its rows or those of one day, in any order."""


class PyIceberg(Reader):
    name = "pyiceberg"
    cannot: ClassVar = {"nulls": "reads a list of structs that is null as an empty one"}

    def version(self) -> str:
        return importlib.metadata.version("pyiceberg")

    def rows(self, table: str, columns: Sequence[str], day: Day | None = None) -> Rows:
        lake = load_catalog("lake", **client(self.store.uri), **self.store.files)
        there = lake.load_table((NAMESPACE, table))
        within: dict[str, Any] = {}
        if day:
            within["row_filter"] = (
                f"{EVENT_TIME} >= '{day.begins.isoformat()}' and {EVENT_TIME} < '{day.ends.isoformat()}'"
            )
        scan = there.scan(selected_fields=tuple(columns), **within)
        found: Rows = scan.to_arrow().to_pylist()
        return found


class ByQuery(Reader):
    """One that is asked in SQL."""

    quote: ClassVar[str] = '"'

    @abstractmethod
    def ask(self, sql: str) -> Rows: ...

    @abstractmethod
    def moment(self, at: dt.datetime) -> str:
        """In its SQL."""

    def table(self, name: str) -> str:
        return f"lake.{NAMESPACE}.{self.named(name)}"

    def named(self, name: str) -> str:
        return f"{self.quote}{name}{self.quote}"

    def rows(self, table: str, columns: Sequence[str], day: Day | None = None) -> Rows:
        sql = f"SELECT {', '.join(map(self.named, columns))} FROM {self.table(table)}"
        if day:
            event_time = self.named(EVENT_TIME)
            sql += f" WHERE {event_time} >= {self.moment(day.begins)} AND {event_time} < {self.moment(day.ends)}"
        return self.ask(sql)


class Spark(ByQuery):
    """Of the session that has written, but by a catalog of its own."""

    name = "Spark"
    quote = "`"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._catalog = f"read_{store.name}"
        kind = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": store.uri}
        kind[".header.Authorization"] = f"Bearer {token_at(store.uri)}"
        properties = {**kind, ".cache-enabled": "false", **{f".{key}": value for key, value in store.files.items()}}
        for key, value in properties.items():
            store.spark.conf.set(f"spark.sql.catalog.{self._catalog}{key}", value)

    def version(self) -> str:
        return str(self.store.spark.version)

    def table(self, name: str) -> str:
        return super().table(name).replace("lake", self._catalog, 1)

    def moment(self, at: dt.datetime) -> str:
        return f"TIMESTAMP '{at.isoformat()}'"

    def ask(self, sql: str) -> Rows:
        found: Rows = self.store.spark.sql(sql).toArrow().to_pylist()
        return found


class DuckDB(ByQuery):
    name = "DuckDB"

    def version(self) -> str:
        return importlib.metadata.version("duckdb")

    def moment(self, at: dt.datetime) -> str:
        return f"TIMESTAMPTZ '{at.isoformat(' ')}'"

    def ask(self, sql: str) -> Rows:
        with duckdb_at(self.store.uri, self.store.files) as connection:
            connection.sql("SET TimeZone = 'UTC'")
            found: Rows = connection.sql(sql).to_arrow_table().to_pylist()
            return found


class ClickHouse(ByQuery):
    """In this process; with the catalog as deploy/clickhouse/lake.sql defines it."""

    name = "ClickHouse"
    without: ClassVar = {"files": "its DataLakeCatalog takes tables on S3; icebergLocal reads files past the catalog"}
    long = True
    cannot: ClassVar = {
        "nulls": "knows no null struct, list or map: reads them as empty, and of a struct each field as null",
        "vectors": "reads no deletion vectors, and says so: “Position deletes are supported only for parquet format”",
    }

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        chdb: Any = importlib.import_module("chdb.session")  # installed by `make readers`
        self._session = chdb.Session(str(store.folder / "clickhouse"))
        for statement in _defined(store):
            self._session.query(statement)

    @classmethod
    @contextmanager
    def at(cls, store: Store) -> Iterator[Reader]:
        reader = cls(store)
        try:
            yield reader
        finally:
            reader._session.close()

    def version(self) -> str:
        return str(self._session.query("SELECT version()", "TSVRaw")).strip()

    def table(self, name: str) -> str:
        return f"lake.`{NAMESPACE}.{name}`"

    def moment(self, at: dt.datetime) -> str:
        return f"toDateTime64('{at:%Y-%m-%d %H:%M:%S}', 6, 'UTC')"

    def ask(self, sql: str) -> Rows:
        try:
            # Text and bytes are one type to it.
            answer = self._session.query(f"{sql} SETTINGS output_format_arrow_string_as_string = 0", "Arrow").bytes()
        except Exception:
            # What a failed query had begun to answer stands before the next answer (chdb 4.4.0).
            self._session.query("SELECT 1")
            raise
        found: Rows = pa.ipc.open_file(pa.py_buffer(answer)).read_all().to_pylist()
        return found


def _defined(store: Store) -> list[str]:
    text = (Path(__file__).parents[2] / "deploy/clickhouse/lake.sql").read_text(encoding="utf-8")
    for usual, ours in (
        ("http://localhost:8181", store.uri),
        ("<token>", token_at(store.uri)),
        ("http://localhost:9000", store.files["s3.endpoint"]),
        ("<access key>", store.files["s3.access-key-id"]),
        ("<secret key>", store.files["s3.secret-access-key"]),
    ):
        assert usual in text
        text = text.replace(usual, ours)
    plain = re.sub(r"(?m)^\s*--.*$", "", text)
    return [statement for each in plain.split(";") if (statement := each.strip())]


class Trino(ByQuery):
    """A server of its own; with the catalog as deploy/trino/etc/catalog/lake.properties defines it."""

    name = "Trino"
    long = True
    cannot: ClassVar = {"vectors": "reads no deletion vectors, and says so: “Unexpected PUFFIN file format”"}

    def __init__(self, store: Store, ask: Ask) -> None:
        super().__init__(store)
        self._ask = ask

    @classmethod
    @contextmanager
    def at(cls, store: Store) -> Iterator[Reader]:
        with running_trino(store.folder / f"trino-{store.name}", store.uri, store.files) as ask:
            yield cls(store, ask)

    def version(self) -> str:
        _, ((version,),) = self._ask("SELECT version()")
        return str(version)

    def moment(self, at: dt.datetime) -> str:
        return f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S} UTC'"

    def ask(self, sql: str) -> Rows:
        names, rows = self._ask(sql)
        return [dict(zip(names, map(_fields, row), strict=True)) for row in rows]


def _fields(value: Any) -> Any:
    """A row within a row as a dict; Trino's client makes a tuple of it that knows its names."""
    if isinstance(value, tuple):
        return {name: _fields(each) for name, each in zip(value._names, value, strict=True)}  # type: ignore[attr-defined]
    if isinstance(value, list):
        return [_fields(each) for each in value]
    return value


READERS: tuple[type[Reader], ...] = (PyIceberg, DuckDB, Spark, ClickHouse, Trino)
