"""Every durable effect of a start and its batches, one method for each.

A pipeline gets one of several implementations. The real one changes tables. The dry run's changes nothing. Those of
the tests end the process before an effect, or lose its answer. Reading has no effect and stays in `TableReader`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from catalog import Evolution, Partition, Plan, TableSpec, TableState
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.tables.position import Position, Registered


@dataclass
class Landing:
    """One table: our position on it, and how its files are written."""

    place: Position
    files: FileOptions


@dataclass(frozen=True)
class Unpublished:
    """Rows that are written to a table and that no reader sees yet."""

    landing: Landing
    mark: Mark
    snapshot: int
    rows: int
    files: int
    size: int  # bytes of those files
    partitions: int  # how many partitions these files are in


class TableEffects(Protocol):
    """Effects that create, change and open tables."""

    def create(self, spec: TableSpec) -> TableState: ...

    def change(self, table: str, changes: Sequence[Evolution]) -> tuple[TableState, Plan]:
        """Add, widen or relax columns in one commit."""
        ...

    def lay_out(self, table: str, partitions: Sequence[Partition]) -> tuple[TableState, list[str]]:
        """Change the partitions of future files. Returns the table and the changes."""
        ...

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None: ...

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        """Take the next epoch, with our position on the `first` table. Returns that table as the claim left it."""
        ...

    def open(self, table: str, epoch: int) -> Position:
        """Take our position on a table, which fences earlier starts."""
        ...

    def register(self, record: str, tables: Mapping[str, Registered]) -> None:
        """List tables in the batch log before their first row is written."""
        ...


class Effects(TableEffects, Protocol):
    """All effects. A batch calls the methods below in their order."""

    def write(self, landing: Landing, rows: DataFrame, size: int, mark: Mark) -> Unpublished:
        """Write about `size` rows to files that no reader sees yet."""
        ...

    def publish(self, written: Unpublished) -> Position:
        """Make written rows visible. Returns our position on the table as the commit left it."""
        ...

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Write rows of the batch log, and in `extra` what the next start has to know."""
        ...

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        """Publish group offsets for lag tools, at most every few seconds unless `at_once`."""
        ...

    def expire(self, place: Position) -> Position:
        """Expire old snapshots if there are enough of them. Returns our position on the table afterwards."""
        ...
