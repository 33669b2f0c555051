"""Counts rows by their partitions, as a `FileWriter` would write them, and writes nothing: for a dry run."""

from collections import Counter

from catalog.data_files import DataFileReceipt, FileNames, TableFiles
from catalog.file_columns import Rows, file_columns
from catalog.file_partitions import Partitions, PartitionValues


class FileCounter:
    """Takes the place of a `FileWriter`. Its receipts have no size, and their paths lead nowhere."""

    def __init__(self, table: TableFiles, names: FileNames) -> None:
        self._table, self._stem = table, names.stem()
        self._columns = file_columns(table.schema_json)
        self._partitions = Partitions(self._columns, table.spec)
        self._rows: Counter[PartitionValues] = Counter()

    def write(self, rows: Rows) -> None:
        for batch in self._columns.fit(rows).to_batches() if hasattr(rows, "to_batches") else [self._columns.fit(rows)]:
            for partition, piece in self._partitions.split(batch):
                self._rows[partition] += len(piece)

    def close(self) -> list[DataFileReceipt]:
        return [
            DataFileReceipt(
                path=f"{self._stem}-{number:05d}",
                partition=partition,
                spec_id=self._table.spec_id,
                record_count=count,
                size=0,
                column_sizes={},
                value_counts={},
                null_counts={},
                nan_counts={},
                lower_bounds={},
                upper_bounds={},
                split_offsets=(),
                sort_order_id=None,
            )
            for number, (partition, count) in enumerate(self._rows.items())
        ]

    def abandon(self) -> None:
        self._rows.clear()
