"""Snapshots on top of main's head: small appends on a writer's branch, and files that were refused there before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _determine_partitions
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from catalog.commits import WRITTEN_FORMAT, Append, append_onto_main, commit, is_published, move, note, still
from catalog.connection import Lake
from catalog.conversions import state_of
from catalog.data_files import write_rows
from catalog.errors import BranchGone, CatalogError, Conflict, FilesUnfit, OutcomeUnknown, Refused, Unreachable
from catalog.retries import patiently
from catalog.specs import Staged, TableState

# Each is a race that a busy neighbour wins more often than not: it needs no more than one that we win.
TRIES = 24


def publish_again(
    lake: Lake,
    name: str,
    branch: str,
    staged: int,
    summary: Callable[[TableState], Mapping[str, str]],
    refused: Callable[[int, CatalogError], None] = lambda _attempt, _why: None,
) -> TableState:
    """Set main to a new snapshot that adds the files of a refused one, and of none below it, to main's head.

    Nothing is rewritten or doubled. One commit, which takes the branch along, under the requirement that main and the
    branch are where they were looked at: whoever commits without a pause leaves little time. `summary` is asked each
    time, of the table as it is then; what it raises is the end. Should `staged` turn out to be published after all,
    nothing is done. BranchGone where another writer has taken over; FilesUnfit where the table has since changed in a
    way that the files do not fit.
    """
    what = f"staging {staged} again"
    files: list[DataFile] = []

    def added(table: Table, state: TableState) -> Sequence[DataFile]:
        if staged not in state.snapshots:
            raise Refused(f"{what} of table {name}: there is no such snapshot")
        if (at := state.refs[branch]) != staged:
            raise Conflict(f"{what} of table {name}: the branch has moved to {at}")
        with lake.calling(f"{what} of table {name}"):
            files.extend(() if files else added_files(table, staged))
        check_fit(table, staged)
        return files

    return _onto_both(lake, name, branch, what, added, summary, refused, staged)


def append_published(
    lake: Lake,
    name: str,
    branch: str,
    rows: Sequence[Mapping[str, object]],
    summary: Callable[[TableState], Mapping[str, str]],
    refused: Callable[[int, CatalogError], None] = lambda _attempt, _why: None,
) -> TableState:
    """Write a few rows to main and the branch in one commit, upon main's head; what the branch held unpublished is left
    behind. As `publish_again` does it: `summary` is asked at each look, and only who has the branch may write."""
    files, what = written_once(rows), f"appending by branch {branch}"

    def written(table: Table, _state: TableState) -> Sequence[DataFile]:
        with lake.calling(f"{what} to table {name}"):
            return files(table)

    return _onto_both(lake, name, branch, what, written, summary, refused)


def _onto_both(
    lake: Lake,
    name: str,
    branch: str,
    what: str,
    files: Callable[[Table, TableState], Sequence[DataFile]],
    summary: Callable[[TableState], Mapping[str, str]],
    refused: Callable[[int, CatalogError], None],
    staged: int | None = None,
) -> TableState:
    """Set main and the branch to a new snapshot; `staged`: one that is the same, and may have been published."""
    ours: set[int] = set()
    for attempt, last in enumerate(patiently(TRIES), 1):
        table = lake.table(name)
        state = state_of(table)
        # An attempt without an answer took effect where the branch is at what it made; main went along.
        if (staged is not None and is_published(state, branch, staged)) or state.refs.get(branch) in ours:
            return state
        if branch not in state.refs:
            raise BranchGone(f"{what} on branch {branch} of table {name}: it is not there any more")
        text = summary(state)
        wanted = files(table, state)
        requirements = (still("main", state.main), still(branch, state.refs[branch]))
        try:
            again = built(lake, table, what, wanted, text)
            ours.add(again.snapshot)
            updates = (*again.updates, move(branch, again.snapshot), move("main", again.snapshot))
            return commit(lake, table, what, requirements, (*updates, note(branch, again.snapshot)))
        except (Conflict, OutcomeUnknown) as failure:
            if last:
                raise
            refused(attempt, failure)
    raise AssertionError


def append_rows(
    lake: Lake, name: str, branch: str, rows: Sequence[Mapping[str, object]], summary: Mapping[str, str]
) -> Staged:
    """Write a few rows to the branch, on top of main's head; what it held unpublished is left behind."""
    return _stage(lake, name, branch, written_once(rows), summary)


