"""How one writer commits to a table, and keeps older writers out: every step is a compare-and-set.

A writer opens a branch of its own, and drops those of older writers with the same commit. Each later commit requires
that branch where its writer left it, and moves it together with main. So a newer writer that drops it fences the older
one for good. `direct_commits` does the same without branches.

One request commits a batch: it adds the snapshot, and moves main and the fence to it. The data files are written
before; nothing is committed twice. Each request requires the table's uuid, main where it was looked at, the fence where
its writer left it, and the schema and the partition layout that the files were written for.

Whether a request took effect is settled by the next one, never by a read alone: a read may come from a replica that is
behind. Every request requires the same fence and moves it. So at most one of them takes effect, however late or
however often each arrives, and whatever others do to main. The fence then tells which one it was. That is why all
tries of a batch are remembered in one `Attempts` until the batch is done.

Nothing is deleted here. A refusal does not prove that a request took no effect; `orphans_of` says what does.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.commits import (
    MAIN,
    ProposedCommit,
    Refusal,
    Updates,
    append_onto_main,
    append_proposed,
    commit_loop,
    drop_ref,
    forget_published,
    layout_is,
    ref_is_at,
    set_branch,
    written_files,
)
from catalog.connection import CatalogClient
from catalog.data_files import DataFileReceipt
from catalog.direct_commits import Decide, is_on_main
from catalog.errors import BranchesRefused, BranchExists, LayoutMoved, OutcomeUnknown
from catalog.fences import Check, Expected, FencePosition, TableLooks, anybody
from catalog.file_sinks import local_path, sync
from catalog.retries import MANY
from catalog.specs import TableState


def open_branch(client: CatalogClient, name: str, branch: str, drop: Sequence[str] = ()) -> TableState:
    """Create the branch at main's head and drop the others in the same commit; raises BranchExists if it exists.

    A table without any snapshot has nothing to point to: the branch then gets an empty snapshot, and main stays unset.
    Raises OutcomeUnknown if the answer got lost, or if the branch appears after a refused commit of ours. Nobody can
    tell then whether a branch of this name is ours. Raises BranchesRefused if the catalog allows no such branch, and
    RequestRefused if no empty snapshot can be written in the table's format from here.
    """
    _not_main(branch, *drop)
    what = f"opening branch {branch}"
    refusals: list[Exception] = []

    def refused(_attempt: int, failure: Exception) -> None:
        if isinstance(failure, OutcomeUnknown):
            raise failure
        refusals.append(failure)

    def attempt(table: Table, state: TableState) -> ProposedCommit:
        if branch in state.refs and refusals:
            raise OutcomeUnknown(f"{refusals[-1]}; now the branch exists, and may be ours") from refusals[-1]
        if branch in state.refs:
            raise BranchExists(f"{what} of table {name}: the branch exists already")
        head = _head_for_branch(client, table, state, branch, drop)
        updates = (*(drop_ref(ref) for ref in drop if ref in state.refs), *forget_published(state, drop), *head)
        return ProposedCommit((ref_is_at(branch, None), ref_is_at(MAIN, state.main)), updates, refusal=BranchesRefused)

    return commit_loop(client, name, what, attempt, refused=refused)


def _head_for_branch(
    client: CatalogClient, table: Table, state: TableState, branch: str, drop: Sequence[str]
) -> Updates:
    """Point the branch to main's head; in a table without snapshots, to an empty one that is written for it."""
    if (at := state.main or _empty(state, drop)) is not None:
        return (set_branch(branch, at),)
    with client.calling(f"opening branch {branch} of table {state.name}"):
        empty = append_onto_main(table, (), {})
    return (*empty.updates, set_branch(branch, empty.snapshot))


def _empty(state: TableState, branches: Sequence[str]) -> int | None:
    """Find the empty snapshot that an earlier branch began with, so that an idle table gets no second one."""
    heads = (state.refs[branch] for branch in branches if branch in state.refs)
    return next((at for at in heads if state.snapshots[at].summary.get("total-records") == "0"), None)


def drop_branches(client: CatalogClient, name: str, branches: Sequence[str]) -> TableState:
    """Drop those of the branches that exist."""
    _not_main(*branches)

    def attempt(_table: Table, state: TableState) -> ProposedCommit | None:
        found = tuple(drop_ref(ref) for ref in branches if ref in state.refs)
        return ProposedCommit((), (*found, *forget_published(state, branches))) if found else None

    return commit_loop(client, name, "dropping branches", attempt)


