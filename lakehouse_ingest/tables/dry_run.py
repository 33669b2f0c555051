"""The catalog of a dry run: changes stay in memory, and no start is fenced."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import catalog
from catalog import TableState
from lakehouse_ingest.tables.errors import explained
from lakehouse_ingest.tables.pipeline_tables import PipelineTables
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.publishing import ANYBODY, Direct, Writer


class Unfenced(Direct):
    """A position is only read, so a running pipeline is not fenced."""

    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:  # noqa: ARG002 - no start is fenced
        return self.load(table)

    @contextmanager
    def changing(self, place: Position) -> Iterator[Writer]:  # noqa: ARG002 - there is no fence to require
        with explained():
            yield ANYBODY


class ImaginedTables(PipelineTables):
    """Creates and changes tables in memory."""

    def __init__(self, connection: catalog.Connection, pipeline: str, stage: catalog.DryRun, *, create: bool) -> None:
        super().__init__(connection, pipeline, create=create)
        self._lake = catalog.rehearse(self._lake, stage)
        self.publication = Unfenced(self._lake, pipeline, self.publication.refused)

    def inspected(self, table: str) -> Sequence[str]:
        """Notes about a table that another program created."""
        with explained():
            return catalog.inspect(self._lake, table).notes
