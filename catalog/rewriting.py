"""Changes rows of a table: files that hold them are rewritten, and replace the old ones in one commit.

Others may write to the table meanwhile. The commit requires main to be where it was seen. If it is not, every rewritten
file is used again as long as the file that it replaces is still in the table, unchanged.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from catalog.commits import MAIN, ProposedCommit, commit_loop, ref_is_at
from catalog.connection import CatalogClient
from catalog.direct_commits import Decide
from catalog.errors import FormatUnwritable, RequestRefused
from catalog.file_rows import read_rows, write_rows
from catalog.pyiceberg_internals import uncommitted_snapshot
from catalog.retries import MANY
from catalog.specs import TableState

REWRITTEN_FORMAT = 2  # the newest one: in later ones a row has a number, which it has to keep

RowChange = Callable[[pa.Table], tuple[pa.Table, int] | None]
"""Gets all live rows of a file, and returns them in the same columns with the number of those that it changed.

None if nothing has to be changed.
"""


def rewrite_rows(
    client: CatalogClient, name: str, column: str, change: RowChange, decide: Decide
) -> tuple[TableState, int]:
    """Change rows in the files that hold any value in the column, and count them; one file at a time is in memory.

    `decide` gives the summary before each try; what it raises ends the tries. If others have moved main, the commit is
    built again, unless all rows that had to be changed have been.
    """
    what = f"changing rows of table {name}"
    rewriting = _Rewriting(client, what, column, change, decide)
    state = commit_loop(client, name, what, rewriting.attempt, rewriting.landed, tries=MANY)
    return state, rewriting.changed


@dataclass(frozen=True)
class _NewFile:
    """A file in the place of another one, and how many of its rows were changed."""

    file: DataFile
    rows: int


@dataclass
class _Rewriting:
    client: CatalogClient
    what: str
    column: str
    change: RowChange
    decide: Decide
    changed: int = 0
    # A file is rewritten once, however often the commit is refused; None if nothing in it has to be changed.
    _rewritten: dict[tuple[object, ...], _NewFile | None] = field(default_factory=dict)
    _tried: dict[int, list[_NewFile]] = field(default_factory=dict)  # by snapshot, the files that it brings

    def landed(self, state: TableState, ours: Collection[int]) -> bool:
        history = {each.id for each in state.ancestors()}
        found = next((snapshot for snapshot in reversed([*ours]) if snapshot in history), None)
        if found is not None:
            self.changed = _count(self._tried[found])
        return found is not None

    def attempt(self, table: Table, state: TableState) -> ProposedCommit | None:
        if (version := table.metadata.format_version) > REWRITTEN_FORMAT:
            raise FormatUnwritable(
                f"{self.what}: it has format version {version}, whose files only engines can rewrite: use one of"
                f" version {REWRITTEN_FORMAT}"
            )
        with self.client.calling(self.what):
            tasks = _tasks(table)
        if (files := self._landed_and_expired(tasks)) is not None:
            self.changed = _count(files)
            return None
        with self.client.calling(self.what):
            exchanged = self._exchanged(table, tasks)
        if not exchanged:
            self.changed = 0
            return None
        summary = self.decide(state)
        with self.client.calling(self.what):
            producer = table.transaction().update_snapshot(dict(summary), branch=MAIN).overwrite()
            for old, new in exchanged:
                producer.delete_data_file(old)
                producer.append_data_file(new.file)
            updates, requirements = uncommitted_snapshot(producer)
        # Only the files of this commit: those that were written for a refused one may not be among them.
        files = self._tried[producer.snapshot_id] = [new for _, new in exchanged]
        self.changed = _count(files)
        return ProposedCommit((*requirements, ref_is_at(MAIN, state.main)), updates, producer.snapshot_id)

    def _landed_and_expired(self, tasks: Iterable[FileScanTask]) -> list[_NewFile] | None:
        """Find the try that took effect by its files, in case others have expired its snapshot since."""
        live = {task.file.file_path for task in tasks}
        tried = reversed(self._tried.values())
        return next((files for files in tried if live.issuperset(new.file.file_path for new in files)), None)

    def _exchanged(self, table: Table, tasks: Iterable[FileScanTask]) -> list[tuple[DataFile, _NewFile]]:
        found = []
        for task in tasks:
            old = task.file
            deletes = frozenset(each.file_path for each in task.delete_files)
            key = (old.file_path, deletes, table.metadata.current_schema_id, table.spec().spec_id)
            if key not in self._rewritten:
                holds = _may_hold(table, task, self.column)
                self._rewritten[key] = _rewritten(table, task, self.change) if holds else None
            if (new := self._rewritten[key]) is not None:
                found.append((old, new))
        return found


def rows_with(client: CatalogClient, name: str, columns: Sequence[str], holding: str) -> Iterator[pa.Table]:
    """Give some columns of the rows that hold a value in one of them, file by file; skips files without such rows."""
    table, what = client.table(name), f"reading table {name}"
    with client.calling(what):
        schema, tasks = table.schema().select(*columns), _tasks(table)
    for task in tasks:
        with client.calling(what):
            if not _may_hold(table, task, holding):
                continue
            found = read_rows(table, task, schema)
        yield found.filter(found[holding].is_valid())


def _count(files: Iterable[_NewFile]) -> int:
    return sum(new.rows for new in files)


def _tasks(table: Table) -> list[FileScanTask]:
    return [*table.scan().plan_files()] if table.current_snapshot() else []


def _may_hold(table: Table, task: FileScanTask, column: str) -> bool:
    """Whether the file may hold a value of the column, by its manifest, or else by its rows."""
    nulls = (task.file.null_value_counts or {}).get(table.schema().find_field(column).field_id)
    if nulls is not None:
        return bool(nulls < task.file.record_count)
    # In a table of more than a hundred columns, Iceberg's writers count nulls of the first ones only.
    found = read_rows(table, task, table.schema().select(column))[column]
    return bool(found.null_count < len(found))


def _rewritten(table: Table, task: FileScanTask, change: RowChange) -> _NewFile | None:
    if task.file.spec_id != table.spec().spec_id:
        raise RequestRefused(
            f"the file {task.file.file_path} is of an earlier partition layout: rewrite the table's files first"
        )
    changed = change(read_rows(table, task, table.schema()))
    if changed is None:
        return None
    rows, count = changed
    partition = None if table.spec().is_unpartitioned() else _SamePartition(task.file.partition, table, table.schema())
    return _NewFile(write_rows(table, rows, partition), count)


@dataclass(frozen=True)
class _SamePartition:
    """The partition of the file that is replaced; the changed rows stay in it, whatever it is computed from."""

    partition: Record
    table: Table
    schema: Schema

    def to_path(self) -> str:
        return self.table.spec().partition_to_path(self.partition, self.schema)
