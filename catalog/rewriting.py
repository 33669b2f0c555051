"""Rows changed where they are: the files that hold them are written anew, and exchanged for the old ones in one commit.

Like any maintenance this may be done while others write: the commit requires that main is where it was looked at, and
where it is not, what has been written serves again for every file that is still there as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from catalog.appends import TRIES
from catalog.commits import check_writable, commit, still
from catalog.connection import Lake
from catalog.conversions import state_of
from catalog.data_files import read_rows, write_rows
from catalog.direct_commits import Decide
from catalog.errors import Conflict, OutcomeUnknown, Refused
from catalog.retries import patiently
from catalog.specs import TableState

_MAIN = "main"

RowChange = Callable[[pa.Table], tuple[pa.Table, int] | None]
"""Given all live rows of a file, the same rows in the same columns, and how many of them are other ones now; None where
nothing has to be changed."""


def rewrite_rows(lake: Lake, name: str, column: str, change: RowChange, decide: Decide) -> tuple[TableState, int]:
    """Change rows in those files that hold any value in the column, and count them; a file at a time is in memory.

    `decide` is asked before each attempt for the summary of the commit; what it raises is the end. The commit is sent
    again where others have moved main, unless all that was to be changed has been.
    """
    what = f"changing rows of table {name}"
    done: dict[tuple[object, ...], _New | None] = {}
    ours: dict[int, list[_New]] = {}  # snapshot: the files that it brings
    for last in patiently(TRIES):
        table = lake.table(name)
        check_writable(table)
        state = state_of(table)
        with lake.calling(what):
            tasks = _tasks(table)
        if (heard := _heard(ours, state, tasks)) is not None:
            return state, _rows(heard)
        with lake.calling(what):
            exchanged = _exchanged(table, tasks, column, change, done)
        if not exchanged:
            return state, 0
        summary = decide(state)
        with lake.calling(what):
            producer = table.transaction().update_snapshot(dict(summary), branch=_MAIN).overwrite()
            for old, new in exchanged:
                producer.delete_data_file(old)
                producer.append_data_file(new.file)
            updates, requirements = producer._commit()  # noqa: SLF001 - the public way commits by itself, and repeats
        # Of the files that this commit exchanges: what was written for a refused one may not be among them.
        files = ours[producer.snapshot_id] = [new for _, new in exchanged]
        try:
            return commit(lake, table, what, (*requirements, still(_MAIN, state.main)), updates), _rows(files)
        except (Conflict, OutcomeUnknown):
            # The next look tells, also whether ours was heard without an answer.
            if last:
                raise
    raise AssertionError


def rows_with(lake: Lake, name: str, columns: Sequence[str], holding: str) -> Iterator[pa.Table]:
    """Give some columns of the rows that hold a value in one of them, file by file; others are not opened."""
    table, what = lake.table(name), f"reading table {name}"
    with lake.calling(what):
        schema, tasks = table.schema().select(*columns), _tasks(table)
    for task in tasks:
        with lake.calling(what):
            if not _holds(table, task, holding):
                continue
            found = read_rows(table, task, schema)
        yield found.filter(found[holding].is_valid())


@dataclass(frozen=True)
class _New:
    """A file in the place of another one, and how many of its rows were changed."""

    file: DataFile
    rows: int


def _heard(ours: dict[int, list[_New]], state: TableState, tasks: Iterable[FileScanTask]) -> list[_New] | None:
    """What the attempt brought that took effect; its files tell, too, where others have expired its snapshot."""
    history, live = {each.id for each in state.ancestors()}, {task.file.file_path for task in tasks}
    return next(
        (
            files
            for snapshot, files in reversed(ours.items())
            if snapshot in history or live.issuperset(new.file.file_path for new in files)
        ),
        None,
    )


def _rows(files: Iterable[_New]) -> int:
    return sum(new.rows for new in files)


def _exchanged(
    table: Table,
    tasks: Iterable[FileScanTask],
    column: str,
    change: RowChange,
    done: dict[tuple[object, ...], _New | None],
) -> list[tuple[DataFile, _New]]:
    found = []
    for task in tasks:
        old = task.file
        deletes = frozenset(each.file_path for each in task.delete_files)
        key = (old.file_path, deletes, table.metadata.current_schema_id, table.spec().spec_id)
        if key not in done:
            done[key] = _written(table, task, change) if _holds(table, task, column) else None
        if (new := done[key]) is not None:
            found.append((old, new))
    return found


def _tasks(table: Table) -> list[FileScanTask]:
    return [*table.scan().plan_files()] if table.current_snapshot() else []


def _holds(table: Table, task: FileScanTask, column: str) -> bool:
    """Whether a value of the column may be in there, by what the manifest says, or else the file."""
    nulls = (task.file.null_value_counts or {}).get(table.schema().find_field(column).field_id)
    if nulls is not None:
        return bool(nulls < task.file.record_count)
    # Of a table with more than a hundred columns Iceberg's writers count those in front only.
    found = read_rows(table, task, table.schema().select(column))[column]
    return bool(found.null_count < len(found))


def _written(table: Table, task: FileScanTask, change: RowChange) -> _New | None:
    if task.file.spec_id != table.spec().spec_id:
        raise Refused(
            f"the file {task.file.file_path} is of an earlier partition layout: rewrite the table's files first"
        )
    changed = change(read_rows(table, task, table.schema()))
    if changed is None:
        return None
    rows, count = changed
    place = None if table.spec().is_unpartitioned() else _Partition(task.file.partition, table, table.schema())
    return _New(write_rows(table, rows, place), count)


@dataclass(frozen=True)
class _Partition:
    """Where a file was before, whatever its partition is taken of."""

    partition: Record
    table: Table
    schema: Schema

    def to_path(self) -> str:
        return self.table.spec().partition_to_path(self.partition, self.schema)
