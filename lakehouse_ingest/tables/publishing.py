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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import catalog
from catalog import TableState
from lakehouse_ingest import ledger
from lakehouse_ingest.errors import Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import PREFIX, Mark
from lakehouse_ingest.records import Token
from lakehouse_ingest.tables.explaining import LostRace, explained, superseded
from lakehouse_ingest.tables.places import EPOCH, Place, branch_of, branches, direct_epoch, newest_epoch, place_on

TOKEN = f"{PREFIX}token"
STAGES_UNSEEN = "write.wap.enabled"  # a table's property: without it Spark would write to main


class Refused(Protocol):
    """Told each time that somebody else's commit came first."""

    def __call__(self, table: str, attempt: int, error: Exception, /) -> None: ...


@dataclass(frozen=True)
class Target:
    """What Spark appends to, so that nobody sees it: a table or one of its branches, and the id to stage it under."""

    name: str
    wap: str | None = None


@dataclass
class Publication(ABC):
    """Of one pipeline."""

    lake: catalog.Lake
    pipeline: str
    refused: Refused
    generation: int = 0  # older marks say nothing

    @abstractmethod
    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        """Shut out whoever stood there before; `claiming`: LostRace where another start has this very epoch."""

    @abstractmethod
    def target(self, place: Place, token: Token) -> Target: ...

    @abstractmethod
    def staged(self, place: Place, token: str) -> catalog.Snapshot | None:
        """The snapshot that Spark left under this token, if it did."""

    @abstractmethod
    def publish(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str]) -> Place:
        """Move main to what was staged; when somebody else came first, commit the same files again upon theirs."""

    @abstractmethod
    def append(self, place: Place, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]) -> Place:
        """A few rows of bookkeeping."""

    def place(self, state: TableState, epoch: int) -> Place:
        return place_on(state, self.pipeline, epoch).within(self.generation)

    def load(self, table: str) -> TableState:
        with explained():
            return catalog.load_for_engines(self.lake, table)

    def still_ours(self, place: Place, state: TableState) -> None:
        """Whether we may write to it."""
        if state.uuid != place.uuid:
            raise TableChanged(
                f"the table {place.table} was dropped and made anew while we wrote to it (uuid {place.uuid[:8]}… is now"
                f" {state.uuid[:8]}…): restore it; `lakehouse-ingest recover` says what can be done"
            )
        if (newest := newest_epoch(state, self.pipeline)) > place.epoch:
            raise superseded(self.pipeline, newest)

    def published(self, place: Place, state: TableState, mark: Mark) -> Place:
        """Our place after a landing: where others have cut it off by now, what was published is known all the same."""
        now = self.place(state, place.epoch)
        return now if now.mark else self._remembered(now, place, mark)

    def unmoved(self, place: Place, state: TableState) -> Place:
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

    def _is_behind(self, place: Place, state: TableState) -> bool:
        """Whether main was moved to before our last landing; false also where too much was cut to tell."""
        return place.main is not None and state.contains(place.main) is False

    def _remembered(self, now: Place, place: Place, mark: Mark | None) -> Place:
        carried = {**ledger.without_marks(place.carried), **now.carried}
        return replace(now, mark=mark, carried=carried, known=place.known or mark is not None)

    def fenced(self, table: str, epoch: int, given: Mapping[str, str], *, claiming: bool) -> TableState:
        """Main moved by a commit that lands nothing, and our epoch in the table's properties."""

        def decide(state: TableState) -> Mapping[str, str]:
            newest = newest_epoch(state, self.pipeline)
            if claiming and newest >= epoch:
                raise LostRace(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
            if newest > epoch:
                raise superseded(self.pipeline, newest)
            return ledger.fence([each.summary for each in state.ancestors()], self.pipeline, epoch)

        with explained():
            return catalog.fence(self.lake, table, decide, {**given, f"{EPOCH}{self.pipeline}": str(epoch)})


def _token(place: Place) -> Token | None:
    return place.mark.token if place.mark else None


class OnBranch(Publication):
    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        before = self.load(table)
        if claiming and newest_epoch(before, self.pipeline) >= epoch:
            raise LostRace(f"another start of pipeline {self.pipeline} took the epoch {epoch}")
        if direct_epoch(before, self.pipeline) > max(branches(before, self.pipeline), default=0):
            # Who stood there last publishes directly: to drop branches would not shut it out.
            before = self.fenced(table, epoch, {}, claiming=claiming)
        older = branches(before, self.pipeline)
        stale = [ref for number, ref in older.items() if number < epoch]  # never the branch of a newer start
        taken = max(older, default=0) >= epoch
        with explained():
            branch = branch_of(self.pipeline, epoch)
            state = before if taken else catalog.open_branch(self.lake, table, branch, stale)
            # Another start may have come in between: the higher epoch stays, the lower one goes.
            now = branches(state, self.pipeline)
            if (newest := max(now)) > epoch:
                raise superseded(self.pipeline, newest)
            if lower := [ref for number, ref in now.items() if number < epoch]:
                state = catalog.drop_branches(self.lake, table, lower)
        return state

    def target(self, place: Place, token: Token) -> Target:  # noqa: ARG002 - the branch is the start's own
        # Only this spelling of the target does: the option `branch` would write to main.
        return Target(f"{place.table}.branch_{place.branch}")

    def still_ours(self, place: Place, state: TableState) -> None:
        super().still_ours(place, state)
        # Spark makes our branch anew when it was dropped during an append. A newer start drops it in the very commit
        # that shows its epoch: whoever dropped it without one was somebody else.
        if place.branch not in state.refs:
            raise TryAgain(f"somebody dropped the branch {place.branch} of the table {place.table}, on which we write")

    def staged(self, place: Place, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        found = state.snapshots.get(state.refs[place.branch])
        return found if found and found.summary.get(TOKEN) == token else None

    def publish(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str]) -> Place:
        try:
            with self._on(place):
                state = catalog.publish(self.lake, place.table, place.branch, staged, place.main)
        except LostRace as race:
            self.refused(place.table, 1, race)
            state = self._published_again(place, staged, mark, extra)
        return self.published(place, state, mark)

    def _published_again(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str]) -> TableState:
        def refused(attempt: int, why: Exception) -> None:
            self.refused(place.table, attempt + 1, why)

        def summary(state: TableState) -> Mapping[str, str]:
            # The marks that travel on are those of the very head that the files are put upon.
            return {**ledger.to_summary(mark, self.unmoved(place, state).carried), **extra}

        try:
            with self._on(place):
                return catalog.publish_again(self.lake, place.table, place.branch, staged, summary, refused)
        except LostRace as race:
            raise TryAgain(f"the table {place.table} was changed by others each time that we tried to commit") from race

    def append(self, place: Place, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]) -> Place:
        """Staged and published like any landing."""
        # Others write to the same table all the time: their marks, as they are now, must travel on.
        place = self.unmoved(place, self.load(place.table))
        summary = {**ledger.to_summary(mark, place.carried), **extra}
        with self._on(place):
            staged = catalog.append_rows(self.lake, place.table, place.branch, rows, summary)
        # Staged upon whatever main was by then: where that is not `place.main`, it is refused and staged again.
        return self.publish(place, staged.snapshot, mark, extra)

    @contextmanager
    def _on(self, place: Place) -> Iterator[None]:
        """A branch that is gone tells of a newer start, or of a table that is another one by now."""
        try:
            with explained():
                yield
        except Superseded:
            self.still_ours(place, self.load(place.table))
            raise


