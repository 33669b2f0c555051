"""One commit: a compare-and-set on a table, sent once.

pyiceberg's own transactions repeat a refused append on top of whatever main is by then (since 0.12). Our requirements
would then mean nothing, so the requests are put together here and sent directly. `commit_loop` says when to try again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from catalog.connection import CatalogClient
from catalog.conversions import state_from
from catalog.errors import Conflict, TableMissing
from catalog.pyiceberg_internals import append_onto_head, metadata_files, uncommitted_snapshot
from catalog.specs import TableState

MAIN = "main"
LONGEST_AGE_MS = 2**63 - 1  # the longest that Iceberg can express
Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


def commit(client: CatalogClient, table: Table, what: str, requirements: Requirements, updates: Updates) -> TableState:
    """Send the updates under the requirements, once.

    Raises Conflict when a requirement did not hold, and OutcomeUnknown when no certain answer came back. A replica of
    the catalog that has not heard of the table yet is a Conflict as well.
    """
    name = ".".join(table.name())
    # A table that was dropped and created again under the same name is another table.
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    try:
        with client.calling(f"{what} of table {name}", committing=True):
            answer = client.pyiceberg.commit_table(table, (same_table, *requirements), updates)
    except TableMissing as missing:
        client.table(name)  # raises TableMissing if the table is really gone
        raise Conflict(f"{missing}; yet the table exists, so try again") from missing
    return state_from(name, answer.metadata, answer.metadata_location)


def ref_is_at(ref: str, snapshot: int | None) -> TableRequirement:
    """Require that the ref is at the snapshot; None requires that there is no such ref."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot})


def layout_is(schema_id: int, spec_id: int) -> Requirements:
    """Require that the table's current schema and partition layout have these numbers."""
    return (
        AssertCurrentSchemaId.model_validate({"current-schema-id": schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": spec_id}),
    )


def set_branch(branch: str, snapshot: int) -> TableUpdate:
    """Set the branch to the snapshot; creates the branch if it is missing.

    A writer's branch lives as long as its writer, whatever `history.expire.max-ref-age-ms` says about the table's refs.
    The age of a branch is that of its snapshot, so on a quiet table the next expiry would remove the branch at once.
    """
    age = {} if branch == MAIN else {"max-ref-age-ms": LONGEST_AGE_MS}
    return SetSnapshotRefUpdate.model_validate(
        {"ref-name": branch, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot, **age}
    )


def drop_ref(ref: str) -> TableUpdate:
    """Drop the ref."""
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": ref})


def forget_published(state: TableState, branches: Iterable[str]) -> Updates:
    """Remove the notes about these branches, if there are any."""
    known = [name for name in map(_note_key, branches) if name in state.properties]
    return (RemovePropertiesUpdate(removals=known),) if known else ()


def _note_key(branch: str) -> str:
    return f"published.{branch}"


def properties_update(given: Mapping[str, str]) -> Updates:
    """Set these properties of the table and leave the others as they are."""
    return (SetPropertiesUpdate(updates=dict(given)),) if given else ()


@dataclass(frozen=True)
class Append:
    """A snapshot on top of main that no branch points to yet."""

    snapshot: int
    updates: Updates
    metadata_files: tuple[str, ...] = ()  # the manifests that were written for it, and their list


def append_onto_main(table: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> Append:
    """Write the manifests of a snapshot that adds the files to main's head; no ref points to it yet.

    The manifests stay even if the commit is refused. The refusal may answer a repeated request whose first one took
    effect, and a snapshot without its manifests breaks the table. Orphaned files are a task of maintenance.
    """
    producer = append_onto_head(table, summary)
    for file in files:
        producer.append_data_file(file)
    updates, _ = uncommitted_snapshot(producer)
    return Append(producer.snapshot_id, updates, metadata_files(producer))
