"""One table, a writer who commits batches to it through a troubled catalog, and others who write to it too."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import StringType

from catalog import (
    Attempts,
    CatalogClient,
    Column,
    DataFileReceipt,
    Decide,
    Expected,
    FencePosition,
    FileLayout,
    Partition,
    TableSpec,
    TableState,
    append_onto,
    create_table,
    land,
    load,
    open_branch,
)
from catalog.commits import MAIN, commit, drop_ref, set_branch, written_files
from tests.services.troubled import Troubled

COLUMNS = (Column("id", "long"), Column("site", "string"))
BRANCH = "ours_1"
TOKEN = "test.batch"


def expire_history(table: Table) -> None:
    """All snapshots that no ref leads to directly, as somebody may do who keeps no history."""
    held = {ref.snapshot_id for ref in table.metadata.refs.values()}
    expiry = table.maintenance.expire_snapshots()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id not in held:
            expiry = expiry.by_id(snapshot.snapshot_id)
    expiry.commit()


@dataclass
class LandingBench:
    """`others` is the catalog without trouble."""

    others: CatalogClient
    name: str
    format_version: int = 2
    columns: Sequence[Column] = COLUMNS
    formats: Sequence[int] = (1, 2)  # that the catalog makes
    partitions: Sequence[Partition] = ()
    settled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.troubles = Troubled(self.others.pyiceberg)
        self.lake = self.troubles.client(self.settled.append)
        self.create()

    def create(self) -> None:
        """With one row of somebody else's, id 0."""
        properties = {"format-version": str(self.format_version)}
        create_table(
            self.others, TableSpec(self.name, tuple(self.columns), tuple(self.partitions), properties=properties)
        )
        self.append(0)

    def table(self) -> Table:
        return self.others.pyiceberg.load_table(self.name)

    def state(self) -> TableState:
        return load(self.others, self.name)

    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def refs(self) -> dict[str, int]:
        return dict(self.state().refs)

    # -- the writer -----------------------------------------------------------------------------------------

    def writer(self, branch: str = BRANCH, drop: Sequence[str] = ()) -> "LandingWriter":
        return LandingWriter(self, self._opened(branch, drop))

    def writer_on_main(self) -> "LandingWriter":
        return LandingWriter(self, Expected(self.state().uuid, None))

    def _opened(self, branch: str, drop: Sequence[str]) -> Expected:
        state = open_branch(self.others, self.name, branch, drop)
        return Expected(state.uuid, FencePosition(branch, state.refs[branch]))

    def files(self, *ids: int) -> tuple[list[DataFileReceipt], FileLayout]:
        table = self.table()
        layout = FileLayout(table.metadata.current_schema_id, table.metadata.default_spec_id)
        rows = [{"id": each, "site": f"site {each}"} for each in ids]
        there = [{name: row[name] for name in row if name in table.schema().column_names} for row in rows]
        return [receipt_of(each) for each in (written_files(table, there) if ids else [])], layout

    # -- others ---------------------------------------------------------------------------------------------

    def append(self, *ids: int) -> None:
        there = self.table().schema().column_names
        rows = [{"id": each, "site": "foreign"} for each in ids]
        append_onto(
            self.others, self.name, [{name: row[name] for name in row if name in there} for row in rows], lambda _: {}
        )

    def add_twins(self) -> None:
        """Two commits at once, so that the number of the next snapshot is taken as well."""
        self.append(8)
        self.append(8)

    def compact(self) -> None:
        table = self.table()
        if table.metadata.format_version < 3:
            table.overwrite(table.scan().to_arrow())

    def expire(self) -> None:
        expire_history(self.table())

    def roll_back(self, snapshot: int | None) -> None:
        assert snapshot is not None
        commit(self.others, self.table(), "rolling back", (), (set_branch(MAIN, snapshot),))

    def drop_branch(self, branch: str = BRANCH) -> None:
        commit(self.others, self.table(), "dropping", (), (drop_ref(branch),))

    def move_branch(self, snapshot: int, branch: str = BRANCH) -> None:
        commit(self.others, self.table(), "moving", (), (set_branch(branch, snapshot),))

    def recreate(self) -> None:
        self.others.pyiceberg.drop_table(self.name)
        self.create()

    def add_column(self, name: str = "more") -> None:
        with self.table().update_schema() as update:
            update.add_column(name, StringType())

    def rename_column(self) -> None:
        with self.table().update_schema() as update:
            update.rename_column("site", "place")

    def drop_column(self) -> None:
        with self.table().update_schema() as update:
            update.delete_column("site")

    def recreate_column(self, name: str = "site") -> None:
        with self.table().update_schema() as update:
            update.delete_column(name)
        self.add_column(name)

    def repartition(self) -> None:
        with self.table().update_spec() as update:
            update.add_identity("site")


@dataclass
class LandingWriter:
    """Knows where it left its fence, as a start does."""

    bench: LandingBench
    expected: Expected

    def land(
        self,
        *ids: int,
        files: tuple[list[DataFileReceipt], FileLayout] | None = None,
        attempts: Attempts | None = None,
        decide: Decide = lambda _: {},
        refused: Callable[[int, Exception], None] | None = None,
    ) -> TableState:
        written, layout = files or self.bench.files(*ids)
        attempts = Attempts() if attempts is None else attempts
        lake, name = self.bench.lake, self.bench.name
        state = land(lake, name, written, layout, self.expected, decide, attempts, refused)
        self.follow(state)
        return state

    def follow(self, state: TableState) -> None:
        if fence := self.expected.fence:
            self.expected = replace(self.expected, fence=replace(fence, snapshot=state.refs[fence.branch]))


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is refused is tried again at once, and nobody waits for the disk."""
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def writer(bench: LandingBench) -> LandingWriter:
    return bench.writer()


def doubled(ids: Sequence[int]) -> list[int]:
    return sorted(each for each, count in Counter(ids).items() if count > 1)


def receipt_of(file: DataFile) -> DataFileReceipt:
    return DataFileReceipt(
        path=file.file_path,
        partition=tuple(file.partition[at] for at in range(len(file.partition))),
        spec_id=file.spec_id,
        record_count=file.record_count,
        size=file.file_size_in_bytes,
        column_sizes=file.column_sizes or {},
        value_counts=file.value_counts or {},
        null_counts=file.null_value_counts or {},
        nan_counts=file.nan_value_counts or {},
        lower_bounds=file.lower_bounds or {},
        upper_bounds=file.upper_bounds or {},
        split_offsets=tuple(file.split_offsets or ()),
        sort_order_id=file.sort_order_id,
    )


def data_files(attempts: Attempts) -> set[str]:
    return {path for each in attempts.tries for path in each.paths if path.endswith(".parquet")}


def live(bench: LandingBench) -> set[str]:
    return {task.file.file_path for task in bench.table().scan().plan_files()}


def assert_all_there(bench: LandingBench, attempts: Attempts) -> None:
    io = bench.table().io
    assert attempts.tries
    missing = {path for each in attempts.tries for path in each.paths if not io.new_input(path).exists()}
    assert missing == set()
