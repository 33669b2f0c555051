"""Changing a table while others change it too: load, decide, commit, and look again if the commit failed.

A commit is a compare-and-set, sent once by `commit`. pyiceberg's own transactions repeat a refused append on top of
whatever main is by then (since 0.12). Our requirements would then mean nothing, so the requests are put together here
and sent directly.

`commit_loop` says when to try again. A failure alone does not tell whether the commit took effect. An answer can get
lost, and a proxy that repeats a request passes on the refusal of the second one. So both kinds of failure are treated
alike: the table is loaded again, and `landed` finds out from its state whether one of our commits is in it. Only if
none is, another commit is tried.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
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
from catalog.conversions import state_from, state_of
from catalog.errors import Conflict, FilesUnfit, OutcomeUnknown, RequestRefused, TableMissing, Unreachable
from catalog.file_rows import write_rows
from catalog.pyiceberg_internals import append_onto_head, metadata_files, rows_by_partition, uncommitted_snapshot
from catalog.retries import FEW, LookAgain, look_until_settled
from catalog.specs import TableState

MAIN = "main"
LONGEST_AGE_MS = 2**63 - 1  # the longest that Iceberg can express
Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


@dataclass(frozen=True)
class ProposedCommit:
    """A commit to try."""

    requirements: Requirements
    updates: Updates
    snapshot: int | None = None  # the one that it adds
    refusal: type[RequestRefused] = RequestRefused  # what it means when the catalog refuses such a commit as wrong


Attempt = Callable[[Table, TableState], ProposedCommit | None]
"""Makes a commit for the table as it is now; None if nothing is left to do.

What it raises ends the loop, except for LookAgain: that counts as a refused commit.
"""
Landed = Callable[[TableState, Collection[int]], bool]
"""Whether one of our commits took effect; gets the snapshots of all that were tried so far, in their order."""
Refusal = Callable[[int, Exception], None]
"""Gets the number and the failure of each try that another one follows; what it raises ends the loop."""


def nothing_to_find(_state: TableState, _ours: Collection[int]) -> bool:
    """For changes that are the same done twice: `attempt` sees that nothing is left to do."""
    return False


def commit_loop(
    client: CatalogClient,
    name: str,
    what: str,
    attempt: Attempt,
    landed: Landed = nothing_to_find,
    *,
    tries: int = FEW,
    refused: Refusal | None = None,
) -> TableState:
    """Commit what `attempt` makes of the table, and give the table as it is afterwards.

    `landed` is asked each time before `attempt`. When all tries have failed, the last failure is raised.
    """
    ours: list[int] = []

    def once() -> TableState:
        table = client.table(name)
        state = state_of(table)
        if landed(state, ours):
            return state
        proposal = attempt(table, state)
        if proposal is None:
            return state
        if proposal.snapshot is not None:
            ours.append(proposal.snapshot)
        try:
            return commit(client, table, what, proposal.requirements, proposal.updates)
        except (Conflict, OutcomeUnknown) as failure:
            raise LookAgain(failure) from failure
        except RequestRefused as refusal:
            if isinstance(refusal, proposal.refusal):
                raise
            raise proposal.refusal(str(refusal)) from refusal

    return look_until_settled(once, tries, refused)


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


# -- what a request consists of ---------------------------------------------------------------------------


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


# -- appends ----------------------------------------------------------------------------------------------


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


def append_proposed(
    client: CatalogClient, table: Table, what: str, files: Sequence[DataFile], summary: Mapping[str, str]
) -> Append:
    """Build an append upon main's head; LookAgain if others moved main and removed the files it was built from."""
    name, head = ".".join(table.name()), state_of(table).main
    try:
        with client.calling(f"{what} of table {name}"):
            return append_onto_main(table, fitting(table, files), summary)
    except Unreachable as missing:
        if client.state(name).main == head:
            raise
        conflict = Conflict(str(missing))
        conflict.__cause__ = missing
        raise LookAgain(conflict) from missing


def fitting(table: Table, files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Give the files back; raises FilesUnfit if they are not laid out as the table is partitioned now."""
    spec_id = table.spec().spec_id
    if any(file.spec_id != spec_id for file in files):
        raise FilesUnfit("the table is now partitioned in another way than the files that wait for their commit")
    return files


def written_once(rows: Sequence[Mapping[str, object]]) -> Callable[[Table], Sequence[DataFile]]:
    """Give a function that writes the rows when it is first called, and later returns the same files."""
    if not rows:
        raise ValueError("there are no rows to append, and an append without rows would still make a snapshot")
    written: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if not written:
            written.extend(written_files(table, rows))
        return written

    return files


def written_files(table: Table, rows: Sequence[Mapping[str, object]]) -> list[DataFile]:
    """Write the rows to files that no snapshot has yet."""
    schema = table.schema().as_arrow()
    unknown = sorted({key for row in rows for key in row} - set(schema.names))
    if unknown:
        # Arrow would drop their values silently.
        raise RequestRefused(f"the table has no column {', '.join(unknown)}")
    frame: Any = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    if table.spec().is_unpartitioned():
        return [write_rows(table, frame, None)]
    return [write_rows(table, part, key) for key, part in rows_by_partition(table, frame)]
