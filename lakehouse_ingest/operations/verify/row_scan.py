"""The rows of the tables, read again: of each its coordinates, and nothing else.

A file is read once as long as all offsets fit into memory as bits, and no oftener than there are windows where they
don't. What is in memory are pages and a batch for each thread, whatever the tables hold.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.operations.verify.offset_sets import Pages, Run, joined
from lakehouse_ingest.records import SOURCE, Offsets, TopicPartition
from lakehouse_ingest.tables import FileMissing, HeadFile, Lake, Pinned

TOPIC, PARTITION, OFFSET, INDEX, LOG = COORDINATES = tuple(
    f"{SOURCE}.{name}" for name in ("topic", "partition", "offset", "index", "log")
)
BOUNDS = (PARTITION, OFFSET)
PIPELINE = "pipeline"  # a column of the dead letters
AT_ONCE = 8  # files
MOST_RUNS = 10_000  # of duplicates in one partition that are remembered until they are listed

Window = Mapping[TopicPartition, tuple[int, int]]
Place = tuple[str, int, str]  # a table, the snapshot that added a file to it, and the file


@dataclass(frozen=True)
class Holder:
    """A table that may hold rows of ours; of the dead letters only those of one pipeline."""

    pinned: Pinned
    files: Sequence[HeadFile]
    pipeline: str | None = None

    @property
    def name(self) -> str:
        return self.pinned.state.name


@dataclass(frozen=True)
class Scope:
    """Which rows are looked at. Those of an older log of a topic, whose offsets meant other records, are kept apart."""

    complete: Offsets
    until: Offsets  # rows there and beyond are others' affair
    logs: Mapping[str, Collection[str]]  # by topic; a row without is of the log that there is now

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
class Recount:
    """One window of offsets over all tables; one of the windows has the rows of older logs as well."""

    lake: Lake
    holders: Sequence[Holder]
    scope: Scope
    with_older: bool = True
    pages: Pages = field(default_factory=Pages)
    rows: Counter[str] = field(default_factory=Counter)  # by table, below `complete`
    beyond: int = 0
    older: Counter[str] = field(default_factory=Counter)  # rows of older logs, by topic
    extra: int = 0  # rows below `complete` that are too many
    again: dict[TopicPartition, list[Run]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[str, tuple[Holder, HeadFile]] = field(default_factory=dict)
    unread: dict[str, tuple[Holder, HeadFile, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def read(self, window: Window) -> None:
        """Raises Full where there are too few pages for it."""
        self._each(partial(self._read_file, window))

    def lowest(self) -> dict[TopicPartition, int]:
        """The first offset that any table holds, without any page."""
        found: dict[TopicPartition, int] = {}

        def look(holder: Holder, file: HeadFile) -> None:
            for at, _, offsets in self._rows(holder, file):
                first = pc.min(offsets).as_py()
                with self._lock:
                    found[at] = min(first, found.get(at, first))
                    if self.scope.is_older(at):
                        self.older[at[0].rpartition(" (log ")[0]] += len(offsets)

        self._each(look)
        return found

    def where(self, runs: Mapping[TopicPartition, Sequence[Run]]) -> dict[tuple[TopicPartition, Run], set[Place]]:
        """Every file that holds something of these runs; only those that may are opened."""
        found: dict[tuple[TopicPartition, Run], set[Place]] = defaultdict(set)
        window = {at: (min(first for first, _ in of), max(last for _, last in of) + 1) for at, of in runs.items()}

        def look(holder: Holder, file: HeadFile) -> None:
            if not _overlaps(file, window):
                return
            for at, _, offsets in self._rows(holder, file):
                for first, last in runs.get(at, ()):
                    if len(_within(offsets, first, last + 1)):
                        with self._lock:
                            found[at, (first, last)].add((holder.name, file.snapshot, file.path))

        self._each(look)
        return found

    def _each(self, do: Callable[[Holder, HeadFile], None]) -> None:
        threads = ThreadPoolExecutor(AT_ONCE, "recount")
        try:
            read = [threads.submit(self._noting, do, holder, file) for holder in self.holders for file in holder.files]
            for each in read:
                each.result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _noting(self, do: Callable[[Holder, HeadFile], None], holder: Holder, file: HeadFile) -> None:
        """A file that is gone or broken keeps none of the others from being read."""
        try:
            do(holder, file)
        except FileMissing:
            self.missing[file.path] = (holder, file)
        except NeedsOperator as failure:
            self.unread[file.path] = (holder, file, str(failure))

    def _read_file(self, window: Window, holder: Holder, file: HeadFile) -> None:
        if not (self.with_older or _overlaps(file, window)):
            return
        for at, index, offsets in self._rows(holder, file):
            if self.scope.is_older(at):
                if self.with_older:
                    self._add(at, index, offsets)
                    with self._lock:
                        self.older[at[0].rpartition(" (log ")[0]] += len(offsets)
            elif at in window:
                start, end = window[at]
                done = min(max(start, self.scope.complete.get(at, 0)), end)
                rows = _within(offsets, start, done)
                extra = self._add(at, index, rows)
                under_way = _within(offsets, done, end)
                self._add(at, index, under_way)
                with self._lock:
                    self.rows[holder.name] += len(rows)
                    self.beyond += len(under_way)
                    self.extra += extra

    def _add(self, at: TopicPartition, index: int, offsets: pa.Array) -> int:
        if not len(offsets):
            return 0
        with self._lock:
            extra, again = self.pages.add(at, index, offsets)
            if again:
                runs = self.again[at]
                runs += again
                if len(runs) > MOST_RUNS:
                    self.again[at] = joined(runs)[:MOST_RUNS]
            return extra

    def _rows(self, holder: Holder, file: HeadFile) -> Iterator[tuple[TopicPartition, int, pa.Array]]:
        """The offsets in a file by partition and index, batch by batch."""
        columns = COORDINATES if holder.pipeline is None else (*COORDINATES, PIPELINE)
        for batch in self.lake.batches_of(holder.pinned, file, columns):
            wanted = pc.is_valid(batch[OFFSET])
            if holder.pipeline is not None:
                wanted = pc.and_(wanted, pc.equal(batch[PIPELINE], holder.pipeline))
            table = pa.table(batch.filter(wanted))
            keys = [TOPIC, PARTITION, INDEX, LOG]
            groups = table.group_by(keys, use_threads=False).aggregate([(OFFSET, "list")])
            for group, offsets in zip(groups.select(keys).to_pylist(), groups[f"{OFFSET}_list"], strict=True):
                at = self.scope.at(group[TOPIC], group[PARTITION], group[LOG])
                if at is not None:
                    yield at, group[INDEX] or 0, offsets.values


def _overlaps(file: HeadFile, window: Window) -> bool:
    """Where the manifest says nothing the file has to be opened to know."""
    if not set(BOUNDS) <= set(file.bounds):
        return True
    (lowest, highest), (first, last) = (file.bounds[name] for name in BOUNDS)
    return any(
        start < end and start <= last and first < end and lowest <= at[1] <= highest
        for at, (start, end) in window.items()
    )


def _within(offsets: pa.Array, start: int, end: int) -> pa.Array:
    if start >= end:
        return offsets.slice(0, 0)
    bounds = pc.min_max(offsets)
    if start <= bounds["min"].as_py() and bounds["max"].as_py() < end:
        return offsets
    return offsets.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