def _stage(
    lake: Lake,
    name: str,
    branch: str,
    files: Callable[[Table], Sequence[DataFile]],
    summary: Mapping[str, str],
) -> Staged:
    what = f"staging on branch {branch}"
    ours: set[int] = set()
    for last in patiently(TRIES):
        table = lake.table(name)
        state = state_of(table)
        if branch not in state.refs:
            raise BranchGone(f"{what} of table {name}: it is not there any more")
        at = state.refs[branch]
        if at in ours:
            # An attempt without an answer took effect.
            return Staged(at, state.snapshots[at].parent)
        with lake.calling(f"{what} of table {name}"):
            written = files(table)
        try:
            again = built(lake, table, what, written, summary)
            ours.add(again.snapshot)
            # Whether main has moved meanwhile is for the publication to find.
            commit(lake, table, what, (still(branch, at),), (*again.updates, move(branch, again.snapshot)))
        except (Conflict, OutcomeUnknown):
            if last:
                raise
        else:
            return Staged(again.snapshot, state.main)
    raise AssertionError


def built(lake: Lake, table: Table, what: str, files: Sequence[DataFile], summary: Mapping[str, str]) -> Append:
    """Put the files upon main's head; Conflict where others have moved it since, and removed what it was made of."""
    name, head = ".".join(table.name()), state_of(table).main
    try:
        with lake.calling(f"{what} of table {name}"):
            return append_onto_main(table, fitting(table, files), summary)
    except Unreachable as missing:
        if lake.state(name).main == head:
            raise
        raise Conflict(str(missing)) from missing


def added_files(table: Table, staged: int) -> list[DataFile]:
    """Give the files that the snapshot added; of those below it cut history could not tell what main holds."""
    snapshot = table.metadata.snapshot_by_id(staged)
    assert snapshot
    if snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND:
        raise Refused(f"snapshot {staged} does more than append, so it cannot be staged again")
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == staged and manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == staged
    ]


def check_fit(table: Table, staged: int) -> None:
    """Refuse what only the engine that wrote the files can put upon another main, and a schema that has come to
    require a column which they cannot have."""
    if (version := table.metadata.format_version) > WRITTEN_FORMAT:
        raise FilesUnfit(f"{staged} can't be staged again from here, for the table has format version {version}")
    snapshot = table.metadata.snapshot_by_id(staged)
    written_with = table.schemas().get(snapshot.schema_id) if snapshot and snapshot.schema_id is not None else None
    if written_with is None:
        return
    known = written_with.field_ids
    missing = [field.name for field in table.schema().fields if field.required and field.field_id not in known]
    if missing:
        raise FilesUnfit(f"the files of {staged} lack {', '.join(missing)}, which the table now requires")


def fitting(table: Table, files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Give them back if they lie as the table is partitioned now."""
    spec_id = table.spec().spec_id
    if any(file.spec_id != spec_id for file in files):
        raise FilesUnfit("the table is now partitioned in another way than the files are")
    return files


def written_once(rows: Sequence[Mapping[str, object]]) -> Callable[[Table], Sequence[DataFile]]:
    """Give what writes the rows, however often it is asked: the next attempt has the files of the refused one."""
    if not rows:
        raise ValueError("an append without rows would still make a snapshot")
    written: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if not written:
            written.extend(written_files(table, rows))
        return written

    return files


def written_files(table: Table, rows: Sequence[Mapping[str, object]]) -> list[DataFile]:
    """Write the rows; no snapshot has them yet."""
    schema = table.schema().as_arrow()
    unknown = sorted({key for row in rows for key in row} - set(schema.names))
    if unknown:
        # Arrow would drop them without a word.
        raise Refused(f"the table has no column {', '.join(unknown)}")
    frame: Any = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    if table.spec().is_unpartitioned():
        return [write_rows(table, frame, None)]
    parts = _determine_partitions(table.spec(), table.schema(), frame)
    return [write_rows(table, part.arrow_table_partition, part.partition_key) for part in parts]
