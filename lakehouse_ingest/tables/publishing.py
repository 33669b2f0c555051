"""Open tables, fence earlier starts, and commit, in the way that `catalog.publish` chooses.

Branch: each start has its own branch on every table, named after the pipeline and the epoch. Opening the branch drops
the branches of earlier starts. A commit requires that the start's own branch is still where it was left, and moves it
together with main. So an earlier writer cannot move main, even if it wakes up much later.

Direct, for catalogs that allow no ref but main: each start first moves main by a commit without rows, which also writes
the epoch into the table's properties. From then on the catalog refuses what an earlier writer built, and the earlier
writer finds the newer epoch when it looks for the cause.

Each way also fences writers that use the other way. In both, one request commits the files of a batch to a table.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import catalog
from catalog import TableState
from lakehouse_ingest.errors import Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import EPOCH
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Token
from lakehouse_ingest.tables.errors import EpochTaken, LostRace, explained, superseded
from lakehouse_ingest.tables.position import Position, branch_of, branches, direct_epoch, newest_epoch, place_on
from lakehouse_ingest.tables.retention import Retention
from lakehouse_ingest.tables.turns import Turns

OPENINGS = 4  # attempts to open one table before the whole start is retried
REFITS = 3  # how often others may change the table's columns between two tries of one batch

Writer = tuple[catalog.Expected | None, catalog.Check]
"""What a change of a table requires of its writer; without the first, anybody may make it."""

ANYBODY: Writer = (None, catalog.anybody)


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


class ReportRefusal(Protocol):
    """Called each time that another writer's commit came first."""

    def __call__(self, table: str, attempt: int, error: Exception, /) -> None: ...


@dataclass
class Race:
    """Reports, at each look at a table, whether another writer has moved main since the first one."""

    refused: ReportRefusal
    table: str
    main: int | None = None  # where the last look found it
    reported: int = 0  # how many refusals were reported

    def look(self, main: int | None) -> None:
        if self.main is not None and main != self.main:
            self._report(LostRace(f"main of table {self.table} has moved"))
        self.main = main

    def failed(self, _attempt: int, why: Exception) -> None:
        # `look` reports a conflict if main has moved. Otherwise it was only about a snapshot's sequence number, which
        # a write of another stream of this process took first.
        if not isinstance(why, catalog.Conflict):
            self._report(why)

    def _report(self, why: Exception) -> None:
        self.reported += 1
        self.refused(self.table, self.reported, why)


