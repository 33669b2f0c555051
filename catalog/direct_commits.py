"""Commits straight onto main, which need no other ref.

Each function here is one commit that requires main to be where the caller saw it. Before each try the caller's `decide`
gets the table: it returns the summary of the snapshot, or raises if the caller may not write any more. So a replaced
writer always learns of it. Its successor moves main with a commit of its own, and anything built upon an older main is
refused from then on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.commits import (
    MAIN,
    ProposedCommit,
    append_proposed,
    commit_loop,
    properties_update,
    ref_is_at,
    set_branch,
    written_once,
)
from catalog.connection import CatalogClient
from catalog.errors import OutcomeUnknown
from catalog.retries import MANY
from catalog.specs import TableState

Decide = Callable[[TableState], Mapping[str, str]]
"""Gets a table and returns the summary for a commit upon its main; raises if there must be none."""


def fence(client: CatalogClient, name: str, decide: Decide, given: Mapping[str, str]) -> TableState:
    """Move main to a snapshot that changes no rows, and set properties of the table in the same commit."""
    return _DirectCommit(client, name, f"moving main of table {name}", decide).run(lambda _: (), given)


def append_onto(client: CatalogClient, name: str, rows: Sequence[Mapping[str, object]], decide: Decide) -> TableState:
    """Append a few rows; their files are written once, however often the commit is refused."""
    return _DirectCommit(client, name, f"appending to table {name}", decide).run(written_once(rows))


@dataclass
class _DirectCommit:
    client: CatalogClient
    name: str
    what: str
    decide: Decide
    _since: int | None = field(default=None, init=False)  # main before our first try

    def run(self, files: Callable[[Table], Sequence[DataFile]], given: Mapping[str, str] | None = None) -> TableState:
        tried = False

        def attempt(table: Table, state: TableState) -> ProposedCommit:
            nonlocal tried
            summary = self.decide(state)
            with self.client.calling(self.what):
                wanted = files(table)
            if not tried:
                self._since = state.main
            append = append_proposed(self.client, table, self.what, wanted, summary)
            tried = True
            updates = (*append.updates, set_branch(MAIN, append.snapshot), *properties_update(given or {}))
            return ProposedCommit((ref_is_at(MAIN, state.main),), updates, append.snapshot)

        return commit_loop(self.client, self.name, self.what, attempt, self._landed, tries=MANY)

    def _landed(self, state: TableState, ours: Collection[int]) -> bool:
        return bool(ours) and is_on_main(state, ours, [self._since], self.what) is not None


def is_on_main(state: TableState, tried: Collection[int], earliest: Collection[int | None], what: str) -> int | None:
    """Walk back from main, to where it was before the first try: each try was built upon main as it was then.

    Gives the try that main holds. Raises OutcomeUnknown if others have expired the part of history that would tell.
    """
    for snapshot in state.ancestors():
        if snapshot.id in tried:
            return snapshot.id
        if snapshot.id in earliest:
            return None
    if not state.history_complete():
        raise OutcomeUnknown(
            f"{what}: nobody can tell whether it took effect, for others have expired that part of main's history"
        )
    return None