def _not_main(*branches: str) -> None:
    if MAIN in branches:
        raise ValueError("main is no writer's branch: name another one")


# -- a batch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileLayout:
    """The numbers of the schema and of the partition layout that files were written for."""

    schema_id: int
    spec_id: int


@dataclass(frozen=True)
class LandingTry:
    """One request: the snapshot it adds, the one that it was built upon, and the paths of all that was written for it.

    A request that got no answer, or a refusal, may still take effect.
    """

    snapshot: int
    parent: int | None
    paths: frozenset[str]


@dataclass
class Attempts:
    """All tries to commit one batch to one table, with whichever files; kept until the batch is done."""

    tries: list[LandingTry] = field(default_factory=list)
    fence: FencePosition | None = None  # as all of them required it
    landed: int | None = None  # the snapshot of the one that took effect, once that is certain

    @property
    def snapshots(self) -> set[int]:
        return {each.snapshot for each in self.tries}


def land(
    client: CatalogClient,
    name: str,
    files: Sequence[DataFileReceipt],
    layout: FileLayout,
    expected: Expected,
    decide: Decide,
    attempts: Attempts,
    refused: Refusal | None = None,
) -> TableState:
    """Commit the files upon main's head; refused, the same files go upon the next head.

    `decide` gets the table before each try and returns the summary; what it raises ends the tries. Files may be none.
    `attempts` says afterwards which snapshot took effect. It did so even if others have rolled main back by then.

    Raises BranchGone or FenceMoved if the fence is not where it was left, TableReplaced if the table is another one,
    LayoutMoved if the files were written for another schema or partition layout, and CodeRefused if engines could not
    open the table. A try may then still take effect, so pass the same `attempts` again to go on with the batch.
    """
    # Each try binds its own: pyiceberg writes into those that it is given.
    landing = _Landing(client, name, expected, decide, attempts, lambda _: [each.data_file() for each in files], layout)
    return landing.run(refused)


def land_rows(
    client: CatalogClient,
    name: str,
    rows: Sequence[Mapping[str, object]],
    expected: Expected,
    decide: Decide,
    attempts: Attempts,
    refused: Refusal | None = None,
) -> TableState:
    """Write a few rows and commit them as `land` does; they are written again only for another schema or layout."""
    if not rows:
        raise ValueError("there are no rows to append, and an append without rows would still make a snapshot")
    written: dict[FileLayout, Sequence[DataFile]] = {}

    def files(table: Table) -> Sequence[DataFile]:
        layout = FileLayout(table.metadata.current_schema_id, table.metadata.default_spec_id)
        if layout not in written:
            written[layout] = written_files(table, rows)
        return written[layout]

    return _Landing(client, name, expected, decide, attempts, files).run(refused)


def move_fence_up(client: CatalogClient, name: str, expected: Expected, check: Check = anybody) -> TableState:
    """Move the fence to main's head, so that on an idle table it keeps no old files alive.

    Raises as `land` does. After any failure the fence may be at either place, so the writer has to start again.
    """
    looks = TableLooks(name, "moving the fence up", expected)
    if (fence := expected.fence) is None:
        raise ValueError("there is no fence to move where main is the only ref")

    def attempt(_table: Table, state: TableState) -> ProposedCommit | None:
        looks.check(state)
        check(state)  # or a fence would leave what others have rolled back, and their expiry would take it
        if state.main is None or state.main == fence.snapshot:
            return None
        requirements = (ref_is_at(MAIN, state.main), *expected.requirements)
        return ProposedCommit(requirements, (set_branch(fence.branch, state.main),), state.main)

    def landed(state: TableState, ours: Collection[int]) -> bool:
        return state.uuid == expected.uuid and state.refs.get(fence.branch) in ours

    return commit_loop(client, name, looks.what, attempt, landed)