class Direct(Publication):
    def open(self, table: str, epoch: int, *, claiming: bool) -> TableState:
        state = self.load(table)
        if claiming or direct_epoch(state, self.pipeline) != epoch:
            state = self.fenced(table, epoch, {STAGES_UNSEEN: "true"}, claiming=claiming)
        stale = [ref for number, ref in branches(state, self.pipeline).items() if number < epoch]
        # They shut nobody out any more; where they may not be dropped, they are only in the way.
        with explained(), suppress(catalog.Refused, catalog.Denied):
            state = catalog.drop_branches(self.lake, table, stale)
        return state

    def target(self, place: Place, token: Token) -> Target:
        return Target(place.table, str(token))

    def staged(self, place: Place, token: str) -> catalog.Snapshot | None:
        state = self.load(place.table)
        self.still_ours(place, state)
        if state.properties.get(STAGES_UNSEEN) != "true":
            raise TryAgain(f"somebody took the property {STAGES_UNSEEN} from the table {place.table}, which we need")
        found = [each for each in state.snapshots.values() if each.summary.get(TOKEN) == token]
        return max(found, key=lambda each: each.sequence, default=None)

    def publish(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str]) -> Place:
        try:
            with explained():
                state = catalog.publish(self.lake, place.table, None, staged, place.main)
        except LostRace as race:
            self.refused(place.table, 1, race)
            with explained():
                upon = self._upon(place, mark, extra)
                state = catalog.restage_onto(self.lake, place.table, staged, upon)
        return self.published(place, state, mark)

    def append(self, place: Place, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]) -> Place:
        """Straight onto main: nobody has to see it together with anything else."""
        with explained():
            state = catalog.append_onto(self.lake, place.table, rows, self._upon(place, mark, extra))
        return self.published(place, state, mark)

    def _upon(self, place: Place, mark: Mark, extra: Mapping[str, str]) -> catalog.Decide:
        attempts = count(1)

        def decide(state: TableState) -> Mapping[str, str]:
            if (attempt := next(attempts)) > 1:
                self.refused(place.table, attempt, LostRace(f"main of table {place.table} has moved"))
            return {**ledger.to_summary(mark, self.unmoved(place, state).carried), **extra}

        return decide


WAYS: dict[str, type[Publication]] = {"branch": OnBranch, "direct": Direct}
