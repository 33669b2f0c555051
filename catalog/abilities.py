"""What a catalog enforces, tried on a table of our own: `landing` is exactly once only where all of it holds.

Iceberg's REST protocol demands these checks, but a catalog may leave one out silently. Then an older writer could
commit, or a batch twice. So ask once before you rely on a fence.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AssertTableUUID

from catalog.commits import (
    MAIN,
    Requirements,
    append_onto_main,
    commit,
    layout_is,
    properties_update,
    ref_is_at,
    set_branch,
)
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import BranchesRefused, CatalogError, Conflict, Denied, RequestRefused, TableMissing
from catalog.landing import drop_branches, open_branch
from catalog.probes import probe_table
from catalog.retries import retrying
from catalog.specs import TableState

_FENCE = "probe_fence"
_NO_SUCH = 99  # a schema and a partition layout that a new table does not have
_WHY = "so a writer that was replaced could still commit, or a batch be committed twice"
_NO_BRANCH = "the place of a branch that was dropped"


@dataclass(frozen=True)
class Abilities:
    """What a catalog was found to lack, a plain sentence for each; nothing if it can be trusted with a fence."""

    failures: tuple[str, ...] = ()
    main_suffices: bool = False  # it fails, but only with branches: a writer that uses none may still rely on it
    left: str = ""  # why the table that it was tried on could not be dropped

    @property
    def keeps_fences(self) -> bool:
        """Whether `landing` may rely on a fence."""
        return not self.failures


def probe(client: CatalogClient, namespace: str, branch: str | None = _FENCE) -> Abilities:
    """Try what `landing` relies on with a table of a random name, which is dropped afterwards, whatever happens.

    `branch` is named like that of a writer; without one, only what a writer needs that moves main alone is tried.
    Raises what goes wrong otherwise: a catalog that gives no certain answer has not shown what it enforces.
    """
    found = None
    try:
        with probe_table(client, namespace) as state:
            found = _abilities(_failures(client, state.name, branch))
    except (Denied, RequestRefused) as refusal:
        if found is None:
            raise
        return replace(found, left=str(refusal))
    return found


def probe_on(client: CatalogClient, name: str, properties: Mapping[str, str], branch: str | None = _FENCE) -> Abilities:
    """Try the requirements on a table that exists, for those who may not create one.

    The requests would set these properties, and each requires something wrong. Whether main and a branch can be moved
    together is left to the first commit.
    """
    table = client.table(name)
    state = state_of(table)
    no_snapshot = (state.main or 0) + 1
    wrong: dict[str, Requirements] = {
        "the place of main": (ref_is_at(MAIN, no_snapshot),),
        "the current schema": layout_is(state.schema_id + _NO_SUCH, state.spec_id),
        "the partition layout": layout_is(state.schema_id, state.spec_id + _NO_SUCH),
        "the uuid of the table": (AssertTableUUID(uuid=uuid4()),),
        **({_NO_BRANCH: (ref_is_at(branch, no_snapshot),)} if branch else {}),
    }

    def sent(requirements: Requirements) -> object:
        with client.calling(f"probing {name}", committing=True):
            return client.pyiceberg.commit_table(table, requirements, properties_update(properties))

    found = ((what, _acceptance(what, lambda: sent(each))) for what, each in wrong.items())  # noqa: B023 - called at once
    return _abilities((failure, what == _NO_BRANCH) for what, failure in found if failure)


_Failure = tuple[str, bool]  # the sentence, and whether it is about branches


def _abilities(failures: Iterator[_Failure]) -> Abilities:
    found = list(failures)
    return Abilities(tuple(said for said, _ in found), bool(found) and all(of_branches for _, of_branches in found))


def _failures(client: CatalogClient, name: str, branch: str | None) -> Iterator[_Failure]:
    table = client.table(name)
    first = append_onto_main(table, (), {})
    commit(client, table, "probing", (ref_is_at(MAIN, None),), (*first.updates, set_branch(MAIN, first.snapshot)))
    if branch:
        try:
            open_branch(client, name, branch)
        except BranchesRefused as refusal:
            yield f"the catalog allows no branch beside main: {refusal}", True
            return
    if failure := _refusal_of_both(client, name, branch):
        yield failure, branch is not None
        return
    for what, wrong in _wrong(client.state(name), first.snapshot):
        if branch or wrong.fence is None:
            yield from _of(what, client, name, branch, wrong)
    if branch:
        drop_branches(client, name, [branch])
        yield from _of(_NO_BRANCH, client, name, branch, _Wrong(fence=first.snapshot))


@dataclass(frozen=True)
class _Wrong:
    """What a request requires in place of what is true; None leaves the truth."""

    uuid: UUID | None = None
    main: int | None = None
    fence: int | None = None
    schema_id: int | None = None
    spec_id: int | None = None


_RIGHT = _Wrong()


def _wrong(state: TableState, former: int) -> Iterator[tuple[str, _Wrong]]:
    """Each with the other requirements true, so that no catalog refuses it for another reason."""
    yield "the place of main", _Wrong(main=former)
    yield "the place of another branch", _Wrong(fence=former)
    yield "the current schema", _Wrong(schema_id=state.schema_id + _NO_SUCH)
    yield "the partition layout", _Wrong(spec_id=state.spec_id + _NO_SUCH)
    yield "the uuid of the table", _Wrong(uuid=uuid4())


def _of(what: str, client: CatalogClient, name: str, branch: str | None, wrong: _Wrong) -> Iterator[_Failure]:
    if failure := _acceptance(what, lambda: _sent(client, client.table(name), branch, wrong)):
        yield failure, wrong.fence is not None


def _refusal_of_both(client: CatalogClient, name: str, branch: str | None) -> str | None:
    refs = "main and another branch together" if branch else "main"
    # A load may come from a replica that is behind, and somebody on the way may repeat a request that took effect.
    again = retrying((Conflict, TableMissing))
    try:
        answer, snapshot = again(lambda: _sent(client, client.table(name), branch, _RIGHT))
    except (Conflict, TableMissing, RequestRefused) as refusal:
        return f"the catalog takes no request that moves {refs}: {refusal}"
    at = {ref: head.snapshot_id for ref, head in answer.metadata.refs.items()}
    if at.get(MAIN) != snapshot or (branch and at.get(branch) != snapshot):
        return f"the catalog took a request to move {refs}, and did not {'move both' if branch else 'move it'}"
    return None


def _acceptance(what: str, send: Callable[[], object]) -> str | None:
    try:
        send()
    except (Conflict, TableMissing):
        return None
    except CatalogError as failure:
        if not isinstance(failure, RequestRefused):
            raise
        return f"the catalog calls a request that is wrong about {what} a bad one instead of a conflict: {failure}"
    return f"the catalog took a request that was wrong about {what}, {_WHY}"


def _sent(client: CatalogClient, table: Table, branch: str | None, wrong: _Wrong) -> tuple[CommitTableResponse, int]:
    """Move main and the branch to a new snapshot without rows; gives the answer and the snapshot."""
    state = state_of(table)
    append = append_onto_main(table, (), {})
    refs = (MAIN, branch) if branch else (MAIN,)
    at = {MAIN: wrong.main, branch: wrong.fence}
    requirements: Requirements = (
        AssertTableUUID(uuid=wrong.uuid or table.metadata.table_uuid),
        *(ref_is_at(ref, at[ref] or state.refs.get(ref)) for ref in refs),
        *layout_is(
            state.schema_id if wrong.schema_id is None else wrong.schema_id,
            state.spec_id if wrong.spec_id is None else wrong.spec_id,
        ),
    )
    updates = (*append.updates, *(set_branch(ref, append.snapshot) for ref in refs))
    try:
        with client.calling(f"probing {state.name}", committing=True):
            return client.pyiceberg.commit_table(table, requirements, updates), append.snapshot
    except (Conflict, TableMissing):
        # To drop the table would leave the files that no snapshot of it has. That of a right request may have them.
        if wrong != _RIGHT:
            with suppress(OSError):
                for path in append.metadata_files:
                    table.io.delete(path)
        raise