def orphans_of(attempts: Attempts, later: TableState) -> frozenset[str]:
    """Give the paths of which it is certain that no snapshot has them or will have them; they may be deleted.

    Certain are only the tries beside the one that took effect: it moved the fence which they all require. `later` is
    the table as it was loaded after that. It has to show our fence moved, so a writer whose fence was dropped deletes
    nothing, and none of these snapshots under any ref. Without a fence nothing is ever certain.
    """
    fence = attempts.fence
    if fence is None or attempts.landed is None or later.refs.get(fence.branch) in (None, fence.snapshot):
        return frozenset()
    kept = {path for each in attempts.tries if _is_kept(each, attempts, later) for path in each.paths}
    return frozenset(path for each in attempts.tries for path in each.paths if path not in kept)


def _is_kept(tried: LandingTry, attempts: Attempts, later: TableState) -> bool:
    return tried.snapshot == attempts.landed or tried.snapshot in later.snapshots


def _sync(written: Sequence[str]) -> None:
    """Wait until manifests on this machine are on disk, as the data files are by then.

    The catalog may have the commit on disk earlier, and a power cut would leave a table without its files.
    """
    there = [path for location in written if (path := local_path(location)) is not None]
    sync((*there, *{path.parent for path in there}))


def _check_layout(looks: TableLooks, table: Table, layout: FileLayout) -> None:
    schema, spec = table.metadata.current_schema_id, table.metadata.default_spec_id
    if (schema, spec) == (layout.schema_id, layout.spec_id):
        return
    moved = LayoutMoved(
        f"{looks.what} of table {looks.name}: it has schema {schema} and partition layout {spec} now, and the files"
        f" were written for {layout.schema_id} and {layout.spec_id}"
    )
    if layout.schema_id not in table.schemas() or layout.spec_id not in table.specs():
        looks.again(moved)
    raise moved


@dataclass
class _Landing:
    client: CatalogClient
    name: str
    expected: Expected
    decide: Decide
    attempts: Attempts
    files: Callable[[Table], Sequence[DataFile]]
    layout: FileLayout | None = None  # None: the files are written for each table that is looked at
    what: str = "committing a batch"

    def __post_init__(self) -> None:
        self._looks = TableLooks(self.name, self.what, self.expected)
        if not self.attempts.tries:
            self.attempts.fence = self.expected.fence
        elif self.attempts.fence != self.expected.fence:
            raise ValueError("the tries of a batch all require the same fence, or two of them could take effect")

    def run(self, refused: Refusal | None) -> TableState:
        state = commit_loop(self.client, self.name, self.what, self._attempt, self._landed, tries=MANY, refused=refused)
        if self.attempts.landed is None:
            self.attempts.landed = self.attempts.tries[-1].snapshot
        return state

    def _attempt(self, table: Table, state: TableState) -> ProposedCommit:
        self._looks.check(state)
        # No engine opens the table now, but to expire its snapshots one will. And rows that others write lie where
        # that code says, and ours do not, so a person should know at once and not at the next start.
        self.client.refuse_code(state)
        layout = self.layout or FileLayout(state.schema_id, state.spec_id)
        _check_layout(self._looks, table, layout)
        summary = self.decide(state)
        with self.client.calling(f"{self.what} to table {self.name}"):
            files = self.files(table)
        append = append_proposed(self.client, table, self.what, files, summary)
        paths = frozenset((*append.metadata_files, *(file.file_path for file in files)))
        self.attempts.tries.append(LandingTry(append.snapshot, state.main, paths))
        _sync(append.metadata_files)
        requirements = (
            ref_is_at(MAIN, state.main),
            *self.expected.requirements,
            *layout_is(layout.schema_id, layout.spec_id),
        )
        updates: Updates = (*append.updates, set_branch(MAIN, append.snapshot))
        if fence := self.expected.fence:
            updates = (*updates, set_branch(fence.branch, append.snapshot))
        return ProposedCommit(requirements, updates, append.snapshot)

    def _landed(self, state: TableState, _ours: Collection[int]) -> bool:
        """Whether one of our tries took effect. After a load too old to show it, the next request is refused."""
        tried, fence = self.attempts.tries, self.expected.fence
        if not tried or state.uuid != self.expected.uuid:
            return False
        if fence:
            at = state.refs.get(fence.branch)
            found = at if at in self.attempts.snapshots else None
        else:
            found = is_on_main(state, self.attempts.snapshots, [tried[0].parent], self.what)
        if found is None:
            return False
        self.attempts.landed = found
        self.client.settled(self.name)
        return True
