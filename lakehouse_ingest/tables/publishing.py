"""Publish written rows, in the way that `catalog.publish` chooses: in one step, and never by a fenced writer.

Branch: each start has its own branch on every table, named after the pipeline and the epoch. Opening the branch drops
the branches of earlier starts. A publication requires that the start's own branch still points to what was written.
So an earlier writer cannot move main, even if it wakes up much later.

Direct, for catalogs that allow no ref but main: Spark writes a snapshot that no ref leads to (Iceberg's
write-audit-publish), and then main is moved to it. Each start first moves main by a commit without rows, which also
writes the epoch into the table's properties. From then on the catalog refuses what an earlier writer built, and the
earlier writer finds the newer epoch when it looks for the cause.

Each way also fences writers that use the other way.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import catalog
from catalog import TableState
from lakehouse_ingest.errors import Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import EPOCH, STAGES_UNSEEN, TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Token
from lakehouse_ingest.tables.errors import EpochTaken, LostRace, explained, superseded
from lakehouse_ingest.tables.position import Position, branch_of, branches, direct_epoch, newest_epoch, place_on
from lakehouse_ingest.tables.retention import Retention
from lakehouse_ingest.tables.turns import Turns

OPENINGS = 4  # attempts to open one table before the whole start is retried


class ReportRefusal(Protocol):
    """Called each time that another writer's commit came first."""

    def __call__(self, table: str, attempt: int, error: Exception, /) -> None: ...


@dataclass(frozen=True)
class WriteTarget:
    """What Spark appends to without any reader seeing it: a table or a branch, and the write-audit-publish id."""

    name: str
    wap: str | None = None


