"""A writer's branch, and what it holds set upon main: every step a compare-and-set.

A writer stages on a branch of its own and publishes by moving main there. Main moves only when it is still
where the staged snapshot was built, and only while the branch is still there: a newer writer that drops the
branch fences the older one for good. For what is staged without a branch see `main_only`.
"""

from collections.abc import Sequence

from catalog.commits import WRITTEN_FORMAT, append_onto_main, commit, forget, is_published, move, note, remove, still
from catalog.connection import Lake
from catalog.conversions import state_of
from catalog.errors import (
    BranchesRefused,
    BranchExists,
    BranchGone,
    CatalogError,
    Conflict,
    FilesUnfit,
    OutcomeUnknown,
    Refused,
    Unreachable,
)
from catalog.retries import patiently
from catalog.specs import TableState

_MAIN = "main"


def open_branch(lake: Lake, name: str, branch: str, drop: Sequence[str] = ()) -> TableState:
    """Make the branch at main's head and drop the others with the same commit; Conflict where it exists.

    Without any snapshot there is nothing to point to: the branch then gets an empty one, main stays unset.
    OutcomeUnknown where it is there after we have asked for it: without an answer, or with the refusal that a
    proxy gets when it repeats a request. Whether a branch of this name is ours or another's cannot be told.
    BranchesRefused where the catalog does not take it, Refused where the table's format has no empty one from here.
    """
    _not_main(branch, *drop)
    refused: Conflict | None = None
    for last in patiently():
        table = lake.table(name)
        state = state_of(table)
        if branch in state.refs and refused:
            raise OutcomeUnknown(f"{refused}; by now it is there") from refused
        if branch in state.refs:
            raise BranchExists(f"opening branch {branch} of table {name}: it exists already")
        updates = [*(remove(ref) for ref in drop if ref in state.refs), *forget(state, drop)]
        if (at := state.main or _empty(state, drop)) is not None:
            updates.append(move(branch, at))
        elif state.format_version > WRITTEN_FORMAT:
            raise Refused(
                f"{name} has format version {state.format_version} and no snapshot yet, and its first one can't be"
                " written from here: insert a row with another engine, or make it of version 2"
            )
        else:
            with lake.calling(f"opening branch {branch} of table {name}"):
                empty = append_onto_main(table, (), {})
            updates += [*empty.updates, move(branch, empty.snapshot)]
        requirements = (still(branch, None), still(_MAIN, state.main))
        try:
            return commit(lake, table, f"opening branch {branch}", requirements, tuple(updates))
        except Conflict as conflict:
            # Main may just have moved; whether the branch was taken is seen at the next look.
            refused = conflict
            if last:
                raise
        except Refused as refusal:
            raise BranchesRefused(str(refusal)) from refusal
    raise AssertionError


def _empty(state: TableState, branches: Sequence[str]) -> int | None:
    """Give the empty snapshot that an earlier branch began with: a table that stays empty gets no second one."""
    heads = (state.refs[branch] for branch in branches if branch in state.refs)
    return next((at for at in heads if state.snapshots[at].summary.get("total-records") == "0"), None)


def drop_branches(lake: Lake, name: str, branches: Sequence[str]) -> TableState:
    """Drop those of the branches that exist."""
    _not_main(*branches)
    for last in patiently():
        table = lake.table(name)
        state = state_of(table)
        found = tuple(remove(ref) for ref in branches if ref in state.refs)
        if not found:
            return state
        try:
            return commit(lake, table, "dropping branches", (), (*found, *forget(state, branches)))
        except (Conflict, OutcomeUnknown):
            if last:
                raise
    raise AssertionError


def publish(lake: Lake, name: str, branch: str | None, staged: int, parent: int | None) -> TableState:
    """Move main from `parent` to `staged`, which the branch must still point to; None: it was staged without one.

    Safe to repeat. A refusal or a missing answer is settled by looking whether main's history holds `staged`:
    if it does, this succeeded; if it does not, Conflict (BranchGone when the branch was dropped); if nobody
    can say, OutcomeUnknown. A request that was lost may still arrive after a Conflict: it is fenced as soon as
    the branch, or main, has moved, and whoever publishes again looks before that. FilesUnfit where nothing has
    kept the snapshot, and others have expired it.
    """
    _not_main(*_only(branch))
    what = f"publishing {staged}"
    table = lake.table(name)
    state = state_of(table)
    if is_published(state, branch, staged):
        return state
    if branch is None:
        _check_there(state, staged)
    if staged in state.snapshots and not _descends(state, staged, parent):
        # Main would lose what lies between: this must not even be tried.
        raise Conflict(f"{what} of table {name}: it was not built upon {parent}, so it must be staged again")
    requirements = (still(_MAIN, parent), *(still(ref, staged) for ref in _only(branch)))
    try:
        updates = (move(_MAIN, staged), *(note(ref, staged) for ref in _only(branch)))
        return commit(lake, table, what, requirements, updates)
    except (Conflict, OutcomeUnknown) as failure:
        # Also after a refusal: a proxy that repeats a request gets the refusal of its second.
        return _settled(lake, name, branch, staged, failure)
    except Refused:
        if branch is None:
            _check_there(lake.state(name), staged)
        raise


def _only(branch: str | None) -> tuple[str, ...]:
    return () if branch is None else (branch,)


def _check_there(state: TableState, staged: int) -> None:
    if staged not in state.snapshots:
        raise FilesUnfit(f"publishing {staged} of table {state.name}: others have expired it before it was published")


def _descends(state: TableState, staged: int, parent: int | None) -> bool:
    return parent is None or any(snapshot.id == parent for snapshot in state.lineage(staged))


def _settled(lake: Lake, name: str, branch: str | None, staged: int, failure: CatalogError) -> TableState:
    state = _looked_up(lake, name, failure)
    if is_published(state, branch, staged):
        lake.settled(name)
        return state
    if branch is None and state.contains(staged) is None:
        raise OutcomeUnknown(f"{failure}; the history that could tell has been expired") from failure
    if branch is not None and branch not in state.refs:
        raise BranchGone(f"publishing {staged} of table {name}: branch {branch} is not there any more") from failure
    if isinstance(failure, Conflict):
        raise failure
    raise Conflict(f"{failure}; main does not hold it") from failure


def _looked_up(lake: Lake, name: str, failure: CatalogError) -> TableState:
    for last in patiently():
        try:
            return lake.state(name)
        except Unreachable as silence:
            if last:
                raise OutcomeUnknown(f"{failure}; and looking it up: {silence}") from failure
    raise AssertionError


def _not_main(*branches: str) -> None:
    if _MAIN in branches:
        raise ValueError("main is no writer's branch")
