"""Everything that a start and its batches do to the world, a method for each durable effect.

A pipeline is given an implementation: the real one, the one of the dry run, which changes nothing, or one of the tests,
which ends the process before an effect or loses its answer. What only reads stays with `TableReader`.
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
    """One table: where we stand on it, and how its files are written."""

    place: Position
    files: FileOptions


@dataclass(frozen=True)
class Unpublished:
    """Rows of ours that are written to a table and that no reader sees yet."""

    landing: Landing
    mark: Mark
    snapshot: int
    rows: int
    files: int
    size: int  # bytes of those files
    partitions: int  # that they are in


class TableEffects(Protocol):
    """Making and changing a table."""

    def create(self, spec: TableSpec) -> TableState: ...

    def change(self, table: str, changes: Sequence[Evolution]) -> tuple[TableState, Plan]:
        """Columns that are added, widened or relaxed, in one commit."""
        ...

    def lay_out(self, table: str, partitions: Sequence[Partition]) -> tuple[TableState, list[str]]:
        """Other partitions for what is written from now on, and what was changed."""
        ...

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None: ...

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        """Take the next epoch, with our place on the `first` table; gives that table as the claim has left it."""
        ...

    def open(self, table: str, epoch: int) -> Position:
        """Take our place on a table, which fences earlier starts."""
        ...

    def register(self, record: str, tables: Mapping[str, Registered]) -> None:
        """Note in the batch log that this pipeline writes to them, before it does."""
        ...


class Effects(TableEffects, Protocol):
    """And what a batch does, in the order of these methods."""

    def write(self, landing: Landing, rows: DataFrame, size: int, mark: Mark) -> Unpublished:
        """About so many rows, in files that no reader sees yet."""
        ...

    def publish(self, written: Unpublished) -> Position:
        """Make them visible; gives our place on the table as the commit left it."""
        ...

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Rows of the batch log, with what the next start has to know."""
        ...

    def acknowledge(self, complete: Offsets, *, at_once: bool = False) -> None:
        """Publish group offsets, for lag tools; now and then, or `at_once`."""
        ...

    def expire(self, place: Position) -> Position:
        """Old snapshots, when they are many enough; gives our place on the table as it is then."""
        ...