@dataclass
class Race:
    """Reports, at each look at a table, whether another writer has moved main. Streams of this process do not count."""

    refused: ReportRefusal
    table: str
    main: int | None = None  # where this process left it; None accepts whatever the first look finds
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
    """How one pipeline opens, writes and publishes its tables."""

    lake: catalog.CatalogClient
    pipeline: str
    refused: ReportRefusal
    turns: Turns = field(default_factory=Turns)
    retention: Callable[[str], Retention | None] = lambda _table: None
    generation: int = 0  # marks of older generations do not count

    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        """Fence earlier starts. With `claiming`, raise LostRace if another start has taken this epoch."""
        turn = self.turns.at(table)
        with turn.taken():
            state = self._open(table, epoch, claiming=claiming)
            # A branch that an earlier attempt opened may be behind main.
            if state.main is None or state.refs.get(branch_of(self.pipeline, epoch), state.main) == state.main:
                turn.stands(self.pipeline, state.main)
        return state

    @abstractmethod
    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState: ...

    @abstractmethod
    def target(self, place: Position, token: Token) -> WriteTarget: ...

    @abstractmethod
    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        """The snapshot that Spark wrote under this token, if there is one."""

    def publish(self, place: Position, written: int, mark: Mark, extra: Mapping[str, str]) -> Position:
        """Move main to the written snapshot. If another commit came first, commit the same files on top of it."""
        turn = self.turns.at(place.table)
        with turn.taken():
            if turn.is_upon_main(self.pipeline):
                state = self._moved(place, written, mark, extra)
            else:
                # Another stream of this process has moved main, so a plain move would be refused.
                state = self._again(place, written, mark, extra, Race(self.refused, place.table, turn.main))
            turn.stands(self.pipeline, state.main)
        return self.published(place, state, mark)

    def _moved(self, place: Position, written: int, mark: Mark, extra: Mapping[str, str]) -> TableState:
        try:
            return self._move(place, written)
        except LostRace as lost:
            self.refused(place.table, 1, lost)
            return self._again(place, written, mark, extra, Race(self.refused, place.table, reported=1))

    @abstractmethod
    def _move(self, place: Position, written: int) -> TableState:
        """Move main to the snapshot that was written on top of it. Raise LostRace if main is elsewhere by now."""

    @abstractmethod
    def _again(self, place: Position, written: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        """Commit the same files on top of the current main."""

    @abstractmethod
    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Add rows of the batch log."""

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

    def published(self, place: Position, state: TableState, mark: Mark) -> Position:
        """Our position after a commit. If another program has expired the mark already, use the one just published."""
        now = self.place(state, place.epoch)
        return now if now.mark else self._remembered(now, place, mark)

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

    def _upon(self, place: Position, mark: Mark, extra: Mapping[str, str], race: Race) -> catalog.Decide:
        def decide(state: TableState) -> Mapping[str, str]:
            race.look(state.main)
            # Copy the other pipelines' marks from exactly that head on which the files are committed.
            return {**marks.to_summary(mark, self.unmoved(place, state).carried), **extra}

        return decide

    def fenced(self, table: str, epoch: int, given: Mapping[str, str], *, claiming: bool) -> TableState:
        """Move main by a commit without rows, and write our epoch into the table's properties."""

        def decide(state: TableState) -> Mapping[str, str]:
            newest = newest_epoch(state, self.pipeline)
            if claiming and newest >= epoch:
                raise EpochTaken(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
            if newest > epoch:
                raise superseded(self.pipeline, newest)
            return marks.fence([each.summary for each in state.ancestors()], self.pipeline, epoch)

        with explained():
            return catalog.fence(self.lake, table, decide, {**given, f"{EPOCH}{self.pipeline}": str(epoch)})


def _token(place: Position) -> Token | None:
    return place.mark.token if place.mark else None


class OnBranch(Publication):
    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        before = self.load(table)
        if claiming and newest_epoch(before, self.pipeline) >= epoch:
            raise EpochTaken(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
        if direct_epoch(before, self.pipeline) > max(branches(before, self.pipeline), default=0):
            # The last start published directly, so dropping branches would not fence it.
            before = self.fenced(table, epoch, {}, claiming=claiming)
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

    def target(self, place: Position, token: Token) -> WriteTarget:  # noqa: ARG002 - the branch belongs to the start
        # Spark needs the branch in the table's name. With the write option `branch` the rows go to main.
        return WriteTarget(f"{place.table}.branch_{place.branch}")

    def still_ours(self, place: Position, state: TableState) -> None:
        super().still_ours(place, state)
        # Spark recreates our branch if it was dropped during an append. A newer start drops it in the same commit that
        # shows its epoch. A branch that is missing without a newer epoch was dropped by another program.
        if place.branch not in state.refs:
            raise TryAgain(
                f"another program dropped the branch {place.branch} of the table {place.table} while we wrote to it"
            )

    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        found = state.snapshots.get(state.refs[place.branch])
        return found if found and found.summary.get(TOKEN) == token else None

    def _move(self, place: Position, written: int) -> TableState:
        with self._on(place):
            return catalog.publish(self.lake, place.table, place.branch, written, place.main)

    def _again(self, place: Position, written: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        summary = self._upon(place, mark, extra, race)
        with self._on(place), self._winnable(place):
            return catalog.publish_again(self.lake, place.table, place.branch, written, summary, race.failed)

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Moves main and our branch in one commit, because other pipelines write to the batch log at the same time."""
        turn, race = self.turns.at(place.table), Race(self.refused, place.table)
        with turn.taken():
            summary = self._upon(place, mark, extra, race)
            with self._on(place), self._winnable(place):
                state = catalog.append_published(self.lake, place.table, place.branch, rows, summary, race.failed)
            turn.stands(self.pipeline, state.main)
        return self.published(place, state, mark)

    @contextmanager
    def _winnable(self, place: Position) -> Iterator[None]:
        try:
            yield
        except LostRace as lost:
            raise TryAgain(f"other writers changed the table {place.table} before each attempt to commit") from lost

    @contextmanager
    def _on(self, place: Position) -> Iterator[None]:
        """If our branch is gone, find out why: a newer start, or a recreated table."""
        try:
            with explained():
                yield
        except Superseded:
            self.still_ours(place, self.load(place.table))
            raise


class Direct(Publication):
    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        state = self.load(table)
        if claiming or direct_epoch(state, self.pipeline) != epoch:
            state = self.fenced(table, epoch, {STAGES_UNSEEN: "true"}, claiming=claiming)
        stale = [ref for number, ref in branches(state, self.pipeline).items() if number < epoch]
        # Old branches have no effect any more, so it does no harm if the catalog refuses to drop them.
        with explained(), suppress(catalog.RequestRefused, catalog.Denied):
            state = catalog.drop_branches(self.lake, table, stale)
        return state

    def target(self, place: Position, token: Token) -> WriteTarget:
        return WriteTarget(place.table, str(token))

    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        if state.properties.get(STAGES_UNSEEN) != "true":
            raise TryAgain(f'the table {place.table} lost {STAGES_UNSEEN}, which `catalog.publish = "direct"` needs')
        found = [each for each in state.snapshots.values() if each.summary.get(TOKEN) == token]
        return max(found, key=lambda each: each.sequence, default=None)

    def _move(self, place: Position, written: int) -> TableState:
        with explained():
            return catalog.publish(self.lake, place.table, None, written, place.main)

    def _again(self, place: Position, written: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        with explained():
            return catalog.recommit_onto(self.lake, place.table, written, self._upon(place, mark, extra, race))

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Commits straight to main: rows of the batch log need not wait for a publication."""
        turn = self.turns.at(place.table)
        with turn.taken():
            with explained():
                upon = self._upon(place, mark, extra, Race(self.refused, place.table))
                state = catalog.append_onto(self.lake, place.table, rows, upon)
            turn.stands(self.pipeline, state.main)
        return self.published(place, state, mark)


WAYS: dict[str, type[Publication]] = {"branch": OnBranch, "direct": Direct}
