"""A table for a moment: using a catalog and its files is the only way to know whether they can be used."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

from catalog.connection import CatalogClient, identifier_of
from catalog.errors import RequestRefused
from catalog.namespaces import ensure_namespace, has_namespace
from catalog.registration import create_table, load_for_engines
from catalog.specs import Column, TableSpec, TableState


@contextmanager
def probe_table(client: CatalogClient, namespace: str) -> Iterator[TableState]:
    """Create an empty table with one column, `n`; drop it afterwards, with the namespaces created for it."""
    missing = _missing(client, namespace)
    ensure_namespace(client, namespace)
    name = f"{namespace}.lakehouse_probe_{uuid.uuid4().hex[:8]}"
    try:
        create_table(client, TableSpec(name, (Column("n", "int"),)))
        try:
            yield load_for_engines(client, name)
        finally:
            with client.calling(f"dropping table {name}"):
                client.pyiceberg.purge_table(identifier_of(name))
    finally:
        for parts in reversed(missing):
            _drop(client, parts)


def write_and_read(client: CatalogClient, name: str) -> None:
    """Write one row by pyiceberg and read it back."""
    with client.calling(f"writing a probe to {name}"):
        client.table(name).append(pa.table({"n": pa.array([1], pa.int32())}))
        found = client.table(name).scan().to_arrow()["n"].to_pylist()
    if found != [1]:
        raise RequestRefused(
            f"a probe written to {name} reads back as {found}: see what handles the files of the warehouse"
        )


def _missing(client: CatalogClient, namespace: str) -> list[tuple[str, ...]]:
    parts = tuple(namespace.split("."))
    levels = [parts[:depth] for depth in range(1, len(parts) + 1)]
    return [level for level in levels if not has_namespace(client, ".".join(level))]


def _drop(client: CatalogClient, parts: tuple[str, ...]) -> None:
    with client.calling(f"dropping namespace {'.'.join(parts)}"):
        try:
            client.pyiceberg.drop_namespace(parts)
        except (NamespaceNotEmptyError, NoSuchNamespaceError):
            return  # someone else has begun to use it, or has dropped it