@dataclass
class Publication(ABC):
    """How one pipeline opens its tables, knows that they are still its own, and commits to them."""

    lake: catalog.CatalogClient
    pipeline: str
    refused: ReportRefusal
    turns: Turns = field(default_factory=Turns)
    retention: Callable[[str], Retention | None] = lambda _table: None
    generation: int = 0  # marks of older generations do not count

    @abstractmethod
    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        """Fence earlier starts. With `claiming`, raise LostRace if another start has taken this epoch."""

    def place(self, state: TableState, epoch: int) -> Position:
        return place_on(state, self.pipeline, epoch, self.retention(state.name)).within(self.generation)

    def load(self, table: str) -> TableState:
        with explained():
            return catalog.load_for_engines(self.lake, table)

    def still_ours(self, place: Position, state: TableState) -> None:
        """Raise if this start may no longer write to the table."""
        if state.uuid != place.uuid:
            raise TableChanged(
                f"the table {place.table} was dropped and recreated during a write (uuid {place.uuid[:8]}… is now"
                f" {state.uuid[:8]}…): restore it; `lakehouse-ingest recover` shows the choices"
            )
        if (newest := newest_epoch(state, self.pipeline)) > place.epoch:
            raise superseded(self.pipeline, newest)

    def unmoved(self, place: Position, state: TableState) -> Position:
        """Our position as it is now. Raise unless only other pipelines and programs have moved main since."""
        self.still_ours(place, state)
        now = self.place(state, place.epoch)
        if now.mark is None and not now.whole and not self._is_behind(place, state):
            # Another program compacted the table and expired our mark. There is no newer epoch, so no other start of
            # this pipeline has written here, and the remembered mark still holds.
            now = self._remembered(now, place, place.mark)
        # Compare tokens, not offsets: offsets are also collected from older marks, which expire one by one.
        if _token(now) != _token(place):
            raise TableChanged(
                f"the mark of the table {place.table} has changed during a write:"
                " it was rolled back, or another writer uses this pipeline's name; start again, and"
                " `lakehouse-ingest recover` shows the choices"
            )
        return now

    def _is_behind(self, place: Position, state: TableState) -> bool:
        """True if main was rolled back to before our last commit. False also if the cut history cannot show it."""
        return place.main is not None and state.contains(place.main) is False

    def _remembered(self, now: Position, place: Position, mark: Mark | None) -> Position:
        carried = {**marks.without_marks(place.carried), **now.carried}
        return replace(now, mark=mark, carried=carried, known=place.known or mark is not None)

    def fenced(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        """Move main by a commit without rows, and write our epoch into the table's properties."""

        def decide(state: TableState) -> Mapping[str, str]:
            newest = newest_epoch(state, self.pipeline)
            if claiming and newest >= epoch:
                raise EpochTaken(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
            if newest > epoch:
                raise superseded(self.pipeline, newest)
            return marks.fence([each.summary for each in state.ancestors()], self.pipeline, epoch)

        with explained():
            return catalog.fence(self.lake, table, decide, {f"{EPOCH}{self.pipeline}": str(epoch)})

    @abstractmethod
    def _expected(self, place: Position) -> catalog.Expected: ...

    @abstractmethod
    def _on_table(self, place: Position) -> AbstractContextManager[None]:
        """Explain what the catalog raises."""

    # -- commits ------------------------------------------------------------------------------------------

    def land(self, place: Position, batch: BatchFiles, mark: Mark, extra: Mapping[str, str]) -> Position:
        """Commit the files with the mark, upon whatever head main has by then. Returns our position on the table."""
        race, attempts = Race(self.refused, place.table), batch.attempts
        with self.turns.at(place.table).taken(), self._on_table(place):
            expected, decide = self._expected(place), self._upon(place, mark, extra, race)
            for _ in range(REFITS):
                try:
                    state = catalog.land(
                        self.lake, place.table, batch.files, batch.layout, expected, decide, attempts, race.failed
                    )
                    break
                except catalog.LayoutMoved:
                    batch.layout = self._layout_again(place, batch.layout)
            else:
                raise RowsToWriteAgain(
                    f"others keep changing the columns of the table {place.table} while we commit to it"
                )
        return self._landed(place, attempts, mark, state)

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Add rows of the batch log in the same way."""
        race, attempts = Race(self.refused, place.table), catalog.Attempts()
        with self.turns.at(place.table).taken(), self._on_table(place):
            expected, decide = self._expected(place), self._upon(place, mark, extra, race)
            state = catalog.land_rows(self.lake, place.table, rows, expected, decide, attempts, race.failed)
        return self._landed(place, attempts, mark, state)

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

    def _upon(self, place: Position, mark: Mark, extra: Mapping[str, str], race: Race) -> catalog.Decide:
        def decide(state: TableState) -> Mapping[str, str]:
            race.look(state.main)
            # Copy the other pipelines' marks from exactly that head on which the files are committed.
            return {**marks.to_summary(mark, self.unmoved(place, state).carried), **extra}

        return decide

    def _landed(self, place: Position, attempts: catalog.Attempts, mark: Mark, state: TableState) -> Position:
        # The commit took effect. If others have rolled it back since, or a newer start has taken over, we say so now.
        return self.unmoved(replace(place, main=attempts.landed, mark=mark), state)

    def _layout_again(self, place: Position, layout: catalog.FileLayout) -> catalog.FileLayout:
        try:
            return catalog.fitting_layout(self.lake, place.table, place.uuid, layout)
        except catalog.FilesUnfit as unfit:
            raise RowsToWriteAgain(str(unfit)) from unfit


class OnBranch(Publication):
    """The branch of the start is the fence, and moves with each commit."""

    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        before = self.load(table)
        if claiming and newest_epoch(before, self.pipeline) >= epoch:
            raise EpochTaken(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
        if direct_epoch(before, self.pipeline) > max(branches(before, self.pipeline), default=0):
            # The last start published directly, so dropping branches would not fence it.
            before = self.fenced(table, epoch, claiming=claiming)
        with explained():
            try:
                state = self._branched(before, epoch, claiming=claiming)
            except catalog.BranchExists as found:
                raise EpochTaken(str(found)) from found
            # Another start may have opened its branch in between. The higher epoch wins.
            now = branches(state, self.pipeline)
            if (newest := max(now)) > epoch:
                raise superseded(self.pipeline, newest)
            if lower := [ref for number, ref in now.items() if number < epoch]:
                state = catalog.drop_branches(self.lake, table, lower)
        return state

    def _branched(self, before: TableState, epoch: int, *, claiming: bool) -> TableState:
        """The table with our branch on it.

        While claiming, creating the branch is what takes the epoch. A lost answer then leaves open who has it, so
        there is no second attempt. Once the epoch is ours, a branch of that epoch can only be ours. So a lost answer
        is settled by another look at this table.
        """
        looks = iter([before])

        def opened() -> TableState:
            state = next(looks, None) or self.load(before.name)
            older = branches(state, self.pipeline)
            if max(older, default=0) >= epoch:
                return state
            stale = [ref for number, ref in older.items() if number < epoch]  # never the branch of a newer start
            return catalog.open_branch(self.lake, state.name, branch_of(self.pipeline, epoch), stale)

        lost = (catalog.Conflict, catalog.OutcomeUnknown, catalog.Unreachable)
        return catalog.retrying(lost, 1 if claiming else OPENINGS)(opened)

    def still_ours(self, place: Position, state: TableState) -> None:
        super().still_ours(place, state)
        # Spark recreates our branch if it was dropped during an append. A newer start drops it in the same commit that
        # shows its epoch. A branch that is missing without a newer epoch was dropped by another program.
        if place.branch not in state.refs:
            raise TryAgain(
                f"another program dropped the branch {place.branch} of the table {place.table} while we wrote to it"
            )

    def _expected(self, place: Position) -> catalog.Expected:
        if place.fence is None:  # the catalog's last answer showed it gone already
            self.still_ours(place, self.load(place.table))
            raise TryAgain(f"the branch {place.branch} of the table {place.table} was dropped and created again")
        return catalog.Expected(place.uuid, catalog.FencePosition(place.branch, place.fence))

    @contextmanager
    def _on_table(self, place: Position) -> Iterator[None]:
        with _winnable(place):
            try:
                with explained():
                    yield
            except Superseded:  # our branch is gone: a newer start dropped it, or the table was recreated
                self.still_ours(place, self.load(place.table))
                raise


class Direct(Publication):
    """Main is the only ref: the epoch in the table's properties is the fence, as each look at the table shows it."""

    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        state = self.load(table)
        if claiming or direct_epoch(state, self.pipeline) != epoch:
            state = self.fenced(table, epoch, claiming=claiming)
        stale = [ref for number, ref in branches(state, self.pipeline).items() if number < epoch]
        # Old branches have no effect any more, so it does no harm if the catalog refuses to drop them.
        with explained(), suppress(catalog.RequestRefused, catalog.Denied):
            state = catalog.drop_branches(self.lake, table, stale)
        return state

    def _expected(self, place: Position) -> catalog.Expected:
        return catalog.Expected(place.uuid, None)

    @contextmanager
    def _on_table(self, place: Position) -> Iterator[None]:
        with _winnable(place), explained():
            yield


@contextmanager
def _winnable(place: Position) -> Iterator[None]:
    try:
        yield
    except LostRace as lost:
        raise TryAgain(f"other writers changed the table {place.table} before each attempt to commit") from lost


def _token(place: Position) -> Token | None:
    return place.mark.token if place.mark else None


WAYS: dict[str, type[Publication]] = {"branch": OnBranch, "direct": Direct}
