"""The door to the catalog, and the only importer of `catalog`: our place on each table, taken and moved.

Every writer has a branch of its own on every table, named after the pipeline and the epoch of this start.
To open it is to drop the branches of earlier starts, and a publication requires its own branch to be where
it was staged: from then on no earlier writer can move main, whenever it wakes up.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

import catalog
from catalog import Column, Connection, FileMissing, HeadFile, Partition, Pinned, Sort, TableSpec, TableState, bare
from lakehouse_ingest import ledger
from lakehouse_ingest.errors import (
    LONGEST,
    LakehouseError,
    NeedsOperator,
    SettingsRefused,
    Superseded,
    TableChanged,
    TryAgain,
)
from lakehouse_ingest.ledger import Mark
from lakehouse_ingest.records import Offsets

# The values that cross this door.
__all__ = [
    "Column",
    "Connection",
    "FileMissing",
    "HeadFile",
    "Lake",
    "Partition",
    "Pinned",
    "Place",
    "Registered",
    "Sort",
    "TableSpec",
    "TableState",
    "bare",
    "newest_generation",
]

PUBLISH_TRIES = 8
# The settings behind what a refusal says that we had shown.
WHO_WE_ARE = {
    "credential": "`catalog.credential` and `catalog.scope`",
    "token": "`catalog.token`",
    "rest.sigv4-enabled": "`catalog.sign_for`, `catalog.sign_region` and `s3.access_key`",
    "": "`catalog.token` or `catalog.credential`",
}
FILES = "`s3.access_key`, `s3.secret_key` and the bucket"
FILES_AWAY = "`s3.endpoint` and `s3.session_token`"
TOPIC, TYPE = "lakehouse.topic", "lakehouse.type"  # properties of a table whose name was made of them


@dataclass(frozen=True)
class Place:
    """Where this start of the pipeline stands on one table."""

    table: str
    branch: str
    main: int | None
    mark: Mark | None
    carried: Mapping[str, str]  # the newest summary with a mark of anybody: others' marks travel on from it
    known: bool  # false: main's history was pruned and holds no mark of ours
    uuid: str = ""
    schema: int = 0
    snapshots: int = 0

    @property
    def epoch(self) -> int:
        return int(self.branch.rpartition("_")[2])

    @property
    def held(self) -> Offsets:
        return self.mark.held() if self.mark else {}

    def within(self, generation: int) -> "Place":
        """The same; what an older generation's mark says holds no more, and that it is there tells who was here."""
        older = self.mark is not None and self.mark.token.generation < generation
        return replace(self, mark=None, known=True) if older else self


@dataclass(frozen=True)
class Registered:
    """Which table it is, and whose: the topic and the type that its name was made of."""

    uuid: str
    topic: str = ""
    type: str = ""


