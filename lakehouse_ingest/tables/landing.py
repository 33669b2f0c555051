"""Commit a batch's files to a table with one request, which moves main and our fence together.

The fence is the branch of a start or, with `catalog.publish = "direct"`, the epoch in the table's properties. How a
table is opened, and what a commit requires of the marks, is the same as in `publishing`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import catalog
from catalog import TableState
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.tables.errors import LostRace, explained
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.publishing import Direct, OnBranch, Publication, Race

Writer = tuple[catalog.Expected | None, catalog.Check]
"""What a change of a table requires of its writer; without the first, anybody may make it."""

REFITS = 3  # how often others may change the table's columns between two tries of one batch


@dataclass
class BatchFiles:
    """The files of one batch for one table, and all tries to commit them, even after they were written again."""

    files: Sequence[catalog.DataFileReceipt]
    layout: catalog.FileLayout
    attempts: catalog.Attempts = field(default_factory=catalog.Attempts)


class RowsToWriteAgain(TryAgain):
    """Others changed the table, so the files of a batch do not fit any more and its rows have to be written again.

    To do so, pass the tries of the batch on with the new files. Otherwise the next start does all of it.
    """


class OneRequest(Publication):
    """Publishes with one request; a class that also says how to open a table is complete."""

    @abstractmethod
    def _expected(self, place: Position) -> catalog.Expected: ...

    @abstractmethod
    def _on_table(self, place: Position) -> AbstractContextManager[None]:
        """Explain what the catalog raises."""

    def land(self, place: Position, batch: BatchFiles, mark: Mark, extra: Mapping[str, str]) -> Position:
        """Commit the files with the mark, upon whatever head main has by then. Returns our position on the table."""

        def send(decide: catalog.Decide, race: Race) -> TableState:
            return self._fitted(place, batch, decide, race)

        return self._sent(place, batch.attempts, mark, extra, send)

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Add rows of the batch log in the same way."""
        attempts, expected = catalog.Attempts(), self._expected(place)

        def send(decide: catalog.Decide, race: Race) -> TableState:
            return catalog.land_rows(self.lake, place.table, rows, expected, decide, attempts, race.failed)

        return self._sent(place, attempts, mark, extra, send)

    @contextmanager
    def changing(self, place: Position) -> Iterator[Writer]:
        """Let only this start change columns, partitions and properties of the table."""
        with self.turns.at(place.table).taken(), self._on_table(place):
            yield self._expected(place), partial(self.still_ours, place)

    def move_up(self, place: Position) -> Position:
        """Move the fence of an idle table to main's head, or it would keep files that a compaction has replaced."""
        expected = self._expected(place)
        if expected.fence is None:
            return place
        with self.turns.at(place.table).taken(), self._on_table(place):
            state = catalog.move_fence_up(self.lake, place.table, expected, partial(self.unmoved, place))
            return self.unmoved(place, state)

    def _sent(
        self,
        place: Position,
        attempts: catalog.Attempts,
        mark: Mark,
        extra: Mapping[str, str],
        send: Callable[[catalog.Decide, Race], TableState],
    ) -> Position:
        race = Race(self.refused, place.table)
        with self.turns.at(place.table).taken(), self._on_table(place):
            state = send(self._upon(place, mark, extra, race), race)
        # The commit took effect. If others have rolled it back since, or a newer start has taken over, we say so now.
        return self.unmoved(replace(place, main=attempts.landed, mark=mark), state)

    def _fitted(self, place: Position, batch: BatchFiles, decide: catalog.Decide, race: Race) -> TableState:
        expected = self._expected(place)
        for _ in range(REFITS):
            try:
                return catalog.land(
                    self.lake, place.table, batch.files, batch.layout, expected, decide, batch.attempts, race.failed
                )
            except catalog.LayoutMoved:
                batch.layout = self._layout_again(place, batch.layout)
        raise RowsToWriteAgain(f"others keep changing the columns of the table {place.table} while we commit to it")

    def _layout_again(self, place: Position, layout: catalog.FileLayout) -> catalog.FileLayout:
        try:
            return catalog.fitting_layout(self.lake, place.table, place.uuid, layout)
        except catalog.FilesUnfit as unfit:
            raise RowsToWriteAgain(str(unfit)) from unfit


class OneCommit(OneRequest, OnBranch):
    """The branch of the start is the fence, and moves with each commit."""

    def _expected(self, place: Position) -> catalog.Expected:
        if place.fence is None:  # the catalog's last answer showed it gone already
            self.still_ours(place, self.load(place.table))
            raise TryAgain(f"the branch {place.branch} of the table {place.table} was dropped and created again")
        return catalog.Expected(place.uuid, catalog.FencePosition(place.branch, place.fence))

    @contextmanager
    def _on_table(self, place: Position) -> Iterator[None]:
        with self._winnable(place), self._on(place):
            yield


class OneCommitDirect(OneRequest, Direct):
    """Main is the only ref: the epoch in the table's properties is the fence, as each look at the table shows it."""

    def _expected(self, place: Position) -> catalog.Expected:
        return catalog.Expected(place.uuid, None)

    @contextmanager
    def _on_table(self, place: Position) -> Iterator[None]:
        try:
            with explained():
                yield
        except LostRace as lost:
            raise TryAgain(f"other writers changed the table {place.table} before each attempt to commit") from lost


WAYS: dict[str, type[OneRequest]] = {"branch": OneCommit, "direct": OneCommitDirect}
