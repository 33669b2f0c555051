"""Appends on top of main's head: a few rows by a writer's branch, and files whose publication was refused."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from catalog.commit_loop import ProposedCommit, Refusal, commit_loop
from catalog.commits import (
    MAIN,
    Append,
    append_onto_main,
    is_published,
    note_published,
    ref_is_at,
    set_branch,
)
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import BranchGone, Conflict, FilesUnfit, RequestRefused, Unreachable
from catalog.file_rows import write_rows
from catalog.pyiceberg_internals import rows_by_partition
from catalog.retries import MANY, LookAgain
from catalog.specs import TableState, UnpublishedSnapshot

Summary = Callable[[TableState], Mapping[str, str]]
Files = Callable[[Table, TableState], Sequence[DataFile]]


def publish_again(
    client: CatalogClient, name: str, branch: str, unpublished: int, summary: Summary, refused: Refusal | None = None
) -> TableState:
    """Publish the files of a refused snapshot, but of none below it, as a new snapshot upon main's head.

    Nothing is rewritten or doubled. One commit sets main and the branch, and requires both to be where they were seen.
    `summary` gets the table before each try; what it raises ends the tries. If `unpublished` turns out to be published,
    nothing is done. Raises BranchGone if another writer has taken over, and FilesUnfit if the table was changed so that
    the files do not fit any more.
    """
    what = f"committing {unpublished} again"
    files: list[DataFile] = []

    def added(table: Table, state: TableState) -> Sequence[DataFile]:
        if unpublished not in state.snapshots:
            raise RequestRefused(f"{what} of table {name}: there is no such snapshot")
        if (at := state.refs[branch]) != unpublished:
            raise Conflict(f"{what} of table {name}: the branch has moved to {at}")
        with client.calling(f"{what} of table {name}"):
            files.extend(() if files else added_files(table, unpublished))
        check_fit(table, unpublished)
        return files

    return _onto_both(client, name, branch, what, added, summary, refused, unpublished)


def append_published(
    client: CatalogClient,
    name: str,
    branch: str,
    rows: Sequence[Mapping[str, object]],
    summary: Summary,
    refused: Refusal | None = None,
) -> TableState:
    """Append a few rows to main and the branch in one commit upon main's head.

    The branch drops what it held unpublished. As with `publish_again`, `summary` is asked before each try, and only
    the writer that has the branch may write.
    """
    files, what = written_once(rows), f"appending by branch {branch}"

    def written(table: Table, _state: TableState) -> Sequence[DataFile]:
        with client.calling(f"{what} to table {name}"):
            return files(table)

    return _onto_both(client, name, branch, what, written, summary, refused)


def _onto_both(
    client: CatalogClient,
    name: str,
    branch: str,
    what: str,
    files: Files,
    summary: Summary,
    refused: Refusal | None,
    unpublished: int | None = None,
) -> TableState:
    """Set main and the branch to a new snapshot.

    `unpublished` is a snapshot with the same rows, whose own publication may arrive late.
    """

    def landed(state: TableState, ours: Collection[int]) -> bool:
        # A commit of ours moved main and the branch together, and only we move the branch.
        return (unpublished is not None and is_published(state, branch, unpublished)) or state.refs.get(branch) in ours

    def attempt(table: Table, state: TableState) -> ProposedCommit:
        if branch not in state.refs:
            raise BranchGone(f"{what} on branch {branch} of table {name}: the branch does not exist any more")
        text = summary(state)
        append = append_proposed(client, table, what, files(table, state), text)
        moves = (set_branch(branch, append.snapshot), set_branch(MAIN, append.snapshot))
        return ProposedCommit(
            (ref_is_at(MAIN, state.main), ref_is_at(branch, state.refs[branch])),
            (*append.updates, *moves, note_published(branch, append.snapshot)),
            append.snapshot,
        )

    return commit_loop(client, name, what, attempt, landed, tries=MANY, refused=refused)


def append_rows(
    client: CatalogClient, name: str, branch: str, rows: Sequence[Mapping[str, object]], summary: Mapping[str, str]
) -> UnpublishedSnapshot:
    """Write a few rows to the branch, upon main's head; the branch drops what it held unpublished."""
    files, what = written_once(rows), f"writing to branch {branch}"
    tried: dict[int, UnpublishedSnapshot] = {}

    def landed(state: TableState, ours: Collection[int]) -> bool:
        return state.refs.get(branch) in ours

    def attempt(table: Table, state: TableState) -> ProposedCommit:
        if branch not in state.refs:
            raise BranchGone(f"{what} of table {name}: the branch does not exist any more")
        with client.calling(f"{what} of table {name}"):
            written = files(table)
        append = append_proposed(client, table, what, written, summary)
        tried[append.snapshot] = UnpublishedSnapshot(append.snapshot, state.main)
        # Whether main has moved since then is for the publication to find out.
        updates = (*append.updates, set_branch(branch, append.snapshot))
        return ProposedCommit((ref_is_at(branch, state.refs[branch]),), updates, append.snapshot)

    at = commit_loop(client, name, what, attempt, landed, tries=MANY).refs.get(branch)
    # A catalog may answer with the table as it is a moment later, when another writer may have dropped the branch.
    return tried[at] if at in tried else [*tried.values()][-1]


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


def added_files(table: Table, unpublished: int) -> list[DataFile]:
    """List the files that the snapshot itself added.

    Files of snapshots below it are left out: a history that was cut can't tell whether main holds them.
    """
    snapshot = table.metadata.snapshot_by_id(unpublished)
    if snapshot is None or snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND:
        raise RequestRefused(f"snapshot {unpublished} does more than append, so its files cannot be committed again")
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == unpublished and manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == unpublished
    ]


def check_fit(table: Table, unpublished: int) -> None:
    """Raise FilesUnfit if the files of the snapshot can't be put upon today's main.

    The schema may have come to require a column that they lack.
    """
    snapshot = table.metadata.snapshot_by_id(unpublished)
    written_with = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    if written_with is None:
        return
    known = written_with.field_ids
    missing = [field.name for field in table.schema().fields if field.required and field.field_id not in known]
    if missing:
        raise FilesUnfit(f"the files of {unpublished} lack {', '.join(missing)}, which the table now requires")


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
