"""The catalog, for one pipeline: its tables, and our place on each of them."""

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict

import pyarrow as pa

import catalog
from catalog import Evolution, HeadFile, LiveFile, Pinned, TableState
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import PROMOTED, REGISTERED, TOPIC, TYPE
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Token
from lakehouse_ingest.tables.errors import (
    CREATE,
    URI,
    EpochTaken,
    LostRace,
    explained,
    makeable,
    superseded,
    with_advice,
)
from lakehouse_ingest.tables.position import Known, Place, Registered, has_landed, newest_epoch
from lakehouse_ingest.tables.publishing import WAYS, Refused, Target
from lakehouse_ingest.tables.retention import Retention
from lakehouse_ingest.tables.turns import Turns

CLAIM_TRIES = 8
FOLLOW = catalog.Contract(max_columns=None, max_depth=None)  # what somebody has asked for, and not the data


class Lake:
    """The catalog, for one pipeline."""

    def __init__(
        self,
        connection: catalog.Connection,
        pipeline: str,
        publish: str = "branch",
        refused: Refused = lambda _table, _attempt, _error: None,
        settled: Callable[[str], None] = lambda _table: None,  # told of a commit whose answer was lost, and that landed
        *,
        create: bool = True,  # what is missing; else it is refused
        turns: Turns | None = None,  # shared with the other streams of this process
        retention: Callable[[str], Retention | None] = lambda _table: None,  # of a table; None: nothing may expire
    ) -> None:
        with explained():
            try:
                self._lake = catalog.connect(connection, settled)
            except catalog.Refused as refusal:
                raise SettingsRefused(with_advice(refusal, URI)) from refusal
            except catalog.Unreachable as away:
                raise TryAgain(with_advice(away, URI)) from away
        self._pipeline, self.creates = pipeline, create
        self._way = WAYS[publish](self._lake, pipeline, refused, turns or Turns(), retention)
        self._taken = 0  # the last epoch that was asked for, got or not: an answer may be lost

    def ensure_namespace(self, namespace: str) -> None:
        with explained(), makeable(), self._made_by_others():
            catalog.ensure_namespace(self._lake, namespace, create=self.creates)

    def has_namespace(self, namespace: str) -> bool:
        with explained():
            return catalog.has_namespace(self._lake, namespace)

    @contextmanager
    def probe(self, namespace: str) -> Iterator[tuple[str, str]]:
        """A table of one column, and its location; gone when the block ends."""
        with explained(), makeable(), catalog.probe_table(self._lake, namespace) as state:
            yield state.name, state.location

    def write_and_read(self, table: str) -> None:
        """A row in such a table, there and back."""
        with explained():
            catalog.write_and_read(self._lake, table)

    def find(self, table: str) -> TableState | None:
        with explained():
            try:
                return catalog.load(self._lake, table)
            except catalog.TableMissing:
                return None

    def find_all(self, tables: Collection[str], threads: Executor) -> dict[str, TableState | None]:
        """Side by side: one after the other, hundreds of them take longer than the catalog needs."""
        return dict(zip(tables, threads.map(self.find, tables), strict=True))

    def look(self, table: str) -> catalog.Inspection:
        """What stands under the name, whatever it is."""
        with explained():
            return catalog.inspect(self._lake, table)

    def create(self, spec: catalog.TableSpec) -> TableState:
        with explained(), self._made_by_others():
            return catalog.create_table(self._lake, spec, create=self.creates)

    def need(self, *tables: str) -> None:
        """Refuse one that there is not, where it would not be made."""
        for table in () if self.creates else tables:
            self.create(catalog.TableSpec(table, ()))

    @contextmanager
    def _made_by_others(self) -> Iterator[None]:
        try:
            yield
        except (catalog.NamespaceMissing, catalog.TableMissing) as missing:
            if self.creates:
                raise
            raise SettingsRefused(with_advice(missing, CREATE)) from missing

    def rows_since(
        self, table: str, column: str, moment: dt.datetime, columns: Sequence[str]
    ) -> list[dict[str, object]]:
        with explained():
            return catalog.rows_since(self._lake, table, column, moment, columns)

    def follow(
        self, table: str, changes: Sequence[Evolution], contract: catalog.Contract = FOLLOW
    ) -> tuple[TableState, catalog.Plan]:
        """The table as it is then, all changes in one commit; the plan says which the contract did not allow."""
        with explained():
            state = catalog.load(self._lake, table)
            wanted = catalog.TableSpec(table, catalog.evolved(state.columns, changes))
            planned = catalog.plan(state, wanted, contract)
            return catalog.apply(self._lake, table, planned) if planned.changes else state, planned

    def rows_with(self, table: str, columns: Sequence[str], holding: str) -> Iterator[pa.Table]:
        with explained():
            yield from catalog.rows_with(self._lake, table, columns, holding)

    def change_rows(self, table: str, holding: str, change: catalog.RowChange, why: str) -> int:
        """How many; by nobody's start: whoever runs goes on, for no mark is moved and no epoch taken."""

        def decide(state: TableState) -> Mapping[str, str]:
            return {**marks.as_it_was(self.seen(state).carried), PROMOTED: why}

        with explained():
            return catalog.rewrite_rows(self._lake, table, holding, change, decide)[1]

    def lay_out(self, table: str, partitions: Sequence[catalog.Partition]) -> tuple[TableState, list[str]]:
        """Other partitions for what is written from now on; the table as it is then, and what was changed."""
        with explained():
            state = catalog.load(self._lake, table)
            wanted = catalog.TableSpec(table, state.columns, tuple(partitions))
            planned = catalog.plan(state, wanted, catalog.Contract(partitions=catalog.Rule.EVOLVE))
            return catalog.apply(self._lake, table, planned), [str(change) for change in planned.changes]

    def tell(self, table: str, properties: Mapping[str, str]) -> None:
        with explained():
            catalog.set_properties(self._lake, table, properties)

    # -- one head of a table, whatever is committed meanwhile; FileMissing is passed on ----------------------

    def pin(self, table: str) -> Pinned | None:
        with explained():
            try:
                return catalog.pin(self._lake, table)
            except catalog.TableMissing:
                return None

    def files_of(self, pinned: Pinned, bounds_of: Sequence[str]) -> list[HeadFile]:
        with explained():
            return list(pinned.files(bounds_of))

    def batches_of(self, pinned: Pinned, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with explained():
            yield from pinned.batches(file, columns)

    def names_in(self, namespace: str) -> list[str]:
        with explained():
            try:
                return sorted(catalog.names_in(self._lake, namespace))
            except catalog.NamespaceMissing:
                raise SettingsRefused(f"there is no namespace {namespace}: see `catalog.namespace`") from None

    def live_files(self, table: str, snapshot: int | None, *, deletes: bool) -> Iterator[LiveFile]:
        """Of main's head, or of another snapshot; refused where rows of them were deleted, unless that is known."""
        with explained():
            try:
                yield from catalog.live_files(self._lake, table, snapshot, deletes=deletes)
            except catalog.TableMissing:
                said = f"there is no table {table}: name one of another namespace as namespace.table"
                parts = " (where a name has dots of its own, it can't be told)" if table.count(".") > 1 else ""
                raise SettingsRefused(f"{said}{parts}") from None
            except catalog.FileMissing as missing:
                raise TableChanged(f"{missing}: restore it, or expire the snapshots that refer to it") from missing

    def has_file(self, pinned: Pinned, path: str) -> bool:
        with explained():
            return pinned.exists(path)

    def metadata_size(self, table: str) -> int:
        with explained():
            try:
                return catalog.pin(self._lake, table).metadata_size()
            except (catalog.TableMissing, catalog.FileMissing) as missing:
                raise TryAgain(str(missing)) from missing

    # -- the tables of a pipeline -------------------------------------------------------------------------

    def registered(self, record: str) -> dict[str, "Registered"]:
        """The tables that this pipeline has landed in, or was about to, as the batch record's properties say."""
        state = self.find(record)
        return self.registered_in(state) if state else {}

    def registered_in(self, record: TableState) -> dict[str, "Registered"]:
        prefix = self._registered_as("")
        return {
            key.removeprefix(prefix): Registered(**json.loads(text))
            for key, text in record.properties.items()
            if key.startswith(prefix)
        }

    def register(self, record: str, tables: Mapping[str, "Registered"]) -> None:
        """Before the first row lands in a table: a start has to know them all."""
        if not tables:
            return
        self.tell(record, {self._registered_as(name): json.dumps(asdict(each)) for name, each in tables.items()})

    def knows(self, table: str) -> bool:
        """Whether a start of this pipeline has ever come so far as to leave its mark or its branch there."""
        return self._newest_epoch(table) > 0

    def has_landed_in(self, state: TableState) -> bool:
        return has_landed(state, self._pipeline)

    def known_in(self, namespace: str) -> Known:
        """The tables of a namespace that know this pipeline, whatever the batch record says."""
        tables: dict[str, Registered] = {}
        unread: dict[str, LakehouseError] = {}
        for name in self.names_in(namespace):
            try:
                state = self.find(name)
            except LakehouseError as failure:
                unread[name] = failure
                continue
            if state and newest_epoch(state, self._pipeline):
                tables[name] = Registered(state.uuid, state.properties.get(TOPIC, ""), state.properties.get(TYPE, ""))
        return Known(tables, unread)

    def heads(self, record: str) -> dict[str, marks.Head]:
        """The last landing in each table, as the batch record has it."""
        state = self.find(record)
        return self.heads_in(state) if state else {}

    def heads_in(self, record: TableState) -> dict[str, marks.Head]:
        return marks.heads((each.summary for each in record.ancestors()), self._pipeline)

    def _registered_as(self, table: str) -> str:
        return f"{REGISTERED}{self._pipeline}.{table}"

    # -- our place ----------------------------------------------------------------------------------------

    @property
    def has_claimed(self) -> bool:
        """Whether a start of this process has: the next one takes over from no other."""
        return self._taken > 0

    def claim(self, first: str, others: Sequence[str]) -> tuple[int, Place]:
        """Take the next epoch, and our place on the `first` table with it."""
        place, _ = self.claimed(first, others)
        return place.epoch, place

    def claimed(self, first: str, others: Sequence[str]) -> tuple[Place, TableState]:
        """Take the next epoch: whoever opens the `first` table with it has it, and nobody else. Gives that table as
        the claim has left it: a look at it later may be answered by a replica that has not heard of the claim.

        The second time it is to go on after a failure, which must not take over from whoever has come since.
        """
        again = self._taken > 0
        for _ in range(CLAIM_TRIES):
            newest = max(self._newest_epoch(table) for table in (first, *others))
            if again and newest > self._taken:
                raise superseded(self._pipeline, newest)
            self._taken = newest + 1
            try:
                state = self._open(first, self._taken, claiming=True)
                return self._way.place(state, self._taken), state
            except EpochTaken:
                self._taken -= 1
            except LostRace:
                # A proxy that repeats a request gets a refusal for one that was heard: then the epoch is there, and is
                # ours as if the answer had been lost.
                if self._newest_epoch(first) < self._taken:
                    self._taken -= 1
        raise TryAgain(f"other starts of pipeline {self._pipeline} took every epoch that we asked for")

    def _newest_epoch(self, table: str) -> int:
        state = self.find(table)
        return newest_epoch(state, self._pipeline) if state else 0

    def open_all(self, tables: Sequence[str], epoch: int, threads: Executor) -> dict[str, Place]:
        """Our places on those of these tables that are there."""
        there = [name for name, state in self.find_all(tables, threads).items() if state]
        return dict(zip(there, threads.map(lambda name: self.open(name, epoch), there), strict=True))

    def open(self, table: str, epoch: int, *, claiming: bool = False) -> Place:
        """Take our place on a table as of this epoch; whoever stood there before is shut out."""
        return self._way.place(self._open(table, epoch, claiming=claiming), epoch)

    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        return self._way.open(table, epoch, claiming=claiming)

    def begin_within(self, generation: int) -> None:
        """From now on the marks of this generation count, and no older ones."""
        self._way.generation = generation

    def seen(self, state: TableState) -> Place:
        """Where this pipeline stands on a table, without taking a place there."""
        return self._way.place(state, newest_epoch(state, self._pipeline))

    def again(self, place: Place) -> Place:
        """Our place, looked up anew."""
        return self._way.place(self._way.load(place.table), place.epoch)

    def turn(self, table: str) -> AbstractContextManager[None]:
        """Whoever else of this process writes to the table waits until the end of the block."""
        return self._way.turns.at(table).taken()

    # -- what lands there ---------------------------------------------------------------------------------

    def target(self, place: Place, token: Token) -> Target:
        """Where Spark stages the rows of this batch."""
        self._way.load(place.table)  # refused where others have had it name code since it was opened
        return self._way.target(place, token)

    def staged(self, place: Place, token: str) -> catalog.Snapshot | None:
        """The snapshot that this token left there, if it did."""
        return self._way.staged(place, token)

    def publish(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str] | None = None) -> Place:
        """Move main to what was staged; when somebody else came first, commit the same files again upon theirs."""
        return self._way.publish(place, staged, mark, extra or {})

    def append(self, place: Place, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]) -> Place:
        """A few rows of bookkeeping."""
        return self._way.append(place, rows, mark, extra)

    def append_beside(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Likewise, by nobody's start: whoever runs goes on, for no mark is moved and no epoch taken."""
        with explained():
            catalog.append_onto(self._lake, table, rows, lambda state: marks.as_it_was(self.seen(state).carried))
