"""Reads a table: the files of its head, some columns of a file, and rows since a moment."""

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import NestedField, PrimitiveType

from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.specs import TableState

_BATCH_ROWS = 65_536
_BUFFER = 2**20  # bytes of a column that are read at once; without it, a whole row group would be


@dataclass(frozen=True)
class HeadFile:
    """A data file, as the manifests of one snapshot refer to it."""

    path: str
    rows: int
    bytes: int
    snapshot: int  # the one that added the file; it may have been expired since
    bounds: Mapping[str, tuple[Any, Any]]  # the least and the greatest value of a column, if the manifest has them
    format: str = FileFormat.PARQUET.value
    has_deletes: bool = False  # delete files remove some of its rows


class Pinned:
    """A table at the head that main had when it was loaded, or at another snapshot, whatever is committed meanwhile."""

    def __init__(self, client: CatalogClient, table: Table, snapshot: int | None = None) -> None:
        self._client, self._table = client, table
        self._with_deletes: dict[str, FileScanTask] = {}
        self._at = snapshot
        self.state: TableState = state_of(table)

    def at(self, snapshot: int) -> "Pinned":
        """The same table at another snapshot, which has to be in its state."""
        return Pinned(self._client, self._table, snapshot)

    @property
    def columns(self) -> Collection[str]:
        """The columns of main, or those that the table had when the other snapshot was made."""
        return self._schema.column_names

    @property
    def _schema(self) -> Schema:
        other = self._table.snapshot_by_id(self._at) if self._at is not None else None
        number = other.schema_id if other else None
        return self._table.schema() if number is None else self._table.schemas()[number]

    def files(self, bounds_of: Sequence[str] = ()) -> Iterator[HeadFile]:
        """Give every reference to a data file, even if a file has two; raises FileMissing if a manifest is gone."""
        number = self.state.main if self._at is None else self._at
        snapshot = None if number is None else self._table.snapshot_by_id(number)
        if snapshot is None:
            return
        io, schema = self._table.io, self._schema
        fields = {name: field for name in bounds_of if (field := _field(schema, name))}
        with self._client.reading(snapshot.manifest_list, self.state.name):
            manifests = snapshot.manifests(io)
        if any(each.content == ManifestContent.DELETES for each in manifests):
            with self._client.reading(snapshot.manifest_list, self.state.name):
                tasks = self._table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
            self._with_deletes = {each.file.file_path: each for each in tasks if each.delete_files}
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA:
                continue
            with self._client.reading(manifest.manifest_path, self.state.name):
                entries = manifest.fetch_manifest_entry(io)
            for entry in entries:
                file = entry.data_file
                yield HeadFile(
                    file.file_path,
                    file.record_count,
                    file.file_size_in_bytes,
                    entry.snapshot_id or 0,
                    _bounds(file, fields),
                    file.file_format.value,
                    file.file_path in self._with_deletes,
                )

    def batches(self, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Give these columns of a file without deleted rows; a column within a struct is named by its path.

        Gives nothing if the file has none of them. Raises FileMissing if the store has no such file.
        """
        with self._client.reading(file.path, self.state.name):
            plain = file.format == FileFormat.PARQUET.value and not file.has_deletes
            for batch in self._read(file, columns) if plain else self._scanned(file, columns):
                yield pa.RecordBatch.from_arrays([_at(batch, path) for path in columns], list(columns))

    def exists(self, path: str) -> bool:
        """Whether the store has the file."""
        with self._client.reading(path, self.state.name):
            return self._table.io.new_input(path).exists()

    def metadata_size(self) -> int:
        """Give the bytes of the metadata file, which everyone who opens the table loads first."""
        path = self.state.metadata_location
        with self._client.reading(path, self.state.name):
            return len(self._table.io.new_input(path))

    def _read(self, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read columns by their names, which never change here; pyiceberg would hold the whole file in memory."""
        with self._table.io.new_input(file.path).open() as source:
            parquet = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
            roots = {path.partition(".")[0] for path in columns}
            if roots & set(parquet.schema_arrow.names):
                yield from parquet.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False)

    def _scanned(self, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        roots = tuple(dict.fromkeys(path.partition(".")[0] for path in columns))
        scan = self._table.scan(selected_fields=roots, snapshot_id=self._at)
        task = self._with_deletes.get(file.path) or next(
            each for each in scan.plan_files() if each.file.file_path == file.path
        )
        yield from ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue()).to_record_batches(
            [task]
        )


def pin(client: CatalogClient, name: str) -> Pinned:
    """Load the table and keep it as it is now; raises TableMissing if there is none."""
    return Pinned(client, client.table(name))


def _field(schema: Schema, name: str) -> NestedField | None:
    try:
        return schema.find_field(name)
    except ValueError:
        return None


def _bounds(file: DataFile, fields: Mapping[str, NestedField]) -> dict[str, tuple[Any, Any]]:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return {
        name: (from_bytes(kind, lower[number]), from_bytes(kind, upper[number]))
        for name, field in fields.items()
        if isinstance(kind := field.field_type, PrimitiveType)
        and (number := field.field_id) in lower
        and number in upper
    }


def _at(batch: pa.RecordBatch, path: str) -> pa.Array:
    """Give the column at the end of the path; a value within a null struct is null."""
    root, *names = path.split(".")
    if root not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    column = batch.column(root)
    for name in names:
        at = column.type.get_field_index(name)
        column = column.flatten()[at] if at >= 0 else pa.nulls(batch.num_rows)
    return column


def rows_since(
    client: CatalogClient, name: str, column: str, moment: dt.datetime, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Give the rows of main whose time in `column` is that moment or later; opens only files that may hold such."""
    table = client.table(name)
    with client.calling(f"reading table {name}"):
        scan = table.scan(f"{column} >= '{moment.isoformat()}'", selected_fields=tuple(columns))
        found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found
