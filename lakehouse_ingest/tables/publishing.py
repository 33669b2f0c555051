"""How a landing becomes visible, as `catalog.publish` says: at once, and never by a writer that was replaced.

On a branch: every writer has one of its own on every table, named after the pipeline and the epoch of this start.
To open it is to drop the branches of earlier starts, and a publication requires its own branch to be where it was
staged: from then on no earlier writer can move main, whenever it wakes up.

Directly, where a catalog allows no ref but main: Spark stages a snapshot that no ref leads to, by Iceberg's own
write-audit-publish, and main is moved to it. A start moves main by a commit that lands nothing, and writes its epoch
into the table's properties with it: from then on what an earlier writer has built is refused, and when it looks why,
it sees who has come.

Each way shuts out the writers of the other one as well.
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

OPENINGS = 4  # times that a table is opened before all of them are opened again by a new start


class ReportRefusal(Protocol):
    """Told each time that somebody else's commit came first."""

    def __call__(self, table: str, attempt: int, error: Exception, /) -> None: ...


@dataclass(frozen=True)
class WriteTarget:
    """What Spark appends to, so that nobody sees it: a table or one of its branches, and the id to stage it under."""

    name: str
    wap: str | None = None


@dataclass
class Race:
    """Tells, at each look at a table, whether somebody else has moved its main; a sibling in this process is no one
    else."""

    refused: ReportRefusal
    table: str
    main: int | None = None  # where we, or a sibling, left it; None: at the first look it is taken as it is
    told: int = 0

    def look(self, main: int | None) -> None:
        if self.main is not None and main != self.main:
            self._tell(LostRace(f"main of table {self.table} has moved"))
        self.main = main

    def failed(self, _attempt: int, why: Exception) -> None:
        # A conflict is told when main has moved. It may also be about a snapshot's number, which one that a sibling
        # has staged took first.
        if not isinstance(why, catalog.Conflict):
            self._tell(why)

    def _tell(self, why: Exception) -> None:
        self.told += 1
        self.refused(self.table, self.told, why)


