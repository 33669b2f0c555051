"""Take positions on tables, and move them by commits."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import catalog
from catalog import TableState
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.tables.errors import (
    EpochTaken,
    LostRace,
    explained,
    superseded,
)
from lakehouse_ingest.tables.landing import BatchFiles
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.registry import Registry

CLAIM_TRIES = 8


class TableWriter(Registry):
    """Takes epochs, opens tables and publishes rows."""

    _taken = 0  # the last epoch that was asked for, whether we got it or not: its answer may have been lost

    @property
    def has_claimed(self) -> bool:
        """True once a start of this process has claimed. Later starts only go on, and take over from nobody else."""
        return self._taken > 0

    def claim(self, first: str, others: Sequence[str]) -> tuple[int, Position]:
        """Take the next epoch, and with it our position on the `first` table."""
        place, _ = self.claimed(first, others)
        return place.epoch, place

    def claimed(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
        """Take the next epoch: the one start that opens the `first` table with it owns it.

        Returns that table as the claim left it. A replica of the catalog that answers a later request may not know of
        the claim yet.

        Any later call goes on after a failure. It must not take over from a start that came in between.
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
                # A proxy may repeat a request that succeeded, and pass on the refusal of the second one. The epoch is
                # then in the table, and it is ours, as if the answer had been lost.
                if self._newest_epoch(first) < self._taken:
                    self._taken -= 1
        raise TryAgain(f"other starts of pipeline {self._pipeline} took each of {CLAIM_TRIES} epochs first")

    def open(self, table: str, epoch: int, *, claiming: bool = False) -> Position:
        """Take our position on a table under this epoch, which fences earlier starts."""
        return self._way.place(self._open(table, epoch, claiming=claiming), epoch)

    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        return self._way.open(table, epoch, claiming=claiming)

    def begin_within(self, generation: int) -> None:
        """From now on, ignore marks of older generations."""
        self._way.generation = generation

    def turn(self, table: str) -> AbstractContextManager[None]:
        """Other streams of this process wait at the table until the block ends."""
        return self._way.turns.at(table).taken()

    def land(self, place: Position, batch: BatchFiles, mark: Mark) -> Position:
        """Commit the files of a batch, upon whatever head main has by then."""
        return self._way.land(place, batch, mark, {})

    def move_up(self, place: Position) -> Position:
        """Move our fence on an idle table to main's head."""
        return self._way.move_up(place)

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Add rows of the batch log."""
        return self._way.append(place, rows, mark, extra)

    def append_beside(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows without being a start. A running pipeline is not disturbed: no mark moves and no epoch is taken."""
        with explained():
            catalog.append_onto(self._lake, table, rows, lambda state: marks.as_it_was(self.seen(state).carried))