class Lake:
    """The catalog, for one pipeline."""

    def __init__(
        self,
        connection: catalog.Connection,
        pipeline: str,
        refused: Callable[[str, int, Exception], None] = lambda _table, _attempt, _error: None,
    ) -> None:
        with _explained():
            try:
                self._lake = catalog.connect(connection)
            except catalog.Refused as refusal:
                raise SettingsRefused(_with_advice(refusal, "`catalog.uri`")) from refusal
            except catalog.Unreachable as away:
                raise TryAgain(_with_advice(away, "`catalog.uri`")) from away
        self._pipeline = pipeline
        self._refused = refused  # told each time that somebody else's commit came first
        self._generation = 0  # older marks say nothing
        self._taken = 0  # the last epoch that was asked for, got or not: an answer may be lost

    def ensure_namespace(self, namespace: str) -> None:
        with _explained():
            catalog.ensure_namespace(self._lake, namespace)

    def has_namespace(self, namespace: str) -> bool:
        with _explained():
            return catalog.has_namespace(self._lake, namespace)

    @contextmanager
    def probe(self, namespace: str) -> Iterator[tuple[str, str]]:
        """A table of one column, and its location; gone when the block ends."""
        with _explained(), catalog.probe_table(self._lake, namespace) as state:
            yield state.name, state.location

    def write_and_read(self, table: str) -> None:
        """A row in such a table, there and back."""
        with _explained():
            catalog.write_and_read(self._lake, table)

    def find(self, table: str) -> TableState | None:
        with _explained():
            try:
                return catalog.load(self._lake, table)
            except catalog.TableMissing:
                return None

    def create(self, spec: catalog.TableSpec) -> TableState:
        with _explained():
            return catalog.create_table(self._lake, spec)

    def rows_since(
        self, table: str, column: str, moment: dt.datetime, columns: Sequence[str]
    ) -> list[dict[str, object]]:
        with _explained():
            return catalog.rows_since(self._lake, table, column, moment, columns)

    def add_columns(self, table: str, columns: Sequence[tuple[str, catalog.Column]]) -> TableState:
        with _explained():
            return catalog.add_columns(self._lake, table, columns)

    # -- one head of a table, whatever is committed meanwhile; FileMissing is passed on ----------------------

    def pin(self, table: str) -> Pinned | None:
        with _explained():
            try:
                return catalog.pin(self._lake, table)
            except catalog.TableMissing:
                return None

    def files_of(self, pinned: Pinned, bounds_of: Sequence[str]) -> list[HeadFile]:
        with _explained():
            return list(pinned.files(bounds_of))

    def batches_of(self, pinned: Pinned, file: HeadFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _explained():
            yield from pinned.batches(file, columns)

    def has_file(self, pinned: Pinned, path: str) -> bool:
        with _explained():
            return pinned.exists(path)

    # -- the tables of a pipeline -------------------------------------------------------------------------

    def registered(self, record: str) -> dict[str, "Registered"]:
        """The tables that this pipeline has landed in, or was about to, as the batch record's properties say."""
        state = self.find(record)
        prefix = self._registered_as("")
        return {
            key.removeprefix(prefix): Registered(**json.loads(text))
            for key, text in (state.properties if state else {}).items()
            if key.startswith(prefix)
        }

    def register(self, record: str, tables: Mapping[str, "Registered"]) -> None:
        """Before the first row lands in a table: a start has to know them all."""
        if not tables:
            return
        texts = {self._registered_as(name): json.dumps(asdict(each)) for name, each in tables.items()}
        with _explained():
            catalog.set_properties(self._lake, record, texts)

    def knows(self, table: str) -> bool:
        """Whether a start of this pipeline has ever come so far as to leave its mark or its branch there."""
        return self._newest_epoch(table) > 0

    def known_in(self, namespace: str) -> dict[str, "Registered"]:
        """The tables of a namespace that know this pipeline, whatever the batch record says."""
        with _explained():
            names = catalog.names_in(self._lake, namespace)
        states = {name: state for name in names if (state := self.find(name)) and self._newest_of(state)}
        return {
            name: Registered(state.uuid, state.properties.get(TOPIC, ""), state.properties.get(TYPE, ""))
            for name, state in states.items()
        }

    def heads(self, record: str) -> dict[str, ledger.Head]:
        """The last landing in each table, as the batch record has it."""
        state = self.find(record)
        return ledger.heads((each.summary for each in state.ancestors()), self._pipeline) if state else {}

    def _registered_as(self, table: str) -> str:
        return f"{ledger.PREFIX}table.{self._pipeline}.{table}"

    # -- our place ----------------------------------------------------------------------------------------

    def claim(self, first: str, others: Sequence[str]) -> tuple[int, Place]:
        """Take the next epoch: whoever makes its branch on the `first` table has it, and nobody else.

        The second time it is to go on after a failure, which must not take over from whoever has come since.
        """
        again = self._taken > 0
        for _ in range(PUBLISH_TRIES):
            newest = max(self._newest_epoch(table) for table in (first, *others))
            if again and newest > self._taken:
                raise Superseded(_superseded(self._pipeline, newest))
            self._taken = newest + 1
            try:
                return self._taken, self.open(first, self._taken)
            except _LostRace:
                self._taken -= 1
                continue
        raise TryAgain(f"other starts of pipeline {self._pipeline} took every epoch that we asked for")

    def _newest_epoch(self, table: str) -> int:
        state = self.find(table)
        return self._newest_of(state) if state else 0

    def _newest_of(self, state: TableState) -> int:
        marked = ledger.newest((each.summary for each in state.ancestors()), self._pipeline)
        return max([0, *_epochs(state, self._pipeline), *([marked.token.epoch] if marked else [])])

    def _still_ours(self, place: Place, state: TableState) -> None:
        """Whether we may write: Spark makes our branch anew when it was dropped during an append."""
        if state.uuid != place.uuid:
            raise TableChanged(
                f"the table {place.table} was dropped and made anew while we wrote to it (uuid {place.uuid[:8]}… is now"
                f" {state.uuid[:8]}…): restore it; `lakehouse-ingest recover` says what can be done"
            )
        newest = self._newest_of(state)
        if place.branch not in state.refs or newest > place.epoch:
            raise Superseded(_superseded(self._pipeline, newest))

    def open_all(self, tables: Sequence[str], epoch: int, threads: Executor) -> dict[str, Place]:
        """Our places on those of these tables that are there."""
        there = [name for name, state in zip(tables, threads.map(self.find, tables), strict=True) if state]
        return dict(zip(there, threads.map(lambda name: self.open(name, epoch), there), strict=True))

    def open(self, table: str, epoch: int) -> Place:
        """Take our place on a table as of this epoch; whoever stood there before is shut out."""
        branch = _branch(self._pipeline, epoch)
        with _explained():
            before = catalog.load(self._lake, table)
            older = _epochs(before, self._pipeline)
            stale = [ref for number, ref in older.items() if number < epoch]  # never the branch of a newer start
            taken = max(older, default=0) >= epoch
            state = before if taken else catalog.open_branch(self._lake, table, branch, stale)
            # Another start may have come in between: the higher epoch stays, the lower one goes.
            now = _epochs(state, self._pipeline)
            if (newest := max(now)) > epoch:
                raise Superseded(_superseded(self._pipeline, newest))
            if lower := [ref for number, ref in now.items() if number < epoch]:
                state = catalog.drop_branches(self._lake, table, lower)
        return self._place(table, branch, state)

    def _place(self, table: str, branch: str, state: TableState) -> Place:
        summaries = [snapshot.summary for snapshot in state.ancestors()]
        mark = ledger.newest(summaries, self._pipeline)
        carried = next((each for each in summaries if any(key.startswith(ledger.MARK) for key in each)), {})
        return Place(
            table,
            branch,
            state.main,
            mark,
            carried,
            # Each marked commit carries the marks of all: one without ours says that we were never here.
            known=mark is not None or bool(carried) or state.history_complete(),
            uuid=state.uuid,
            schema=state.schema_id,
            snapshots=len(state.snapshots),
        ).within(self._generation)

    def begin_within(self, generation: int) -> None:
        """From now on the marks of this generation count, and no older ones."""
        self._generation = generation

    def seen(self, state: TableState) -> Place:
        """Where this pipeline stands on a table, without taking a place there."""
        newest = max(_epochs(state, self._pipeline), default=0)
        return self._place(state.name, _branch(self._pipeline, newest), state)

    def again(self, place: Place) -> Place:
        """Our place, looked up anew."""
        with _explained():
            return self._place(place.table, place.branch, catalog.load(self._lake, place.table))

    def staged(self, place: Place, token: str) -> catalog.Snapshot | None:
        """The snapshot that this token left on our branch, if it did."""
        with _explained():
            state = catalog.load(self._lake, place.table)
        self._still_ours(place, state)
        found = state.snapshots.get(state.refs[place.branch])
        return found if found and found.summary.get(f"{ledger.PREFIX}token") == token else None

    def publish(self, place: Place, staged: int, mark: Mark, extra: Mapping[str, str] | None = None) -> Place:
        """Move main to what was staged; when somebody else came first, stage the same files again upon theirs."""
        parent = place.main
        for attempt in range(1, PUBLISH_TRIES + 1):
            try:
                with self._on(place):
                    state = catalog.publish(self._lake, place.table, place.branch, staged, parent)
            except _LostRace as race:
                self._refused(place.table, attempt, race)
                now = self._unmoved(place, staged)
                with self._on(place):
                    again = catalog.restage(
                        self._lake,
                        place.table,
                        place.branch,
                        staged,
                        {**ledger.to_summary(mark, now.carried), **(extra or {})},
                    )
                # Of `now` are the marks that travel on: whoever moved main since is a reason to do it once more.
                staged, parent = again.snapshot, now.main
            else:
                return self._place(place.table, place.branch, state)
        raise TryAgain(f"the table {place.table} was changed by others {PUBLISH_TRIES} times while we tried to commit")

    @contextmanager
    def _on(self, place: Place) -> Iterator[None]:
        """A branch that is gone tells of a newer start, or of a table that is another one by now."""
        try:
            with _explained():
                yield
        except Superseded:
            with _explained():
                state = catalog.load(self._lake, place.table)
            self._still_ours(place, state)
            raise

    def _unmoved(self, place: Place, staged: int | None = None) -> Place:
        """Our place as it is now, when nobody but strangers has moved main since, or what we staged is there late."""
        with _explained():
            state = catalog.load(self._lake, place.table)
        self._still_ours(place, state)
        now = self._place(place.table, place.branch, state)
        if not now.known:
            # Others compacted the table and expired what was before: with our branch there, nobody else of ours came.
            now = replace(now, mark=place.mark, carried=place.carried, known=place.known)
        if now.held != place.held and not (staged is not None and state.contains(staged)):
            raise TableChanged(
                f"the table {place.table} holds other offsets than it did a moment ago:"
                " it was rolled back, or another writer runs under this pipeline's name"
            )
        return now

    def append(self, place: Place, rows: Sequence[Mapping[str, object]], mark: Mark, extra: Mapping[str, str]) -> Place:
        """A few rows of bookkeeping, staged and published like any landing."""
        # Others write to the same table all the time: their marks, as they are now, must travel on.
        place = self._unmoved(place)
        summary = {**ledger.to_summary(mark, place.carried), **extra}
        with self._on(place):
            staged = catalog.append_rows(self._lake, place.table, place.branch, rows, summary)
        # Staged upon whatever main was by then: where that is not `place.main`, it is refused and staged again.
        return self.publish(place, staged.snapshot, mark, extra)


class _LostRace(TryAgain):
    """Reconciled where that can be done; elsewhere the next start looks."""


def newest_generation(places: Iterable[Place]) -> int:
    return max((place.mark.token.generation for place in places if place.mark), default=1)


@contextmanager
def _explained() -> Iterator[None]:
    """The catalog's errors in this project's words: who must act."""
    try:
        yield
    except (LakehouseError, FileMissing):
        raise
    except catalog.BranchGone as gone:
        raise Superseded(f"a newer start of this pipeline has taken over ({gone})") from gone
    except catalog.Conflict as conflict:
        raise _LostRace(str(conflict)) from conflict
    except catalog.Denied as denied:
        raise _not_let_in(denied) from denied
    except catalog.FilesUnreachable as away:
        raise TryAgain(_with_advice(away, FILES_AWAY)) from away
    except (catalog.Unreachable, catalog.OutcomeUnknown) as away:
        raise TryAgain(str(away)) from away
    except catalog.TableMissing as missing:
        raise TableChanged(
            f"{missing}: it was dropped while the pipeline ran: restore it; `lakehouse-ingest recover` says what can be"
            " done"
        ) from missing
    except catalog.FilesUnfit as changed:
        # The next start holds the table against the settings, and says which of them to change.
        raise TryAgain(str(changed)) from changed
    except catalog.CatalogError as refusal:
        raise NeedsOperator(str(refusal)) from refusal


def _not_let_in(denied: catalog.Denied) -> LakehouseError:
    if isinstance(denied, catalog.FilesDenied):
        return SettingsRefused(_with_advice(denied, FILES))
    # Whoever gives us a new token each time that we ask may be confused for a while: a key that is turned, a clock
    # that goes wrong. A token that a person has given us stays refused.
    passing = isinstance(denied, catalog.NotLetIn) and denied.before and denied.known_by == "credential"
    return (TryAgain if passing else SettingsRefused)(_with_advice(denied, WHO_WE_ARE[denied.known_by]))


def _with_advice(failure: catalog.CatalogError, see: str) -> str:
    return f"{str(failure)[: LONGEST - len(see) - len('; see ')]}; see {see}"


def _branch(pipeline: str, epoch: int) -> str:
    return f"ingest_{pipeline}_{epoch}"


def _epochs(state: TableState, pipeline: str) -> dict[int, str]:
    pattern = re.compile(rf"ingest_{re.escape(pipeline)}_(\d+)")
    return {int(found[1]): ref for ref in state.refs if (found := pattern.fullmatch(ref))}


def _superseded(pipeline: str, epoch: int) -> str:
    return f"a newer start (epoch {epoch}) of pipeline {pipeline} has taken over; this one ends without writing"
