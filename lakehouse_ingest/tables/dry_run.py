"""The catalog, for a pipeline that is rehearsed: what it would change is kept in memory, and nobody is shut out."""

from collections.abc import Mapping, Sequence

import catalog
from catalog import TableState
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.tables.errors import explained
from lakehouse_ingest.tables.pipeline_tables import PipelineTables
from lakehouse_ingest.tables.position import Position


class ImaginedTables(PipelineTables):
    """Tables are made and changed on the stage; a place on them is only looked up, whoever stands there."""

    def __init__(self, connection: catalog.Connection, pipeline: str, stage: catalog.DryRun, *, create: bool) -> None:
        super().__init__(connection, pipeline, create=create)
        self._lake = self._way.lake = catalog.rehearse(self._lake, stage)

    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:  # noqa: ARG002 - nobody is shut out
        return self._way.load(table)

    def append(
        self,
        place: Position,
        rows: Sequence[Mapping[str, object]],  # noqa: ARG002 - bookkeeping of what has not happened
        mark: Mark,  # noqa: ARG002
        extra: Mapping[str, str],  # noqa: ARG002
    ) -> Position:
        return place

    def inspected(self, table: str) -> Sequence[str]:
        """What there is to know of a table that others made."""
        with explained():
            return catalog.inspect(self._lake, table).notes