@dataclass
class Publication(ABC):
    """Of one pipeline."""

    lake: catalog.CatalogClient
    pipeline: str
    refused: ReportRefusal
    turns: Turns = field(default_factory=Turns)
    retention: Callable[[str], Retention | None] = lambda _table: None
    generation: int = 0  # older marks say nothing

    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        """Shut out whoever stood there before; `claiming`: LostRace where another start has this very epoch."""
        turn = self.turns.at(table)
        with turn.taken():
            state = self._open(table, epoch, claiming=claiming)
            # A branch that an earlier attempt has opened may lie behind main.
            if state.main is None or state.refs.get(branch_of(self.pipeline, epoch), state.main) == state.main:
                turn.stands(self.pipeline, state.main)
        return state

    @abstractmethod
    def _open(self, table: str, epoch: int, *, claiming: bool) -> TableState: ...

    @abstractmethod
    def target(self, place: Position, token: Token) -> WriteTarget: ...

    @abstractmethod
    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        """The snapshot that Spark left under this token, if it did."""

    def publish(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str]) -> Position:
        """Move main to what was staged; when somebody else came first, commit the same files again upon theirs."""
        turn = self.turns.at(place.table)
        with turn.taken():
            if turn.is_upon_main(self.pipeline):
                state = self._moved(place, staged, mark, extra)
            else:
                # A sibling came first: to try would only be refused.
                state = self._again(place, staged, mark, extra, Race(self.refused, place.table, turn.main))
            turn.stands(self.pipeline, state.main)
        return self.published(place, state, mark)

    def _moved(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str]) -> TableState:
        try:
            return self._move(place, staged)
        except LostRace as lost:
            self.refused(place.table, 1, lost)
            return self._again(place, staged, mark, extra, Race(self.refused, place.table, told=1))

    @abstractmethod
    def _move(self, place: Position, staged: int) -> TableState:
        """Main, to what was staged upon it; LostRace where it is elsewhere."""

    @abstractmethod
    def _again(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        """Commit the same files upon main as it is now."""

    @abstractmethod
    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """A few rows of bookkeeping."""

    def place(self, state: TableState, epoch: int) -> Position:
        return place_on(state, self.pipeline, epoch, self.retention(state.name)).within(self.generation)

    def load(self, table: str) -> TableState:
        with explained():
            return catalog.load_for_engines(self.lake, table)

    def still_ours(self, place: Position, state: TableState) -> None:
        """Whether we may write to it."""
        if state.uuid != place.uuid:
            raise TableChanged(
                f"the table {place.table} was dropped and made anew while we wrote to it (uuid {place.uuid[:8]}… is now"
                f" {state.uuid[:8]}…): restore it; `lakehouse-ingest recover` says what can be done"
            )
        if (newest := newest_epoch(state, self.pipeline)) > place.epoch:
            raise superseded(self.pipeline, newest)

    def published(self, place: Position, state: TableState, mark: Mark) -> Position:
        """Our place after a landing: where others have cut it off by now, what was published is known all the same."""
        now = self.place(state, place.epoch)
        return now if now.mark else self._remembered(now, place, mark)

    def unmoved(self, place: Position, state: TableState) -> Position:
        """Our place as it is now, when nobody but strangers has moved main since."""
        self.still_ours(place, state)
        now = self.place(state, place.epoch)
        if now.mark is None and not now.whole and not self._is_behind(place, state):
            # Others compacted the table and expired what was before: as no newer start did, nobody else of ours came.
            now = self._remembered(now, place, place.mark)
        # Not what they hold: that is gathered from older marks as well, which expire one by one.
        if _token(now) != _token(place):
            raise TableChanged(
                f"the table {place.table} holds other offsets than it did a moment ago:"
                " it was rolled back, or another writer runs under this pipeline's name; start once more, and"
                " `lakehouse-ingest recover` says what can be done"
            )
        return now

    def _is_behind(self, place: Position, state: TableState) -> bool:
        """Whether main was moved to before our last landing; false also where too much was cut to tell."""
        return place.main is not None and state.contains(place.main) is False

    def _remembered(self, now: Position, place: Position, mark: Mark | None) -> Position:
        carried = {**marks.without_marks(place.carried), **now.carried}
        return replace(now, mark=mark, carried=carried, known=place.known or mark is not None)

    def _upon(self, place: Position, mark: Mark, extra: Mapping[str, str], race: Race) -> catalog.Decide:
        def decide(state: TableState) -> Mapping[str, str]:
            race.look(state.main)
            # The marks that travel on are those of the very head that the files are put upon.
            return {**marks.to_summary(mark, self.unmoved(place, state).carried), **extra}

        return decide

    def fenced(self, table: str, epoch: int, given: Mapping[str, str], *, claiming: bool) -> TableState:
        """Main moved by a commit that lands nothing, and our epoch in the table's properties."""

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
            # Who stood there last publishes directly: to drop branches would not shut it out.
            before = self.fenced(table, epoch, {}, claiming=claiming)
        with explained():
            try:
                state = self._branched(before, epoch, claiming=claiming)
            except catalog.BranchExists as found:
                raise EpochTaken(str(found)) from found
            # Another start may have come in between: the higher epoch stays, the lower one goes.
            now = branches(state, self.pipeline)
            if (newest := max(now)) > epoch:
                raise superseded(self.pipeline, newest)
            if lower := [ref for number, ref in now.items() if number < epoch]:
                state = catalog.drop_branches(self.lake, table, lower)
        return state

    def _branched(self, before: TableState, epoch: int, *, claiming: bool) -> TableState:
        """The table with our branch on it.

        To claim is to make the branch, so a lost answer leaves open who has the epoch. Once the epoch is ours, a branch
        of it is ours as well, whoever's answer was lost: then it is looked again, for this table alone.
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

    def target(self, place: Position, token: Token) -> WriteTarget:  # noqa: ARG002 - the branch is the start's own
        # Only this spelling of the target does: the option `branch` would write to main.
        return WriteTarget(f"{place.table}.branch_{place.branch}")

    def still_ours(self, place: Position, state: TableState) -> None:
        super().still_ours(place, state)
        # Spark makes our branch anew when it was dropped during an append. A newer start drops it in the very commit
        # that shows its epoch: whoever dropped it without one was somebody else.
        if place.branch not in state.refs:
            raise TryAgain(f"somebody dropped the branch {place.branch} of the table {place.table}, on which we write")

    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        found = state.snapshots.get(state.refs[place.branch])
        return found if found and found.summary.get(TOKEN) == token else None

    def _move(self, place: Position, staged: int) -> TableState:
        with self._on(place):
            return catalog.publish(self.lake, place.table, place.branch, staged, place.main)

    def _again(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        summary = self._upon(place, mark, extra, race)
        with self._on(place), self._winnable(place):
            return catalog.publish_again(self.lake, place.table, place.branch, staged, summary, race.failed)

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """With one commit, of main and our branch: others write to the same table all the time."""
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
            raise TryAgain(f"the table {place.table} was changed by others each time that we tried to commit") from lost

    @contextmanager
    def _on(self, place: Position) -> Iterator[None]:
        """A branch that is gone tells of a newer start, or of a table that is another one by now."""
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
        # They shut nobody out any more; where they may not be dropped, they are only in the way.
        with explained(), suppress(catalog.RequestRefused, catalog.Denied):
            state = catalog.drop_branches(self.lake, table, stale)
        return state

    def target(self, place: Position, token: Token) -> WriteTarget:
        return WriteTarget(place.table, str(token))

    def staged(self, place: Position, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        if state.properties.get(STAGES_UNSEEN) != "true":
            raise TryAgain(f"somebody took the property {STAGES_UNSEEN} from the table {place.table}, which we need")
        found = [each for each in state.snapshots.values() if each.summary.get(TOKEN) == token]
        return max(found, key=lambda each: each.sequence, default=None)

    def _move(self, place: Position, staged: int) -> TableState:
        with explained():
            return catalog.publish(self.lake, place.table, None, staged, place.main)

    def _again(self, place: Position, staged: int, mark: Mark, extra: Mapping[str, str], race: Race) -> TableState:
        with explained():
            return catalog.recommit_onto(self.lake, place.table, staged, self._upon(place, mark, extra, race))

    def append(
        self, place: Position, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]
    ) -> Position:
        """Straight onto main: nobody has to see it together with anything else."""
        turn = self.turns.at(place.table)
        with turn.taken():
            with explained():
                upon = self._upon(place, mark, extra, Race(self.refused, place.table))
                state = catalog.append_onto(self.lake, place.table, rows, upon)
            turn.stands(self.pipeline, state.main)
        return self.published(place, state, mark)


WAYS: dict[str, type[Publication]] = {"branch": OnBranch, "direct": Direct}
