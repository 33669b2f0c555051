"""A writer's branch, and its publication: every step is a compare-and-set.

A writer commits to a branch of its own and publishes by moving main to the branch's head. Main moves only if it is
still where that snapshot was built upon, and only if the branch still exists. So a newer writer that drops the branch
fences the older one for good. `direct_commits` does the same without branches.
"""

from collections.abc import Sequence

from pyiceberg.table import Table

from catalog.commit_loop import ProposedCommit, commit_loop
from catalog.commits import (
    MAIN,
    Updates,
    append_onto_main,
    commit,
    drop_ref,
    forget_published,
    is_published,
    note_published,
    ref_is_at,
    set_branch,
)
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import (
    BranchesRefused,
    BranchExists,
    BranchGone,
    CatalogError,
    Conflict,
    FilesUnfit,
    OutcomeUnknown,
    RequestRefused,
    Unreachable,
)
from catalog.retries import retrying
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


def publish(client: CatalogClient, name: str, branch: str | None, unpublished: int, parent: int | None) -> TableState:
    """Move main from `parent` to `unpublished`, which the branch must still point to.

    `branch` is None if the snapshot was written without one. Safe to repeat. After a refusal or a lost answer the table
    is loaded again. If main's history holds the snapshot, this succeeded. If not, Conflict is raised, and BranchGone if
    the branch was dropped. If nobody can tell, OutcomeUnknown is raised. A lost request may still arrive after a
    Conflict. It is fenced once the branch or main has moved, and whoever publishes again looks before that. Raises
    FilesUnfit if others have expired a snapshot that no branch kept.
    """
    _not_main(*_only(branch))
    what = f"publishing {unpublished}"
    table = client.table(name)
    state = state_of(table)
    if is_published(state, branch, unpublished):
        return state
    if branch is None:
        _check_there(state, unpublished)
    if unpublished in state.snapshots and not _descends(state, unpublished, parent):
        # Main would lose what lies between, so this must not even be tried.
        raise Conflict(f"{what} of table {name}: it was not built upon {parent}, so its files must be committed again")
    requirements = (ref_is_at(MAIN, parent), *(ref_is_at(ref, unpublished) for ref in _only(branch)))
    try:
        updates = (set_branch(MAIN, unpublished), *(note_published(ref, unpublished) for ref in _only(branch)))
        return commit(client, table, what, requirements, updates)
    except (Conflict, OutcomeUnknown) as failure:
        # After a refusal too: a proxy that repeats a request passes on the refusal of the second one.
        return _settled(client, name, branch, unpublished, failure)
    except RequestRefused:
        if branch is None:
            _check_there(client.state(name), unpublished)
        raise


def _only(branch: str | None) -> tuple[str, ...]:
    return () if branch is None else (branch,)


def _check_there(state: TableState, unpublished: int) -> None:
    if unpublished not in state.snapshots:
        raise FilesUnfit(
            f"publishing {unpublished} of table {state.name}: others have expired it before it was published"
        )


def _descends(state: TableState, unpublished: int, parent: int | None) -> bool:
    return parent is None or any(snapshot.id == parent for snapshot in state.lineage(unpublished))


def _settled(
    client: CatalogClient, name: str, branch: str | None, unpublished: int, failure: CatalogError
) -> TableState:
    state = _looked_up(client, name, failure)
    if is_published(state, branch, unpublished):
        client.settled(name)
        return state
    if branch is None and state.contains(unpublished) is None:
        raise OutcomeUnknown(
            f"{failure}; nobody can tell whether main holds it, for others have expired that part of main's history"
        ) from failure
    if branch is not None and branch not in state.refs:
        raise BranchGone(
            f"publishing {unpublished} of table {name}: branch {branch} does not exist any more"
        ) from failure
    if isinstance(failure, Conflict):
        raise failure
    raise Conflict(f"{failure}; main does not hold it") from failure


def _looked_up(client: CatalogClient, name: str, failure: CatalogError) -> TableState:
    try:
        return retrying(Unreachable)(client.state, name)
    except Unreachable as silence:
        raise OutcomeUnknown(f"{failure}; and looking it up: {silence}") from failure


def _not_main(*branches: str) -> None:
    if MAIN in branches:
        raise ValueError("main is no writer's branch: name another one")
