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
def probe_table(lake: Lake, namespace: str) -> Iterator[TableState]:
    """An empty table with one column, `n`; gone afterwards, and with it the namespaces that it was made in."""
    missing = _missing(lake, namespace)
    ensure_namespace(lake, namespace)
    name = f"{namespace}.lakehouse_probe_{uuid.uuid4().hex[:8]}"
    try:
        create_table(lake, TableSpec(name, (Column("n", "int"),)))
        try:
            yield load_for_engines(lake, name)
        finally:
            with lake.calling(f"dropping table {name}"):
                lake.pyiceberg.purge_table(identifier_of(name))
    finally:
        for parts in reversed(missing):
            _drop(lake, parts)


def write_and_read(lake: Lake, name: str) -> None:
    """One row by pyiceberg, there and back."""
    with lake.calling(f"writing a probe to {name}"):
        lake.table(name).append(pa.table({"n": pa.array([1], pa.int32())}))
        found = lake.table(name).scan().to_arrow()["n"].to_pylist()
    if found != [1]:
        raise Refused(f"a probe written to {name} reads back as {found}")


def _missing(lake: Lake, namespace: str) -> list[tuple[str, ...]]:
    parts = tuple(namespace.split("."))
    levels = [parts[:depth] for depth in range(1, len(parts) + 1)]
    return [level for level in levels if not has_namespace(lake, ".".join(level))]


def _drop(lake: Lake, parts: tuple[str, ...]) -> None:
    with lake.calling(f"dropping namespace {'.'.join(parts)}"):
        try:
            lake.pyiceberg.drop_namespace(parts)
        except (NamespaceNotEmptyError, NoSuchNamespaceError):
            return  # somebody has begun to use it, or has dropped it
