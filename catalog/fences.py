"""What a writer knows of a table, held against what a load of the table shows.

Only the writer moves its fence, and the fence keeps its snapshot from being expired. A load that does not know that
snapshot is therefore an old one, of a replica that is behind: it is asked for again, a few times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from catalog.commits import MAIN, Requirements, ref_is_at
from catalog.errors import BranchGone, CatalogError, Conflict, FenceMoved, TableReplaced
from catalog.retries import FEW, MANY, LookAgain
from catalog.specs import TableState

Check = Callable[[TableState], object]
"""Gets a table as it was loaded; raises if its writer may not change it any more."""


def anybody(_state: TableState) -> None:
    """Check nothing."""


@dataclass(frozen=True)
class FencePosition:
    """The branch of a writer's start, and the snapshot at which the writer left it: nobody else moves it."""

    branch: str
    snapshot: int


@dataclass(frozen=True)
class Expected:
    """The table as its writer knows it; without a fence where the catalog allows no ref but main."""

    uuid: str
    fence: FencePosition | None

    @property
    def requirements(self) -> Requirements:
        """What a request has to require of the fence; the table's uuid is part of every request."""
        return (ref_is_at(self.fence.branch, self.fence.snapshot),) if self.fence else ()


@dataclass
class TableLooks:
    """The looks at one table during one change."""

    name: str
    what: str
    expected: Expected
    _old: int = 0

    def check(self, state: TableState) -> None:
        """Raise TableReplaced, BranchGone or FenceMoved; LookAgain first if the load may be an old one."""
        if state.uuid != self.expected.uuid:
            self.again(
                TableReplaced(
                    f"{self.what} of table {self.name}: it was dropped and recreated (uuid {self.expected.uuid[:8]}… is"
                    f" now {state.uuid[:8]}…)"
                )
            )
        if (fence := self.expected.fence) is None or (at := state.refs.get(fence.branch)) == fence.snapshot:
            return
        where = f"{self.what} of table {self.name}: the branch {fence.branch}"
        gone = BranchGone(f"{where} does not exist any more")
        failure = gone if at is None else FenceMoved(f"{where} was left at {fence.snapshot} and is at {at}")
        if fence.snapshot not in state.snapshots:
            self.again(failure)
        raise failure

    def again(self, failure: CatalogError) -> NoReturn:
        """Raise LookAgain, and after a few times the failure itself."""
        self._old += 1
        if self._old >= FEW:
            raise failure
        raise LookAgain(Conflict(str(failure))) from failure


def fenced(name: str, what: str, expected: Expected | None, check: Check) -> Callable[[TableState], Requirements]:
    """Give what tells, for each load of the table, what a change of it has to require; it may raise instead.

    A change leaves the fence where it is. Where main is the only ref, main is required to be where the load shows it:
    the next start of the writer moves it before it does anything else. Without `expected` there is nothing to require.
    """
    looks = TableLooks(name, what, expected) if expected else None

    def required(state: TableState) -> Requirements:
        if looks is None:
            return ()
        looks.check(state)
        check(state)
        return looks.expected.requirements or (ref_is_at(MAIN, state.main),)

    return required


def tries_of(expected: Expected | None) -> int:
    """How often a change is tried: where main is required, other writers may move it more often than not."""
    return MANY if expected and expected.fence is None else FEW
