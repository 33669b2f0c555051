"""One compare-and-set on a table: sent once, never again behind our back.

pyiceberg's own transactions repeat a refused append on top of whatever is there by then (since 0.12), which
would turn every requirement of ours into a wish; so the requests are put together here and sent directly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from catalog.connection import Lake
from catalog.conversions import state_from
from catalog.errors import Conflict, Refused, TableMissing
from catalog.specs import TableState

WRITTEN_FORMAT = 2  # the newest that pyiceberg writes a snapshot's manifests of
FOR_EVER_MS = 2**63 - 1  # the longest age that Iceberg knows
Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


def commit(lake: Lake, table: Table, what: str, requirements: Requirements, updates: Updates) -> TableState:
    """Send the updates under the requirements, once.

    Conflict when a requirement did not hold, or by a replica that has not heard of the table; OutcomeUnknown without an
    answer.
    """
    name = ".".join(table.name())
    # A table dropped and made again under the same name is another table.
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    try:
        with lake.calling(f"{what} of table {name}", committing=True):
            answer = lake.pyiceberg.commit_table(table, (same_table, *requirements), updates)
    except TableMissing as missing:
        lake.table(name)  # raises the same where it is gone
        raise Conflict(f"{missing}; yet it is there") from missing
    return state_from(name, answer.metadata, answer.metadata_location)


def still(ref: str, snapshot: int | None) -> TableRequirement:
    """Require that the ref is at the snapshot; None: that there is no such ref."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot})


def move(ref: str, snapshot: int) -> TableUpdate:
    """Set the branch to the snapshot, making it where it is missing.

    Whatever age a table's `history.expire.max-ref-age-ms` allows its refs: a writer's branch goes with its writer. A
    branch's age is that of its snapshot, so on a quiet table the next expiry would take it at once.
    """
    age = {} if ref == "main" else {"max-ref-age-ms": FOR_EVER_MS}
    return SetSnapshotRefUpdate.model_validate(
        {"ref-name": ref, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot, **age}
    )


def remove(ref: str) -> TableUpdate:
    """Drop the ref."""
    return RemoveSnapshotRefUpdate.model_validate({"ref-name": ref})


def note(branch: str, snapshot: int) -> TableUpdate:
    """Leave word, with the commit that moves main, of what was published from the branch."""
    return SetPropertiesUpdate(updates={_noted(branch): str(snapshot)})


def forget(state: TableState, branches: Iterable[str]) -> Updates:
    """Take back what was noted of these branches, where anything was."""
    known = [name for name in map(_noted, branches) if name in state.properties]
    return (RemovePropertiesUpdate(removals=known),) if known else ()


def is_published(state: TableState, branch: str | None, snapshot: int) -> bool:
    """Whether main holds what was staged on the branch; where others have expired main's history, the note tells."""
    found = state.contains(snapshot)
    if found is None and branch is not None:
        return state.properties.get(_noted(branch)) == str(snapshot)
    return bool(found)


def _noted(branch: str) -> str:
    return f"published.{branch}"


def properties(given: Mapping[str, str]) -> Updates:
    """Set these properties of the table, and leave the others as they are."""
    return (SetPropertiesUpdate(updates=dict(given)),) if given else ()


def check_writable(table: Table) -> None:
    """Refuse a table of whose format no snapshot can be made from here."""
    if (version := table.metadata.format_version) > WRITTEN_FORMAT:
        raise Refused(
            f"{'.'.join(table.name())} has format version {version}, and snapshots of that are made by engines only:"
            f" use a table of version {WRITTEN_FORMAT}"
        )


@dataclass(frozen=True)
class Append:
    """A snapshot on top of main that waits to be put on a branch."""

    snapshot: int
    updates: Updates


def append_onto_main(table: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> Append:
    """Write the manifests of a snapshot that adds the files to main's head; no ref points to it yet.

    They stay where they are should the commit be refused: a refusal may be a proxy's that repeated a request
    which had been heard, and a snapshot without its manifests is a broken table. Orphans are maintenance's.
    """
    check_writable(table)
    # Without a branch pyiceberg builds upon main and sets no ref. Many small manifests become one where the table asks
    # for it (`commit.manifest-merge.enabled`): pyiceberg merges only then, engines unless told otherwise.
    producer = table.transaction().update_snapshot(dict(summary), branch=None).merge_append()
    for file in files:
        producer.append_data_file(file)
    updates, _ = producer._commit()  # noqa: SLF001 - the public way commits by itself, and repeats
    return Append(producer.snapshot_id, updates)
