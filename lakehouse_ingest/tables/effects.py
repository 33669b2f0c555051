"""The durable effects on tables, one method for each. `pipeline.effects` has those of a batch beside them.

A pipeline gets one of several implementations. With the real one `tables` are `PipelineTables`, and with the dry run's
`ImaginedTables`, which change nothing. Those of the tests end the process before an effect, or lose its answer. Reading
has no effect and stays in `TableReader`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from catalog import Evolution, Partition, Plan, TableFiles, TableSpec, TableState
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.tables.position import Position, Registered

VENDED_S = 300.0


@dataclass
class Landing:
    """One table: our position on it, and what a task has to know to write files for it."""

    place: Position
    files: TableFiles
    loaded_at: float = field(default_factory=monotonic)  # when `files` were

    @property
    def is_stale(self) -> bool:
        """True if credentials that the catalog gave us may end soon. They live for a quarter of an hour at least."""
        return self.files.are_vended and monotonic() - self.loaded_at > VENDED_S

    def load(self, files: TableFiles) -> None:
        self.files, self.loaded_at = files, monotonic()


class ChangesTables(Protocol):
    """Creates, changes and opens tables. Only a start that has a table may change it."""

    def create(self, spec: TableSpec) -> TableState: ...

    def change(self, table: Position, changes: Sequence[Evolution]) -> tuple[TableState, Plan]:
        """Add, widen or relax columns in one commit. Like all changes of a table, only while it is still ours."""
        ...

    def lay_out(self, table: Position, partitions: Sequence[Partition]) -> tuple[TableState, list[str]]:
        """Change the partitions of future files. Returns the table and the changes."""
        ...

    def set_properties(self, table: Position, properties: Mapping[str, str]) -> None: ...

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        """Take the next epoch, with our position on the `first` table. Returns that table as the claim left it."""
        ...

    def open(self, table: str, epoch: int) -> Position:
        """Take our position on a table, which fences earlier starts."""
        ...

    def register(self, record: Position, tables: Mapping[str, Registered]) -> None:
        """List tables in the batch log before their first row is written."""
        ...


class TableEffects(Protocol):
    """The effects of a start on its tables."""

    @property
    def tables(self) -> ChangesTables: ...

    def prove(self, log: TableState) -> Mapping[str, str]:
        """Raise unless the catalog enforces what commits rely on. Returns properties by which the log remembers it."""
        ...

    def record(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Write rows of the batch log, and in `extra` what the next start has to know."""
        ...

    def move_up(self, place: Position) -> Position:
        """Move our fence on an idle table to main's head. Returns our position afterwards."""
        ...

    def expire(self, place: Position) -> Position:
        """Expire old snapshots if there are enough of them. Returns our position on the table afterwards."""
        ...
