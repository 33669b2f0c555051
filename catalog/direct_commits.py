"""Commits straight onto main, for catalogs that allow no other ref.

Rows that wait for their publication are then a snapshot that no ref points to. Each function here is one commit that
requires main to be where the caller saw it. Before each try the caller's `decide` gets the table: it returns the
summary of the snapshot, or raises if the caller may not write any more. So a replaced writer always learns of it. Its
successor moves main with a commit of its own, and anything built upon an older main is refused from then on.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.appends import added_files, append_proposed, check_fit, written_once
from catalog.commit_loop import ProposedCommit, commit_loop
from catalog.commits import MAIN, properties_update, ref_is_at, set_branch
from catalog.connection import CatalogClient
from catalog.errors import FilesUnfit, OutcomeUnknown
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


def recommit_onto(client: CatalogClient, name: str, unpublished: int, decide: Decide) -> TableState:
    """Commit the files of a snapshot whose publication was refused; no file is written again.

    If `unpublished` turns out to be published, nothing is done. Raises FilesUnfit if others have expired the snapshot,
    or changed the table so that the files do not fit any more.
    """
    what = f"committing {unpublished} of table {name} again"

    found: list[DataFile] = []

    def files(table: Table) -> Sequence[DataFile]:
        if table.metadata.snapshot_by_id(unpublished) is None:
            raise FilesUnfit(f"{what}: others have expired the snapshot, so its rows have to be written again")
        if not found:  # listed once: time between the look and the commit lets others get in first
            found.extend(added_files(table, unpublished))
        check_fit(table, unpublished)
        return found

    return _DirectCommit(client, name, what, decide, (unpublished,)).run(files)


@dataclass
class _DirectCommit:
    client: CatalogClient
    name: str
    what: str
    decide: Decide
    same: tuple[int, ...] = ()  # snapshots with the same rows, whose own publication may arrive late
    _since: int | None = field(default=None, init=False)  # main before our first try

    def run(self, files: Callable[[Table], Sequence[DataFile]], given: Mapping[str, str] | None = None) -> TableState:
        tried = False

        def attempt(table: Table, state: TableState) -> ProposedCommit:
            nonlocal tried
            summary = self.decide(state)
            with self.client.calling(self.what):
                wanted = files(table)
            if not tried and not self.same:
                self._since = state.main
            append = append_proposed(self.client, table, self.what, wanted, summary)
            tried = True
            updates = (*append.updates, set_branch(MAIN, append.snapshot), *properties_update(given or {}))
            return ProposedCommit((ref_is_at(MAIN, state.main),), updates, append.snapshot)

        return commit_loop(self.client, self.name, self.what, attempt, self._landed, tries=MANY)

    def _landed(self, state: TableState, ours: Collection[int]) -> bool:
        tried = {*self.same, *ours}
        earliest = [found.parent for each in self.same if (found := state.snapshots.get(each))] or [self._since]
        return bool(tried) and is_on_main(state, tried, earliest, self.what) is not None


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
