"""What a catalog enforces, tried on a table of our own: `landing` is exactly once only where all of it holds.

Iceberg's REST protocol demands these checks, but a catalog may leave one out silently. Then an older writer could
commit, or a batch twice. So ask once before you rely on a fence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AssertTableUUID

from catalog.branches import drop_branches, open_branch
from catalog.commits import MAIN, Requirements, append_onto_main, commit, layout_is, ref_is_at, set_branch
from catalog.connection import CatalogClient
from catalog.conversions import state_of
from catalog.errors import BranchesRefused, CatalogError, Conflict, RequestRefused, TableMissing
from catalog.probes import probe_table
from catalog.specs import TableState

_FENCE = "probe_fence"
_NO_SUCH = 99  # a schema and a partition layout that a new table does not have
_WHY = "so a writer that was replaced could still commit, or a batch be committed twice"


@dataclass(frozen=True)
class Abilities:
    """What a catalog was found to lack, a plain sentence for each; nothing if it can be trusted with a fence."""

    failures: tuple[str, ...] = ()

    @property
    def keeps_fences(self) -> bool:
        """Whether `landing` may rely on a fence."""
        return not self.failures


def probe(client: CatalogClient, namespace: str) -> Abilities:
    """Try what `landing` relies on with a table of a random name, which is dropped afterwards, whatever happens.

    Raises what goes wrong otherwise: a catalog that gives no certain answer has not shown what it enforces.
    """
    with probe_table(client, namespace) as state:
        return Abilities(tuple(_failures(client, state.name)))


def _failures(client: CatalogClient, name: str) -> Iterator[str]:
    table = client.table(name)
    first = append_onto_main(table, (), {})
    commit(client, table, "probing", (ref_is_at(MAIN, None),), (*first.updates, set_branch(MAIN, first.snapshot)))
    try:
        open_branch(client, name, _FENCE)
    except BranchesRefused as refusal:
        yield f"the catalog allows no branch beside main: {refusal}"
        return
    if failure := _refusal_of_both(client, name):
        yield failure
        return
    for what, wrong in _wrong(client.state(name), first.snapshot):
        yield from _acceptance(client, name, what, wrong)
    drop_branches(client, name, [_FENCE])
    yield from _acceptance(client, name, "the place of a branch that was dropped", _Wrong(fence=first.snapshot))


@dataclass(frozen=True)
class _Wrong:
    """What a request requires in place of what is true; None leaves the truth."""

    uuid: UUID | None = None
    main: int | None = None
    fence: int | None = None
    schema_id: int | None = None
    spec_id: int | None = None


def _wrong(state: TableState, former: int) -> Iterator[tuple[str, _Wrong]]:
    """Each with the other requirements true, so that no catalog refuses it for another reason."""
    yield "the place of main", _Wrong(main=former)
    yield "the place of another branch", _Wrong(fence=former)
    yield "the current schema", _Wrong(schema_id=state.schema_id + _NO_SUCH)
    yield "the partition layout", _Wrong(spec_id=state.spec_id + _NO_SUCH)
    yield "the uuid of the table", _Wrong(uuid=uuid4())


def _refusal_of_both(client: CatalogClient, name: str) -> str | None:
    try:
        answer, snapshot = _sent(client, client.table(name), _Wrong())
    except (Conflict, RequestRefused) as refusal:
        return f"the catalog takes no request that moves main and another branch together: {refusal}"
    at = {ref: head.snapshot_id for ref, head in answer.metadata.refs.items()}
    if at.get(MAIN) != snapshot or at.get(_FENCE) != snapshot:
        return "the catalog took a request to move main and another branch together, and did not move both"
    return None


def _acceptance(client: CatalogClient, name: str, what: str, wrong: _Wrong) -> Iterator[str]:
    try:
        _sent(client, client.table(name), wrong)
    except (Conflict, TableMissing):
        return
    except CatalogError as failure:
        if not isinstance(failure, RequestRefused):
            raise
        yield f"the catalog calls a request that is wrong about {what} a bad one instead of a conflict: {failure}"
    else:
        yield f"the catalog took a request that was wrong about {what}, {_WHY}"


def _sent(client: CatalogClient, table: Table, wrong: _Wrong) -> tuple[CommitTableResponse, int]:
    """Move main and the fence to a new snapshot without rows; gives the answer and the snapshot."""
    state = state_of(table)
    append = append_onto_main(table, (), {})
    requirements: Requirements = (
        AssertTableUUID(uuid=wrong.uuid or table.metadata.table_uuid),
        ref_is_at(MAIN, wrong.main or state.main),
        ref_is_at(_FENCE, wrong.fence or state.refs.get(_FENCE)),
        *layout_is(
            state.schema_id if wrong.schema_id is None else wrong.schema_id,
            state.spec_id if wrong.spec_id is None else wrong.spec_id,
        ),
    )
    updates = (*append.updates, set_branch(MAIN, append.snapshot), set_branch(_FENCE, append.snapshot))
    with client.calling(f"probing {state.name}", committing=True):
        return client.pyiceberg.commit_table(table, requirements, updates), append.snapshot
