"""Writes rows to new data files of a table, in a task; only the driver makes them part of the table.

    writer = FileWriter(table, FileNames("sensors", epoch=7, batch=42, share=0, attempt=0))
    writer.write(rows)                  # as often as there are rows
    receipts = writer.close()           # to the driver

Rows wait in memory until they fill `budget` bytes of Arrow, or a row group or file of the size that the table asks for.
Then all that wait are written, a row group for each partition, so the memory is let go as a whole. Splitting or
sorting them takes about as much again for a moment. A file stays open until it has the size that the table asks for,
but only `open_files` at a time. Beyond that a partition gets a file for each time that rows are written. A table's sort
order holds within a row group; a file that has several is not called sorted.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table.sorting import SortOrder

from catalog.connection import secrets_in
from catalog.data_files import DataFileReceipt, FileNames, TableFiles
from catalog.errors import RequestRefused, translated
from catalog.file_columns import FileColumns, Rows, file_columns
from catalog.file_order import sort_fields, sorted_rows
from catalog.file_partitions import Locations, Partitions, PartitionValues
from catalog.file_settings import FileSettings
from catalog.file_sinks import create, local_path, sync
from catalog.file_statistics import Mode, count_nans, modes, statistics

BUDGET = 64 << 20
OPEN_FILES = 64
_PIECE = 4096  # bytes that a piece of a chunk takes beside its rows


class FileWriter:
    """Writes rows of one table to files that nobody else knows yet; for one thread.

    `durable` waits for the disk when local files are closed; other stores promise that by themselves.
    """

    def __init__(
        self,
        table: TableFiles,
        names: FileNames,
        *,
        budget: int = BUDGET,
        open_files: int = OPEN_FILES,
        durable: bool = True,
    ) -> None:
        self._table, self._budget, self._open_files, self._durable = table, budget, open_files, durable
        self._columns = file_columns(table.schema_json)
        self._partitions = Partitions(self._columns, table.spec)
        self._locations, self._stem = Locations(table, self._columns), names.stem()
        self._layout = _Layout.of(table, self._columns)
        self._waiting: dict[PartitionValues, list[pa.RecordBatch]] = defaultdict(list)
        self._waiting_bytes = 0
        self._open: dict[PartitionValues, _File] = {}
        self._created: list[str] = []
        self._receipts: list[DataFileReceipt] = []
        self._folders: set[Path] = set()
        self._ended = False

    def write(self, rows: Rows) -> None:
        """Take rows, whose columns are found by their names; RequestRefused if they do not fit the table."""
        self._check_open()
        fitted = self._columns.fit(rows)
        with self._whole():
            for batch in fitted.to_batches() if isinstance(fitted, pa.Table) else (fitted,):
                if len(batch):
                    self._take(batch)

    @property
    def waiting(self) -> int:
        """Bytes of the rows that wait in memory."""
        return self._waiting_bytes

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._open)

    def flush(self, *, last: bool = False) -> None:
        """Write what waits, for one who has several writers and little room; `last` ends the files as well."""
        self._check_open()
        with self._whole():
            self._write_waiting(last=last)
            for partition in [*self._open] if last else ():
                self._finish(partition)

    def close(self) -> list[DataFileReceipt]:
        """Write what waits, and give a receipt for each file; none if there were no rows."""
        self._check_open()
        with self._whole():
            self._write_waiting(last=True)
            for partition in [*self._open]:
                self._finish(partition)
            if self._durable:
                sync(self._folders)
        self._ended = True
        return self._receipts

    def abandon(self) -> None:
        """Delete the files; only for a writer whose receipts were not sent to anybody, or the table may have them.

        What can't be deleted stays as an orphan, which maintenance finds.
        """
        self._ended = True
        self._waiting.clear()
        files, self._open = [*self._open.values()], {}
        for file in files:
            with suppress(OSError, pa.ArrowException):
                file.drop()
        with suppress(OSError, pa.ArrowException):  # a store that is away would let each file wait
            for location in self._created:
                with suppress(FileNotFoundError):
                    self._io.delete(location)
        _store.cache_clear()

    @property
    def _io(self) -> FileIO:
        return _store(os.getpid(), tuple(sorted(self._table.io_properties.items(), key=str)), self._table.location)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Translate what the store raises. What breaks off may have lost rows, so there are no receipts after it."""
        self._ended = True
        try:
            yield
        except OSError:
            secrets = secrets_in(self._table.io_properties, self._table.hidden_keys)
            with translated(f"writing files of table {self._table.name}", secrets):
                raise
        self._ended = False

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError("the writer is closed, or it broke off and its rows have to be written again by another")

    def _take(self, rows: pa.RecordBatch) -> None:
        for partition, piece in self._partitions.split(rows):
            self._waiting[partition].append(piece)
            self._waiting_bytes += _PIECE
        self._waiting_bytes += rows.nbytes
        settings = self._layout.settings
        if self._waiting_bytes >= min(self._budget, settings.row_group, settings.target):
            self._write_waiting(last=False)

    def _write_waiting(self, *, last: bool) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, defaultdict(list), 0
        for partition in sorted(waiting, key=lambda each: each not in self._open):  # those with a file first
            rows = pa.Table.from_batches(waiting.pop(partition))
            nans = count_nans(self._layout.columns, rows)
            if partition in self._open and not self._open[partition].takes(nans):
                self._finish(partition)
            file = self._open.get(partition) or self._new_file(partition, rows, nans)
            file.write(rows, nans)
            if last or len(self._open) > self._open_files or file.size() >= self._layout.settings.target:
                self._finish(partition)

    def _new_file(self, partition: PartitionValues, rows: pa.Table, nans: Counter[int]) -> "_File":
        location = self._locations.of(f"{self._stem}-{len(self._created):05d}.parquet", partition)
        sink = create(self._io, location, self._folders)
        self._created.append(location)
        dictionaries = self._layout.settings.with_dictionary(self._columns, rows)
        self._open[partition] = _File(self._layout, location, sink, frozenset(nans), dictionaries)
        return self._open[partition]

    def _finish(self, partition: PartitionValues) -> None:
        file = self._open.pop(partition)
        self._receipts.append(file.receipt(partition, self._table.spec_id))
        if self._durable and (path := local_path(file.location)):
            sync([path])


