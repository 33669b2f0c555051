"""Looks at a table that others made: whether it can be used, and what to know about it first."""

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.connection import CatalogClient
from catalog.errors import RequestRefused, TableMissing
from catalog.fields import columns_in, struct_of
from catalog.partitions import VOID, shown
from catalog.registration import A_VIEW, is_view, load
from catalog.specs import TableState

_DAY = 86_400_000
_USUAL_VERSION = 2
# Keys of a snapshot's summary, in plain words.
_DELETES = {"total-position-deletes": "rows deleted by position", "total-equality-deletes": "deletes by value"}


@dataclass(frozen=True)
class Inspection:
    """What has a certain name: a table that can be used as it is, or none and why."""

    name: str
    state: TableState | None
    refusal: str = ""  # one sentence; empty if there simply is no table
    notes: tuple[str, ...] = ()  # what to know before the table is used as it is

    @property
    def missing(self) -> bool:
        """Whether a table of that name may be created."""
        return self.state is None and not self.refusal


def inspect(client: CatalogClient, name: str) -> Inspection:
    """Look at what has the name; changes nothing. Ask `plan` which data the table would take."""
    try:
        state = load(client, name)
    except TableMissing:
        return Inspection(name, None, f"{name} {A_VIEW}" if is_view(client, name) else "")
    except RequestRefused as refusal:
        return Inspection(name, None, str(refusal))
    return Inspection(name, state, notes=(*_of_its_shape(state), *_of_its_history(state)))


def _of_its_shape(state: TableState) -> Iterator[str]:
    if state.format_version < _USUAL_VERSION:
        yield f"it has format version {state.format_version}: single rows can't be deleted from it"
    if state.format_version > _USUAL_VERSION:
        yield (
            f"it has format version {state.format_version}: rows are added from here, but only engines rewrite its"
            " files or merge its manifests"
        )
    if always := [path for path, field, _ in columns_in(struct_of(state.columns)) if field.required]:
        yield f"rows need a value in {', '.join(always)}"
    if state.identifier:
        yield f"rows are told apart by {', '.join(state.identifier)}, which nothing here enforces"
    if state.sort:
        yield f"files are to be sorted by {', '.join(map(str, state.sort))}"
    if voids := [each for each in state.partitions if each.transform == VOID]:
        yield f"partition fields that were dropped: {shown(voids)}"
    if (written := state.properties.get("write.format.default", "parquet").lower()) != "parquet":
        yield f"engines write {written} files to it"


def _of_its_history(state: TableState) -> Iterator[str]:
    newest = next(state.ancestors(), None)
    for key, words in _DELETES.items():
        if newest and int(newest.summary.get(key, "0")):
            yield f"it holds {newest.summary[key]} {words}: readers have to apply them"
    if not state.history_complete():
        yield "its older snapshots have been expired"
    age = state.properties.get("history.expire.max-snapshot-age-ms", "")
    if age.isdigit() and int(age) < _DAY:
        yield f"others expire its snapshots after {int(age) // 1000} s"
