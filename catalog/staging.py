"""Snapshots put on a writer's branch, on top of main's head: files staged again, and small appends."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table

from catalog.attempts import patiently
from catalog.commits import append_onto_main, commit, move, still
from catalog.connection import Lake
from catalog.errors import BranchGone, Conflict, FilesUnfit, OutcomeUnknown, Refused
from catalog.specs import Staged, TableState
from catalog.states import state_of

_APPENDS = "append"


def restage(lake: Lake, name: str, branch: str, staged: int, summary: Mapping[str, str]) -> Staged:
    """Put the files that a refused snapshot added on top of main's head; nothing is rewritten or doubled.

    One commit, under the requirement that the branch is still at `staged`. Should `staged` turn out to be
    published after all, it is given back as it is, and publishing it again succeeds. BranchGone where another
    writer has taken over; Refused where the table has since changed in a way that the files do not fit.
    """

    def landed(state: TableState) -> bool:
        if staged not in state.snapshots and branch in state.refs:
            raise Refused(f"staging {staged} of table {name} again: there is no such snapshot")
        published = state.contains(staged)
        if published is None and branch in state.refs:
            raise OutcomeUnknown(f"staging {staged} of table {name} again: whether it was published cannot be told")
        return bool(published)

    def files(table: Table) -> Sequence[DataFile]:
        return _added_files(table, staged)

    return _stage(lake, name, branch, files, summary, from_snapshot=staged, landed=landed)


def append_rows(
    lake: Lake, name: str, branch: str, rows: Sequence[Mapping[str, object]], summary: Mapping[str, str]
) -> Staged:
    """Write a few rows to the branch, on top of main's head; what it held unpublished is left behind."""
    if not rows:
        raise ValueError("an append without rows would still make a snapshot")
    written: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if not written:
            written.extend(_written(table, rows))
        return written

    return _stage(lake, name, branch, files, summary)


def _stage(
    lake: Lake,
    name: str,
    branch: str,
    files: Callable[[Table], Sequence[DataFile]],
    summary: Mapping[str, str],
    *,
    from_snapshot: int | None = None,
    landed: Callable[[TableState], bool] = lambda _: False,
) -> Staged:
    what = f"staging on branch {branch}"
    ours: set[int] = set()
    for last in patiently():
        table = lake.table(name)
        state = state_of(table)
        if from_snapshot is not None and landed(state):
            return Staged(from_snapshot, state.snapshots[from_snapshot].parent)
        if branch not in state.refs:
            raise BranchGone(f"{what} of table {name}: it is not there any more")
        at = state.refs[branch]
        if at in ours:
            # An attempt without an answer took effect.
            return Staged(at, state.snapshots[at].parent)
        if from_snapshot not in {None, at}:
            raise Conflict(f"{what} of table {name}: it has moved to {at}")
        with lake.calling(f"{what} of table {name}"):
            again = append_onto_main(table, _fitting(table, files(table)), summary)
        ours.add(again.snapshot)
        requirements = (still(branch, at), still("main", state.main))
        updates = (*again.updates, move(branch, again.snapshot))
        try:
            commit(lake, table, what, requirements, updates)
        except (Conflict, OutcomeUnknown):
            if last:
                raise
        else:
            return Staged(again.snapshot, state.main)
    raise AssertionError


def _added_files(table: Table, staged: int) -> list[DataFile]:
    """Give the files of the snapshot, and of those below it, that main does not hold."""
    state = state_of(table)
    on_main = {snapshot.id for snapshot in state.ancestors()}
    added: list[DataFile] = []
    for snapshot in state.lineage(staged):
        if snapshot.id in on_main:
            break
        if snapshot.summary.get("operation") != _APPENDS:
            raise Refused(f"snapshot {snapshot.id} does more than append, so it cannot be staged again")
        added += _files_added_by(table, snapshot.id)
    _check_required(table, staged)
    return added


def _files_added_by(table: Table, snapshot_id: int) -> list[DataFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot else []
    return [
        entry.data_file
        for manifest in manifests
        if manifest.added_snapshot_id == snapshot_id and manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
    ]


def _check_required(table: Table, staged: int) -> None:
    """Refuse where the schema has come to require a column that the files cannot have."""
    snapshot = table.metadata.snapshot_by_id(staged)
    written_with = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    if written_with is None:
        return
    known = written_with.field_ids
    missing = [field.name for field in table.schema().fields if field.required and field.field_id not in known]
    if missing:
        raise FilesUnfit(f"the files of {staged} lack {', '.join(missing)}, which the table now requires")


def _fitting(table: Table, files: Sequence[DataFile]) -> Sequence[DataFile]:
    spec_id = table.spec().spec_id
    if any(file.spec_id != spec_id for file in files):
        raise FilesUnfit("the table is now partitioned in another way than the files are")
    return files


def _written(table: Table, rows: Sequence[Mapping[str, object]]) -> list[DataFile]:
    schema = table.schema().as_arrow()
    unknown = sorted({key for row in rows for key in row} - set(schema.names))
    if unknown:
        # Arrow would drop them without a word.
        raise Refused(f"the table has no column {', '.join(unknown)}")
    frame: Any = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    files = list(_dataframe_to_data_files(table.metadata, frame, table.io, write_uuid=uuid.uuid4()))
    for file in files:
        # pyiceberg knows it only of files that were read from a manifest.
        file.spec_id = table.spec().spec_id
    return files