@lru_cache(8)
def _store(_process: int, properties: tuple[tuple[str, str], ...], location: str) -> FileIO:
    """Reach a store once for all tables with the same properties; a process never uses a client of its parent's."""
    return load_file_io(dict(properties), location)


@dataclass(frozen=True)
class _Layout:
    """What the files of a table have in common."""

    columns: FileColumns
    settings: FileSettings
    kept: dict[int, Mode]
    order: SortOrder | None

    @classmethod
    def of(cls, table: TableFiles, columns: FileColumns) -> "_Layout":
        fields = sort_fields(columns, table.order)
        return cls(
            columns,
            FileSettings.of(table.properties, columns.leaves),
            modes(columns.leaves, table.properties, {each.source_id for each in fields}),
            table.order if fields else None,
        )


@dataclass
class _File:
    """A file that is being written."""

    layout: _Layout
    location: str
    sink: Any
    with_nan: frozenset[int]  # the columns that may hold NaN: the footer has no statistics of them
    dictionaries: list[str]
    rows: int = 0
    pieces: int = 0
    nans: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        described = [each.in_file for each in self.layout.columns.leaves if each.field_id not in self.with_nan]
        self.parquet = pq.ParquetWriter(
            self.sink,
            self.layout.columns.arrow,
            store_decimal_as_integer=True,
            store_schema=False,
            write_statistics=described if self.with_nan else True,
            use_dictionary=self.dictionaries,
            **self.layout.settings.options,
        )

    def takes(self, nans: Counter[int]) -> bool:
        """Whether rows with NaN in these columns may be added."""
        return self.with_nan >= nans.keys()

    def write(self, rows: pa.Table, nans: Counter[int]) -> None:
        if self.layout.order:
            rows = sorted_rows(rows, self.layout.columns, self.layout.order)
        self.nans.update(nans)
        self.parquet.write_table(rows, row_group_size=self.layout.settings.row_group_rows)
        self.rows, self.pieces = self.rows + len(rows), self.pieces + 1

    def size(self) -> int:
        return int(self.sink.tell())

    def receipt(self, partition: PartitionValues, spec_id: int) -> DataFileReceipt:
        """Close the file, and tell what is in it."""
        self.parquet.close()
        size = self.size()
        self.sink.close()
        footer = self.parquet.writer.metadata
        if footer.num_rows != self.rows:
            raise RequestRefused(f"{self.location} got {self.rows} rows, and its footer counts {footer.num_rows}")
        order = self.layout.order
        found = statistics(footer, self.layout.columns.leaves, self.layout.kept, self.nans)
        return DataFileReceipt(
            path=self.location,
            partition=partition,
            spec_id=spec_id,
            record_count=self.rows,
            size=size,
            sort_order_id=order.order_id if order and self.pieces == 1 else None,
            **vars(found),
        )

    def drop(self) -> None:
        """Close what is open; the file is of no use any more."""
        self.parquet.is_open = False  # or its end would be written when Python lets it go
        self.sink.close()
