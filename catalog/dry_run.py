"""A dry run: changes of tables are held in memory, and the catalog stays as it is.

    run = DryRun()
    rehearsed = rehearse(client, run)
    create_table(rehearsed, spec); apply(rehearsed, "iot.sensors", found)     # later reads see both
    run.namespaces, run.tables      # what would exist, and each table as it was and as it would be

The same code makes the changes in a dry run and for real. No rows can be committed: a commit of a snapshot or of a ref
is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from catalog.changes import Change, Repartition
from catalog.connection import CatalogClient
from catalog.contracts import Contract
from catalog.conversions import state_from
from catalog.partitions import same_partitions
from catalog.planning import plan
from catalog.specs import TableSpec, TableState

_Name = tuple[str, ...]
_CHANGES_ROWS = (AddSnapshotUpdate, SetSnapshotRefUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate)
_NOWHERE = "nowhere"  # only a catalog that really creates the table chooses its location
_EVERYTHING = Contract(max_columns=None, max_depth=None)


@dataclass(frozen=True)
class Foreseen:
    """A table as it was, None if it did not exist, and as it would be."""

    before: TableState | None
    after: TableState

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of its columns and partitions; a table that would be created has none."""
        if self.before is None:
            return ()
        changes = plan(self.before, TableSpec(self.after.name, self.after.columns), _EVERYTHING).changes
        if same_partitions(self.before.partitions, self.after.partitions):
            return changes
        return (*changes, Repartition(self.before.partitions, self.after.partitions))

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that would be set or changed."""
        there = self.before.properties if self.before else {}
        return {key: text for key, text in self.after.properties.items() if there.get(key) != text}


@dataclass
class DryRun:
    """What would have changed; several dry runs upon one catalog may share it."""

    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    tables: dict[str, Foreseen] = field(default_factory=dict)
    metadata: dict[_Name, tuple[TableMetadata, FileIO]] = field(default_factory=dict, repr=False)
    lock: Lock = field(default_factory=Lock, repr=False)


def rehearse(client: CatalogClient, run: DryRun) -> CatalogClient:
    """Give a client of the same tables whose changes are held in memory only."""
    return CatalogClient(cast("Catalog", _Rehearsed(client.pyiceberg, run)), hidden_keys=client.hidden_keys)


class _Rehearsed:
    """The methods of pyiceberg's catalog that this package calls; any other would change the catalog for real."""

    def __init__(self, real: Catalog, run: DryRun) -> None:
        self.name, self.properties = real.name, real.properties
        self._real, self._run = real, run

    def close(self) -> None:
        self._real.close()

    # -- reading ------------------------------------------------------------------------------------------

    def load_table(self, identifier: _Name) -> Table:
        if (found := self._run.metadata.get(identifier)) is not None:
            return self._table(identifier, *found)
        return self._real.load_table(identifier)

    def list_tables(self, namespace: _Name) -> list[_Name]:
        mine = [name for name in self._run.metadata if name[:-1] == namespace]
        try:
            return [*dict.fromkeys([*self._real.list_tables(namespace), *mine])]
        except NoSuchNamespaceError:
            if ".".join(namespace) in self._run.namespaces:
                return mine
            raise

    def view_exists(self, identifier: _Name) -> bool:
        return self._real.view_exists(identifier)

    def load_namespace_properties(self, namespace: _Name) -> Mapping[str, str]:
        mine = self._run.namespaces.get(".".join(namespace))
        return self._real.load_namespace_properties(namespace) if mine is None else mine

    # -- changing -----------------------------------------------------------------------------------------

    def create_namespace(self, namespace: _Name, properties: Mapping[str, str]) -> None:
        self._run.namespaces[".".join(namespace)] = properties

    def create_table(
        self,
        identifier: _Name,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        self.load_namespace_properties(identifier[:-1])
        with self._run.lock:
            if self._is_there(identifier):
                raise TableAlreadyExistsError(f"{'.'.join(identifier)} exists")
            made = new_table_metadata(schema, partition_spec, sort_order, location or _NOWHERE, dict(properties or {}))
            self._keep(identifier, made, load_file_io(self.properties), None)
        return self.load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        if refused := next((each for each in updates if isinstance(each, _CHANGES_ROWS)), None):
            raise NotImplementedError(f"a dry run commits no rows: {refused.action}")
        identifier = table.name()
        with self._run.lock:
            there = self.load_table(identifier)
            for requirement in requirements:
                requirement.validate(there.metadata)
            now = update_table_metadata(there.metadata, updates)
            self._keep(identifier, now, there.io, there)
        return CommitTableResponse.model_validate({"metadata": now, "metadata-location": there.metadata_location})

    def _is_there(self, identifier: _Name) -> bool:
        try:
            self.load_table(identifier)
        except NoSuchTableError:
            return self._is_view(identifier)
        return True

    def _is_view(self, identifier: _Name) -> bool:
        try:
            return self._real.view_exists(identifier)
        except NotImplementedError:  # this catalog knows no views
            return False

    def _keep(self, identifier: _Name, now: TableMetadata, io: FileIO, there: Table | None) -> None:
        name = ".".join(identifier)
        if name in self._run.tables:
            before = self._run.tables[name].before
        else:
            before = state_from(name, there.metadata, there.metadata_location) if there else None
        self._run.metadata[identifier] = (now, io)
        self._run.tables[name] = Foreseen(before, state_from(name, now, there.metadata_location if there else ""))

    def _table(self, identifier: _Name, metadata: TableMetadata, io: FileIO) -> Table:
        return Table(identifier, metadata, "", io, cast("Catalog", self))
