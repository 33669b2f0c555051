"""A writer's branch, which fences older writers: every step is a compare-and-set.

A writer opens a branch of its own, and drops those of older writers with the same commit. `landing` requires the branch
in each commit to main. So a newer writer that drops it fences the older one for good. `direct_commits` does the same
without branches.
"""

from collections.abc import Sequence

from pyiceberg.table import Table

from catalog.commit_loop import ProposedCommit, commit_loop
from catalog.commits import (
    MAIN,
    Updates,
    append_onto_main,
    drop_ref,
    forget_published,
    ref_is_at,
    set_branch,
)
from catalog.connection import CatalogClient
from catalog.errors import (
    BranchesRefused,
    BranchExists,
    OutcomeUnknown,
)
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
