"""Create and change tables, for a pipeline or for a person."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import catalog
from catalog import Evolution, TableState
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import PROMOTED
from lakehouse_ingest.tables.errors import (
    CREATE,
    explained,
    makeable,
    with_advice,
)
from lakehouse_ingest.tables.landing import OneRequest, Writer
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.reader import TableReader

ANYBODY: Writer = (None, catalog.anybody)
FOLLOW = catalog.Contract(max_columns=None, max_depth=None)  # for changes that a person asked for: no limits


class TableChanges(TableReader):
    """Changes of tables, apart from the rows of records.

    With a position, only the start that has it may make the change. A person's changes need none.
    """

    _way: OneRequest
    creates = True  # create missing tables; False: refuse instead

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

    def follow(
        self,
        table: str,
        changes: Sequence[Evolution],
        contract: catalog.Contract = FOLLOW,
        place: Position | None = None,
    ) -> tuple[TableState, catalog.Plan]:
        """Apply all changes in one commit. Returns the new table, and a plan that lists what the contract refused."""
        with self._changing(place) as writer:
            state = catalog.load(self._lake, table)
            wanted = catalog.TableSpec(table, catalog.evolved(state.columns, changes))
            planned = catalog.plan(state, wanted, contract)
            return catalog.apply(self._lake, table, planned, *writer) if planned.changes else state, planned

    def lay_out(self, place: Position, partitions: Sequence[catalog.Partition]) -> tuple[TableState, list[str]]:
        """Change the partitions of future files. Returns the new table and the changes."""
        table = place.table
        with self._changing(place) as writer:
            state = catalog.load(self._lake, table)
            wanted = catalog.TableSpec(table, state.columns, tuple(partitions))
            planned = catalog.plan(state, wanted, catalog.Contract(partitions=catalog.Rule.EVOLVE))
            return catalog.apply(self._lake, table, planned, *writer), [str(change) for change in planned.changes]

    def tell(self, table: str, properties: Mapping[str, str], place: Position | None = None) -> None:
        with self._changing(place) as writer:
            catalog.set_properties(self._lake, table, properties, *writer)

    @contextmanager
    def _changing(self, place: Position | None) -> Iterator[Writer]:
        """Explain what the catalog raises. Gives what each request has to require."""
        if place:
            with self._way.changing(place) as writer:
                yield writer
        else:
            with explained():
                yield ANYBODY

    def change_rows(self, table: str, holding: str, change: catalog.RowChange, why: str) -> int:
        """Change rows without being a start: no mark moves and no epoch is taken. Returns the number of rows."""

        def decide(state: TableState) -> Mapping[str, str]:
            return {**marks.as_it_was(self.seen(state).carried), PROMOTED: why}

        with explained():
            return catalog.rewrite_rows(self._lake, table, holding, change, decide)[1]

    @contextmanager
    def probe(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Create a table of one column, and drop it when the block ends. Gives its name and location."""
        with explained(), makeable(), catalog.probe_table(self._lake, namespace) as state:
            yield state.name, state.location

    def write_and_read(self, table: str) -> None:
        """Write a row to a probe table and read it back."""
        with explained():
            catalog.write_and_read(self._lake, table)
