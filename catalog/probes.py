"""A table for a moment: the way to know whether a catalog and its files can be used is to use them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

from catalog.connection import Lake, identifier_of
from catalog.errors import Refused
from catalog.namespaces import ensure_namespace, has_namespace
from catalog.registration import create_table, load_for_engines
from catalog.specs import Column, TableSpec, TableState


@contextmanager
def probe_table(client: Lake, namespace: str) -> Iterator[TableState]:
    """An empty table with one column, `n`; gone afterwards, and with it the namespaces that it was made in."""
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


def write_and_read(client: Lake, name: str) -> None:
    """One row by pyiceberg, there and back."""
    with client.calling(f"writing a probe to {name}"):
        client.table(name).append(pa.table({"n": pa.array([1], pa.int32())}))
        found = client.table(name).scan().to_arrow()["n"].to_pylist()
    if found != [1]:
        raise Refused(f"a probe written to {name} reads back as {found}")


def _missing(client: Lake, namespace: str) -> list[tuple[str, ...]]:
    parts = tuple(namespace.split("."))
    levels = [parts[:depth] for depth in range(1, len(parts) + 1)]
    return [level for level in levels if not has_namespace(client, ".".join(level))]


def _drop(client: Lake, parts: tuple[str, ...]) -> None:
    with client.calling(f"dropping namespace {'.'.join(parts)}"):
        try:
            client.pyiceberg.drop_namespace(parts)
        except (NamespaceNotEmptyError, NoSuchNamespaceError):
            return  # somebody has begun to use it, or has dropped it
