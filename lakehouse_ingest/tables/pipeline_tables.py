"""The tables of one pipeline: the class that creates, changes, claims and opens them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import catalog
from catalog import Evolution, TableState
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import PROMOTED
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.tables.clients import connection_of
from lakehouse_ingest.tables.enforcement import Enforcement
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
from lakehouse_ingest.tables.position import Position, Registered, branch_of
from lakehouse_ingest.tables.publishing import ANYBODY, WAYS, ReportRefusal, Writer
from lakehouse_ingest.tables.reader import TableReader
from lakehouse_ingest.tables.retention import Retention
from lakehouse_ingest.tables.turns import Turns

CLAIM_TRIES = 8
# A person asked for the change, or planning has applied the limits, by field names, which the catalog does not know.
NO_LIMITS = catalog.Contract(max_columns=None, max_depth=None)

Table = Position | str
"""A table to change. With our position on it, only the start that has it may; with its name, a person does it."""


def tables_of(settings: Settings, uri: str, stream: StreamSettings | None = None) -> "PipelineTables":
    """The tables as a stream of the settings sees them, or the pipeline as a whole; `uri`: where the catalog is."""
    connection = connection_of(settings.catalog, settings.s3, uri)
    name = settings.identity_of(stream) if stream else settings.name
    return PipelineTables(connection, name, settings.catalog.publish, create=settings.catalog.create)


class PipelineTables(TableReader):
    """The catalog, as one pipeline uses it. Its `publication` commits rows."""

    _taken = 0  # the last epoch that was asked for, whether we got it or not: its answer may have been lost

    def __init__(
        self,
        connection: catalog.Connection,
        pipeline: str,
        publish: str = "branch",
        refused: ReportRefusal = lambda _table, _attempt, _error: None,
        settled: Callable[[str], None] = lambda _table: None,  # called if a commit succeeded but its answer was lost
        *,
        create: bool = True,  # create missing tables; False: refuse instead
        turns: Turns | None = None,  # shared with the other streams of this process
        retention: Callable[[str], Retention | None] = lambda _table: None,  # None: no snapshot of the table may expire
    ) -> None:
        with explained():
            try:
                client = catalog.connect(connection, settled)
            except catalog.RequestRefused as refusal:
                raise SettingsRefused(with_advice(refusal, URI)) from refusal
            except catalog.Unreachable as away:
                raise TryAgain(with_advice(away, URI)) from away
        super().__init__(client, pipeline, WAYS[publish](client, pipeline, refused, turns or Turns(), retention))
        self.creates = create
        self.enforcement = Enforcement(client, publish, branch_of(pipeline, 1) if publish == "branch" else None, create)

    # -- create -------------------------------------------------------------------------------------------

    def ensure_namespace(self, namespace: str) -> None:
        with explained(), makeable(), self._made_by_others():
            catalog.ensure_namespace(self._lake, namespace, create=self.creates)

    def create(self, spec: catalog.TableSpec) -> TableState:
        with explained(), self._made_by_others():
            return catalog.create_table(self._lake, spec, create=self.creates)

    def need(self, *tables: str) -> None:
        """If nothing may be created, raise for each of these tables that is missing."""
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

    # -- change -------------------------------------------------------------------------------------------

    def change(self, table: Table, changes: Sequence[Evolution]) -> tuple[TableState, catalog.Plan]:
        """Add, widen or relax columns in one commit. Returns the new table, and a plan that lists what was refused."""
        with self._changing(table) as (name, writer):
            state = catalog.load(self._lake, name)
            wanted = catalog.TableSpec(name, catalog.evolved(state.columns, changes))
            planned = catalog.plan(state, wanted, NO_LIMITS)
            return catalog.apply(self._lake, name, planned, *writer) if planned.changes else state, planned

    def lay_out(self, table: Table, partitions: Sequence[catalog.Partition]) -> tuple[TableState, list[str]]:
        """Change the partitions of future files. Returns the new table and the changes."""
        with self._changing(table) as (name, writer):
            state = catalog.load(self._lake, name)
            wanted = catalog.TableSpec(name, state.columns, tuple(partitions))
            planned = catalog.plan(state, wanted, catalog.Contract(partitions=catalog.Rule.EVOLVE))
            return catalog.apply(self._lake, name, planned, *writer), [str(change) for change in planned.changes]

    def set_properties(self, table: Table, properties: Mapping[str, str]) -> None:
        with self._changing(table) as (name, writer):
            catalog.set_properties(self._lake, name, properties, *writer)

    def register(self, record: Table, tables: Mapping[str, Registered]) -> None:
        """List tables in the batch log, before their first row is written: the next start must know all of them."""
        if tables:
            listed = {self._registered_as(name): json.dumps(asdict(each)) for name, each in tables.items()}
            self.set_properties(record, listed)

    @contextmanager
    def _changing(self, table: Table) -> Iterator[tuple[str, Writer]]:
        """Explain what the catalog raises. Gives the table's name, and what each request has to require."""
        if isinstance(table, Position):
            with self.publication.changing(table) as writer:
                yield table.table, writer
        else:
            with explained():
                yield table, ANYBODY

    def change_rows(self, table: str, holding: str, change: catalog.RowChange, why: str) -> int:
        """Change rows without being a start: no mark moves and no epoch is taken. Returns the number of rows."""

        def decide(state: TableState) -> Mapping[str, str]:
            return {**marks.as_it_was(self.seen(state).carried), PROMOTED: why}

        with explained():
            return catalog.rewrite_rows(self._lake, table, holding, change, decide)[1]

    def append_beside(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows without being a start. A running pipeline is not disturbed: no mark moves and no epoch is taken."""
        with explained():
            catalog.append_onto(self._lake, table, rows, lambda state: marks.as_it_was(self.seen(state).carried))

    # -- take over ----------------------------------------------------------------------------------------

    @property
    def has_claimed(self) -> bool:
        """True once a start of this process has claimed. Later starts only go on, and take over from nobody else."""
        return self._taken > 0

    def claim(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        """Take the next epoch: the one start that opens the `first` table with it owns it.

        Returns our position on that table, and the table as the claim left it. A replica of the catalog that answers a
        later request may not know of the claim yet.

        Any later call goes on after a failure. It must not take over from a start that came in between.
        """
        again = self._taken > 0
        for _ in range(CLAIM_TRIES):
            newest = max(self._newest_epoch(table) for table in (first, *others))
            if again and newest > self._taken:
                raise superseded(self._pipeline, newest)
            self._taken = newest + 1
            try:
                with self.publication.turns.at(first).taken():
                    state = self.publication.open(first, self._taken, claiming=True)
                return self.publication.place(state, self._taken), state
            except EpochTaken:
                self._taken -= 1
            except LostRace:
                # A proxy may repeat a request that succeeded, and pass on the refusal of the second one. The epoch is
                # then in the table, and it is ours, as if the answer had been lost.
                if self._newest_epoch(first) < self._taken:
                    self._taken -= 1
        raise TryAgain(f"other starts of pipeline {self._pipeline} took each of {CLAIM_TRIES} epochs first")

    def open(self, table: str, epoch: int) -> Position:
        """Take our position on a table under this epoch, which fences earlier starts."""
        with self.publication.turns.at(table).taken():
            return self.publication.place(self.publication.open(table, epoch, claiming=False), epoch)

    def begin_within(self, generation: int) -> None:
        """From now on, ignore marks of older generations."""
        self.publication.generation = generation

    # -- try ----------------------------------------------------------------------------------------------

    @contextmanager
    def probe(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Create a table of one column, and drop it when the block ends. Gives its name and location."""
        with explained(), makeable(), catalog.probe_table(self._lake, namespace) as state:
            yield state.name, state.location

    def write_and_read(self, table: str) -> None:
        """Write a row to a probe table and read it back."""
        with explained():
            catalog.write_and_read(self._lake, table)
