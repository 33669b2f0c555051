"""The tables of one pipeline: the class that reads, registers, creates, changes and writes them."""

from collections.abc import Callable

import catalog
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.tables.clients import connection_of
from lakehouse_ingest.tables.enforcement import Enforcement
from lakehouse_ingest.tables.errors import (
    URI,
    explained,
    with_advice,
)
from lakehouse_ingest.tables.landing import WAYS
from lakehouse_ingest.tables.position import branch_of
from lakehouse_ingest.tables.publishing import ReportRefusal
from lakehouse_ingest.tables.retention import Retention
from lakehouse_ingest.tables.turns import Turns
from lakehouse_ingest.tables.writer import TableWriter


def tables_of(settings: Settings, uri: str, stream: StreamSettings | None = None) -> "PipelineTables":
    """The tables as a stream of the settings sees them, or the pipeline as a whole; `uri`: where the catalog is."""
    connection = connection_of(settings.catalog, settings.s3, uri)
    name = settings.identity_of(stream) if stream else settings.name
    return PipelineTables(connection, name, settings.catalog.publish, create=settings.catalog.create)


class PipelineTables(TableWriter):
    """The catalog, as one pipeline uses it."""

    def __init__(
        self,
        connection: catalog.Connection,
        pipeline: str,
        publish: str = "branch",
        refused: ReportRefusal = lambda _table, _attempt, _error: None,
        settled: Callable[[str], None] = lambda _table: None,  # called if a commit succeeded but its answer was lost
        *,
        create: bool = True,  # create missing tables; False: refuse instead
        turns: Turns | None = None,  # shared with the other streams of this process
        retention: Callable[[str], Retention | None] = lambda _table: None,  # None: no snapshot of the table may expire
    ) -> None:
        with explained():
            try:
                client = catalog.connect(connection, settled)
            except catalog.RequestRefused as refusal:
                raise SettingsRefused(with_advice(refusal, URI)) from refusal
            except catalog.Unreachable as away:
                raise TryAgain(with_advice(away, URI)) from away
        super().__init__(client, pipeline, WAYS[publish](client, pipeline, refused, turns or Turns(), retention))
        self.creates = create
        self.enforcement = Enforcement(client, publish, branch_of(pipeline, 1) if publish == "branch" else None, create)
