"""Straight onto main, for catalogs that allow no other ref; what waits there is a snapshot that no ref leads to.

Each of these is one commit under the requirement that main is where the caller has seen it. The caller is shown
the table before each attempt, and decides on that: it gives the summary of the snapshot, or raises where it may
not write any more. So a writer that has been replaced is told so by the table, and can't miss it: who replaces it
moves main with a commit of its own, and what was built upon an older main is refused from then on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.appends import TRIES, added_files, built, check_fit, written_once
from catalog.commits import commit, move, properties, still
from catalog.connection import Lake
from catalog.conversions import state_of
from catalog.errors import Conflict, FilesUnfit, OutcomeUnknown
from catalog.retries import patiently
from catalog.specs import TableState

_MAIN = "main"

Decide = Callable[[TableState], Mapping[str, str]]
"""Shown a table, the summary of what shall be committed upon its main."""


def fence(lake: Lake, name: str, decide: Decide, given: Mapping[str, str]) -> TableState:
    """Move main to a snapshot that changes nothing, and set properties of the table with it."""
    return _Onto(lake, name, f"moving main of table {name}", decide).commit(lambda _: (), given)


def append_onto(lake: Lake, name: str, rows: Sequence[Mapping[str, object]], decide: Decide) -> TableState:
    """Write a few rows; written once, however often the commit is refused."""
    return _Onto(lake, name, f"appending to table {name}", decide).commit(written_once(rows))


def restage_onto(lake: Lake, name: str, staged: int, decide: Decide) -> TableState:
    """Commit the files of a snapshot that was refused; nothing is rewritten or doubled.

    Should `staged` turn out to be published after all, that is it. FilesUnfit where others have expired it, or the
    table has since changed in a way that the files do not fit.
    """
    what = f"committing {staged} of table {name} again"

    found: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if table.metadata.snapshot_by_id(staged) is None:
            raise FilesUnfit(f"{what}: others have expired it")
        if not found:  # what lies between a look and the commit is time for others
            found.extend(added_files(table, staged))
        check_fit(table, staged)
        return found

    return _Onto(lake, name, what, decide, {staged}).commit(files)


@dataclass
class _Onto:
    lake: Lake
    name: str
    what: str
    decide: Decide
    ours: Collection[int] = ()  # snapshots that are the same commit, and may have arrived late
    _tried: set[int] = field(default_factory=set)
    _since: int | None = None  # main before the first of them

    def commit(
        self, files: Callable[[Table], Sequence[DataFile]], given: Mapping[str, str] | None = None
    ) -> TableState:
        self._tried = {*self.ours}
        for last in patiently(TRIES):
            table = self.lake.table(self.name)
            state = state_of(table)
            if self._is_there(state):
                return state
            summary = self.decide(state)
            with self.lake.calling(self.what):
                wanted = files(table)
            self._since = self._since if self._tried else state.main
            try:
                append = built(self.lake, table, self.what, wanted, summary)
                self._tried.add(append.snapshot)
                updates = (*append.updates, move(_MAIN, append.snapshot), *properties(given or {}))
                return commit(self.lake, table, self.what, (still(_MAIN, state.main),), updates)
            except (Conflict, OutcomeUnknown):
                # The next look tells, also of a refusal: a proxy that repeats a request gets that of its second.
                if last:
                    raise
        raise AssertionError

    def _is_there(self, state: TableState) -> bool:
        """Whether an attempt has taken effect. Each stands upon main as it was then, so no look goes further back."""
        if not self._tried:
            return False
        earliest = [found.parent for each in self.ours if (found := state.snapshots.get(each))] or [self._since]
        for snapshot in state.ancestors():
            if snapshot.id in self._tried:
                return True
            if snapshot.id in earliest:
                return False
        if not state.history_complete():
            raise OutcomeUnknown(f"{self.what}: the history that could tell has been expired")
        return False
