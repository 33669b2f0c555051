"""Read the tables of a pipeline, and find those that it has written to, without changing anything."""

import datetime as dt
import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor

import pyarrow as pa

import catalog
from catalog import HeadFile, LiveFile, Pinned, TableState
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import PROBE, REGISTERED, TOPIC, TYPE
from lakehouse_ingest.tables.errors import explained
from lakehouse_ingest.tables.position import Known, Position, Registered, has_landed, newest_epoch
from lakehouse_ingest.tables.publishing import Publication


class TableReader:
    """The tables of a catalog, as one pipeline sees them."""

    def __init__(self, client: catalog.CatalogClient, pipeline: str, publication: Publication) -> None:
        self._lake, self._pipeline = client, pipeline
        self.publication = publication

    def has_namespace(self, namespace: str) -> bool:
        with explained():
            return catalog.has_namespace(self._lake, namespace)

    def find(self, table: str) -> TableState | None:
        with explained():
            try:
                return catalog.load(self._lake, table)
            except catalog.TableMissing:
                return None

    def find_all(self, tables: Collection[str], threads: Executor) -> dict[str, TableState | None]:
        """Load tables in parallel: one after the other, hundreds of requests would take long."""
        return dict(zip(tables, threads.map(self.find, tables), strict=True))

    def look(self, table: str) -> catalog.Inspection:
        """What the catalog has under this name: a table, a view, or nothing."""
        with explained():
            return catalog.inspect(self._lake, table)

    def names_in(self, namespace: str) -> list[str]:
        with explained():
            try:
                return sorted(catalog.names_in(self._lake, namespace))
            except catalog.NamespaceMissing:
                raise SettingsRefused(f"there is no namespace {namespace}: see `catalog.namespace`") from None

    def files(self, table: str) -> catalog.TableFiles:
        """What a task has to know to write files for the table."""
        with explained():
            return catalog.table_files(self._lake, table)

    def rows_since(
        self, table: str, column: str, moment: dt.datetime, columns: Sequence[str]
    ) -> list[dict[str, object]]:
        with explained():
            return catalog.rows_since(self._lake, table, column, moment, columns)

    def rows_with(self, table: str, columns: Sequence[str], holding: str) -> Iterator[pa.Table]:
        with explained():
            yield from catalog.rows_with(self._lake, table, columns, holding)

    def pin(self, table: str) -> Pinned | None:
        with explained():
            try:
                return catalog.pin(self._lake, table)
            except catalog.TableMissing:
                return None

    def files_of(self, pinned: Pinned, bounds_of: Sequence[str]) -> list[HeadFile]:
        with explained():
            return list(pinned.files(bounds_of))

    def batches_of(self, pinned: Pinned, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with explained():
            yield from pinned.batches(file, columns)

    def live_files(self, table: str, snapshot: int | None, *, deletes: bool) -> Iterator[LiveFile]:
        """The data files of main, or of another snapshot. Raises if rows of them were deleted, unless `deletes`."""
        with explained():
            try:
                yield from catalog.live_files(self._lake, table, snapshot, deletes=deletes)
            except catalog.TableMissing:
                sentence = f"there is no table {table}: name a table of another namespace as namespace.table"
                dots = " (a name that has dots itself cannot be given here)" if table.count(".") > 1 else ""
                raise SettingsRefused(f"{sentence}{dots}") from None
            except catalog.FileMissing as missing:
                raise TableChanged(f"{missing}: restore it, or expire the snapshots that refer to it") from missing

    def has_file(self, pinned: Pinned, path: str) -> bool:
        with explained():
            return pinned.exists(path)

    def metadata_size(self, table: str) -> int:
        with explained():
            try:
                return catalog.pin(self._lake, table).metadata_size()
            except (catalog.TableMissing, catalog.FileMissing) as missing:
                raise TryAgain(str(missing)) from missing

    # -- what a pipeline has left in tables ---------------------------------------------------------------

    def seen(self, state: TableState) -> Position:
        """The position of this pipeline on a table, without opening it."""
        return self.publication.place(state, newest_epoch(state, self._pipeline))

    def again(self, place: Position) -> Position:
        """Our position, read again from the catalog."""
        return self.publication.place(self.publication.load(place.table), place.epoch)

    def registered(self, record: str) -> dict[str, Registered]:
        """The tables that the batch log's properties list for this pipeline."""
        state = self.find(record)
        return self.registered_in(state) if state else {}

    def registered_in(self, record: TableState) -> dict[str, Registered]:
        prefix = self._registered_as("")
        return {
            key.removeprefix(prefix): Registered(**json.loads(text))
            for key, text in record.properties.items()
            if key.startswith(prefix)
        }

    def knows(self, table: str) -> bool:
        """True if a start of this pipeline has ever left a mark, a branch or an epoch on the table."""
        return self._newest_epoch(table) > 0

    def has_landed_in(self, state: TableState) -> bool:
        return has_landed(state, self._pipeline)

    def known_in(self, namespace: str) -> Known:
        """The tables of a namespace that hold traces of this pipeline. The batch log is not asked."""
        tables: dict[str, Registered] = {}
        unread: dict[str, LakehouseError] = {}
        for name in self.names_in(namespace):
            if name.rpartition(".")[2].startswith(PROBE):
                continue  # a start that tries the catalog leaves its traces there as well
            try:
                state = self.find(name)
            except LakehouseError as failure:
                unread[name] = failure
                continue
            if state and newest_epoch(state, self._pipeline):
                tables[name] = Registered(state.uuid, state.properties.get(TOPIC, ""), state.properties.get(TYPE, ""))
        return Known(tables, unread)

    def heads(self, record: str) -> dict[str, marks.Head]:
        """The last batch in each table, according to the batch log."""
        state = self.find(record)
        return self.heads_in(state) if state else {}

    def heads_in(self, record: TableState) -> dict[str, marks.Head]:
        return marks.heads((each.summary for each in record.ancestors()), self._pipeline)

    def _registered_as(self, table: str) -> str:
        return f"{REGISTERED}{self._pipeline}.{table}"

    def _newest_epoch(self, table: str) -> int:
        state = self.find(table)
        return newest_epoch(state, self._pipeline) if state else 0
