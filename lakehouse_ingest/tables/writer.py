"""Our position on each table: taken by a start, moved by its commits."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager

import catalog
from catalog import TableState
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Token
from lakehouse_ingest.tables.errors import (
    EpochTaken,
    LostRace,
    explained,
    superseded,
)
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.publishing import WriteTarget
from lakehouse_ingest.tables.registry import Registry

CLAIM_TRIES = 8


class TableWriter(Registry):
    """Epochs are taken, tables opened, rows published."""

    _taken = 0  # the last epoch that was asked for, got or not: an answer may be lost

    @property
    def has_claimed(self) -> bool:
        """Whether a start of this process has: the next one takes over from no other."""
        return self._taken > 0

    def claim(self, first: str, others: Sequence[str]) -> tuple[int, Position]:
        """Take the next epoch, and our place on the `first` table with it."""
        place, _ = self.claimed(first, others)
        return place.epoch, place

    def claimed(self, first: str, others: Sequence[str]) -> tuple[Position, TableState]:
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

    def open_all(self, tables: Sequence[str], epoch: int, threads: Executor) -> dict[str, Position]:
        """Our places on those of these tables that are there."""
        there = [name for name, state in self.find_all(tables, threads).items() if state]
        return dict(zip(there, threads.map(lambda name: self.open(name, epoch), there), strict=True))

    def open(self, table: str, epoch: int, *, claiming: bool = False) -> Position:
        """Take our place on a table as of this epoch; whoever stood there before is shut out."""
        return self._way.place(self._open(table, epoch, claiming=claiming), epoch)

    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        return self._way.open(table, epoch, claiming=claiming)

    def begin_within(self, generation: int) -> None:
        """From now on the marks of this generation count, and no older ones."""
        self._way.generation = generation

    def turn(self, table: str) -> AbstractContextManager[None]:
        """Whoever else of this process writes to the table waits until the end of the block."""
        return self._way.turns.at(table).taken()

    def target(self, place: Position, token: Token) -> WriteTarget:
        """Where Spark stages the rows of this batch."""
        self._way.load(place.table)  # refused where others have had it name code since it was opened
        return self._way.target(place, token)

    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        """The snapshot that this token left there, if it did."""
        return self._way.staged(place, token)

    def publish(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str] | None = None) -> Position:
        """Move main to what was staged; when somebody else came first, commit the same files again upon theirs."""
        return self._way.publish(place, staged, mark, extra or {})

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """A few rows of bookkeeping."""
        return self._way.append(place, rows, mark, extra)

    def append_beside(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Likewise, by nobody's start: whoever runs goes on, for no mark is moved and no epoch taken."""
        with explained():
            catalog.append_onto(self._lake, table, rows, lambda state: marks.as_it_was(self.seen(state).carried))
