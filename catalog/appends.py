"""Appends on top of main's head: files that are written already, and a few rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.commits import Append, append_onto_main
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import Conflict, FilesUnfit, RequestRefused, Unreachable
from catalog.file_rows import write_rows
from catalog.pyiceberg_internals import rows_by_partition
from catalog.retries import LookAgain


def append_proposed(
    client: CatalogClient, table: Table, what: str, files: Sequence[DataFile], summary: Mapping[str, str]
) -> Append:
    """Build an append upon main's head; LookAgain if others moved main and removed the files it was built from."""
    name, head = ".".join(table.name()), state_of(table).main
    try:
        with client.calling(f"{what} of table {name}"):
            return append_onto_main(table, fitting(table, files), summary)
    except Unreachable as missing:
        if client.state(name).main == head:
            raise
        conflict = Conflict(str(missing))
        conflict.__cause__ = missing
        raise LookAgain(conflict) from missing


def fitting(table: Table, files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Give the files back; raises FilesUnfit if they are not laid out as the table is partitioned now."""
    spec_id = table.spec().spec_id
    if any(file.spec_id != spec_id for file in files):
        raise FilesUnfit("the table is now partitioned in another way than the files that wait for their commit")
    return files


def written_once(rows: Sequence[Mapping[str, object]]) -> Callable[[Table], Sequence[DataFile]]:
    """Give a function that writes the rows when it is first called, and later returns the same files."""
    if not rows:
        raise ValueError("there are no rows to append, and an append without rows would still make a snapshot")
    written: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if not written:
            written.extend(written_files(table, rows))
        return written

    return files


def written_files(table: Table, rows: Sequence[Mapping[str, object]]) -> list[DataFile]:
    """Write the rows to files that no snapshot has yet."""
    schema = table.schema().as_arrow()
    unknown = sorted({key for row in rows for key in row} - set(schema.names))
    if unknown:
        # Arrow would drop their values silently.
        raise RequestRefused(f"the table has no column {', '.join(unknown)}")
    frame: Any = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    if table.spec().is_unpartitioned():
        return [write_rows(table, frame, None)]
    return [write_rows(table, part, key) for key, part in rows_by_partition(table, frame)]
