"""The rows of the tables, read again: of each row its coordinates, and nothing else.

Each file is read once. In memory are the sets of offsets, and one batch of rows for each thread.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.operations.verify.offset_sets import OffsetSets, Run
from lakehouse_ingest.records import SOURCE, Offsets, TopicPartition
from lakehouse_ingest.tables import FileMissing, HeadFile, Pinned, PipelineTables

TOPIC, PARTITION, OFFSET, INDEX, LOG = COORDINATES = tuple(
    f"{SOURCE}.{name}" for name in ("topic", "partition", "offset", "index", "log")
)
BOUNDS = (PARTITION, OFFSET)
PIPELINE = "pipeline"  # a column of the dead-letter table
AT_ONCE = 8  # files

Spans = Mapping[TopicPartition, tuple[int, int]]
FileAt = tuple[str, int, str]  # a table, the snapshot that added a file to it, and the file


@dataclass(frozen=True)
class ScannedTable:
    """A table that may hold rows of this stream. Of the dead-letter table only the rows of `pipeline` count."""

    pinned: Pinned
    files: Sequence[HeadFile]
    pipeline: str | None = None

    @property
    def name(self) -> str:
        return self.pinned.state.name


@dataclass(frozen=True)
class ScanScope:
    """Which rows are looked at. Rows of a topic's older log are kept apart: their offsets meant other records."""

    complete: Offsets
    until: Offsets  # rows from here on are ignored
    logs: Mapping[str, Collection[str]]  # by topic; a row that names no log is of the present one

    def at(self, topic: str, partition: int, log: str | None) -> TopicPartition | None:
        if topic not in self.logs:
            return None
        at = (topic, partition)
        if log is None or log in self.logs[topic]:
            return at if at in self.until else None
        return f"{topic} (log {log})", partition

    def is_older(self, at: TopicPartition) -> bool:
        return at not in self.until


@dataclass
class RowScan:
    """One pass over all tables, file by file, several files at once."""

    lake: PipelineTables
    tables: Sequence[ScannedTable]
    scope: ScanScope
    held: OffsetSets = field(default_factory=OffsetSets)
    rows: Counter[str] = field(default_factory=Counter)  # by table, below `complete`
    beyond: int = 0
    older: Counter[str] = field(default_factory=Counter)  # rows of older logs, by topic
    extra: int = 0  # rows below `complete` that are too many
    missing: dict[str, tuple[ScannedTable, HeadFile]] = field(default_factory=dict)
    unread: dict[str, tuple[ScannedTable, HeadFile, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def read(self) -> None:
        self._each(self._read_file)

    def where(self, runs: Mapping[TopicPartition, Sequence[Run]]) -> dict[tuple[TopicPartition, Run], set[FileAt]]:
        """The files that hold something of these runs. A file is opened only if its bounds allow it."""
        found: dict[tuple[TopicPartition, Run], set[FileAt]] = defaultdict(set)
        spans = {at: (min(first for first, _ in of), max(last for _, last in of) + 1) for at, of in runs.items()}

        def look(table: ScannedTable, file: HeadFile) -> None:
            if not _overlaps(file, spans):
                return
            for at, _, offsets in self._rows(table, file):
                for first, last in runs.get(at, ()):
                    if len(_within(offsets, first, last + 1)):
                        with self._lock:
                            found[at, (first, last)].add((table.name, file.snapshot, file.path))

        self._each(look)
        return found

    def _each(self, do: Callable[[ScannedTable, HeadFile], None]) -> None:
        threads = ThreadPoolExecutor(AT_ONCE, "verify")
        try:
            read = [threads.submit(self._noting, do, table, file) for table in self.tables for file in table.files]
            for each in read:
                each.result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _noting(self, do: Callable[[ScannedTable, HeadFile], None], table: ScannedTable, file: HeadFile) -> None:
        """Notes a file that is gone or broken, so that the others are still read."""
        try:
            do(table, file)
        except FileMissing:
            self.missing[file.path] = (table, file)
        except NeedsOperator as failure:
            self.unread[file.path] = (table, file, str(failure))

    def _read_file(self, table: ScannedTable, file: HeadFile) -> None:
        for at, index, offsets in self._rows(table, file):
            if self.scope.is_older(at):
                self.held.add(at, index, offsets)
                with self._lock:
                    self.older[at[0].rpartition(" (log ")[0]] += len(offsets)
                continue
            end = self.scope.until[at]
            done = min(self.scope.complete.get(at, 0), end)
            complete, beyond = _within(offsets, 0, done), _within(offsets, done, end)
            extra = self.held.add(at, index, complete)
            self.held.add(at, index, beyond)
            with self._lock:
                self.rows[table.name] += len(complete)
                self.beyond += len(beyond)
                self.extra += extra

    def _rows(self, table: ScannedTable, file: HeadFile) -> Iterator[tuple[TopicPartition, int, pa.Array]]:
        """The offsets of a file's rows by partition and index, batch by batch."""
        columns = COORDINATES if table.pipeline is None else (*COORDINATES, PIPELINE)
        for batch in self.lake.batches_of(table.pinned, file, columns):
            wanted = pc.is_valid(batch[OFFSET])
            if table.pipeline is not None:
                wanted = pc.and_(wanted, pc.equal(batch[PIPELINE], table.pipeline))
            rows = pa.table(batch.filter(wanted))
            keys = [TOPIC, PARTITION, INDEX, LOG]
            groups = rows.group_by(keys, use_threads=False).aggregate([(OFFSET, "list")])
            for group, offsets in zip(groups.select(keys).to_pylist(), groups[f"{OFFSET}_list"], strict=True):
                at = self.scope.at(group[TOPIC], group[PARTITION], group[LOG])
                if at is not None:
                    yield at, group[INDEX] or 0, offsets.values


def _overlaps(file: HeadFile, spans: Spans) -> bool:
    """Whether the file may hold rows of these ranges. Without bounds in the manifest it has to be opened."""
    if not set(BOUNDS) <= set(file.bounds):
        return True
    (lowest, highest), (first, last) = (file.bounds[name] for name in BOUNDS)
    return any(
        start < end and start <= last and first < end and lowest <= at[1] <= highest
        for at, (start, end) in spans.items()
    )


def _within(offsets: pa.Array, start: int, end: int) -> pa.Array:
    if start >= end:
        return offsets.slice(0, 0)
    bounds = pc.min_max(offsets)
    if start <= bounds["min"].as_py() and bounds["max"].as_py() < end:
        return offsets
    return offsets.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
