"""Tables of pyiceberg's SQL catalog in a local folder, and files written to them as a task would."""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from catalog import CatalogClient, Column, Partition, Sort, TableSpec, create_table, ensure_namespace
from catalog.data_files import DataFileReceipt, FileNames, TableFiles
from catalog.file_columns import Rows
from catalog.file_rows import read_rows
from catalog.file_writer import FileWriter
from tests.services.sqlite_catalog import sqlite_catalog

NAMES = FileNames("sensors", epoch=7, batch=42, share=3, attempt=0)


class Lake:
    """A catalog in a folder."""

    def __init__(self, folder: Path) -> None:
        self.pyiceberg = sqlite_catalog(folder)
        self.client = CatalogClient(self.pyiceberg)
        ensure_namespace(self.client, "ns")

    def create(
        self,
        columns: Mapping[str, str],
        partitions: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        order: Sequence[str] = (),
        required: Sequence[str] = (),
        name: str = "ns.t",
    ) -> TableFiles:
        """Create a table, and describe it as a task gets it: pickled."""
        spec = TableSpec(
            name,
            tuple(Column(each, kind, required=each in required) for each, kind in columns.items()),
            partitions=tuple(map(Partition.parse, partitions)),
            sort=tuple(map(Sort.parse, order)),
            properties=dict(properties or {}),
        )
        create_table(self.client, spec)
        return self.describe(name)

    def describe(self, name: str = "ns.t") -> TableFiles:
        described: TableFiles = pickle.loads(pickle.dumps(TableFiles.of(self.client, self.table(name))))
        return described

    def table(self, name: str = "ns.t") -> Table:
        return self.client.table(name)

    def commit(self, receipts: Iterable[DataFileReceipt], name: str = "ns.t") -> Table:
        table = self.table(name)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for receipt in receipts:
                append.append_data_file(pickle.loads(pickle.dumps(receipt)).data_file())
        return self.table(name)


def write(table: TableFiles, *chunks: Rows, **options: Any) -> list[DataFileReceipt]:
    writer = FileWriter(table, NAMES, **options)
    for chunk in chunks:
        writer.write(chunk)
    return writer.close()


def batch(**columns: Any) -> pa.RecordBatch:
    """Rows from arrays, or from lists whose types Arrow finds out."""
    given = {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    return pa.RecordBatch.from_pydict(given)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def path_of(receipt: DataFileReceipt) -> Path:
    return Path(urlparse(receipt.path).path)


def files_in(folder: Path) -> list[Path]:
    return [*folder.rglob("*.parquet")]


def read_back(lake: Lake, receipts: list[DataFileReceipt]) -> list[dict[str, Any]]:
    table = lake.commit(receipts)
    return [row for task in table.scan().plan_files() for row in read_rows(table, task, table.schema()).to_pylist()]
