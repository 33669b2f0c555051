"""The position of a start on a table, read from the table alone."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog import TableState
from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import BRANCH, EPOCH
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.tables.retention import Retention, is_left_behind


@dataclass(frozen=True)
class Position:
    """The position of this start of the pipeline on one table."""

    table: str
    branch: str  # the name only: with `publish = "direct"` the branch is never created
    main: int | None
    mark: Mark | None
    carried: Mapping[str, str]  # the newest summary with any pipeline's mark: our next commit copies the others' marks
    # False if main's history was cut and holds no mark: neither ours, nor another pipeline's that would have copied it.
    known: bool
    whole: bool = True  # main's history reaches back to its first commit
    uuid: str = ""
    schema: int = 0
    snapshots: int = 0
    expirable: int = 0  # how many of the snapshots may be expired
    rows: int = 0  # rows, files and bytes of main
    files: int = 0
    size: int = 0
    fence: int | None = None  # the snapshot of our branch; None with `publish = "direct"`
    spec: int = 0  # the partition layout

    @property
    def epoch(self) -> int:
        return int(self.branch.rpartition("_")[2])

    @property
    def held(self) -> Offsets:
        return self.mark.held() if self.mark else {}

    def within(self, generation: int) -> "Position":
        """Drop a mark of an older generation. It still proves that this pipeline has written here: `known` is true."""
        older = self.mark is not None and self.mark.token.generation < generation
        return replace(self, mark=None, known=True) if older else self


@dataclass(frozen=True)
class Registered:
    """A table that a pipeline writes to: its uuid, and the topic and type that its name was built from."""

    uuid: str
    topic: str = ""
    type: str = ""


@dataclass(frozen=True)
class Known:
    """The tables of a namespace that hold traces of a pipeline, and those that could not be read, with the reasons."""

    tables: Mapping[str, Registered] = field(default_factory=dict)
    unread: Mapping[str, LakehouseError] = field(default_factory=dict)

    def refuse_unread(self, pipeline: str, named: Collection[str]) -> None:
        """Raise if a table that cannot be read may be one of ours. Other unreadable tables are ignored.

        Every start opens the dead-letter table before it writes anything. If that table can be read, and neither it
        nor any other table has a trace of the pipeline, the pipeline has never written anything.

        If any table has a trace, the batch log was lost. An unreadable table might then hold the highest `complete`
        of all. Without it, records below that offset would be read twice, or with `source.start = "latest"` never.

        If every table with a trace is lost at once, `StreamTables` still checks each table before it writes to it.
        """
        if own := next((failure for name, failure in self.unread.items() if name in named), None):
            raise own
        if self.tables and self.unread:
            failure = next(iter(self.unread.values()))
            why = f"the batch log no longer lists {pipeline}, so this table may be its own: make it readable"
            raise type(failure)(f"{failure}; {why}") from failure


def place_on(state: TableState, pipeline: str, epoch: int, retention: Retention | None = None) -> Position:
    """The position of this pipeline and epoch on a table. Without a retention nothing is expirable."""
    summaries = [snapshot.summary for snapshot in state.ancestors()]
    mark = marks.newest(summaries, pipeline)
    carried = marks.carried(summaries)
    newest = state.snapshots.get(state.main) if state.main is not None else None
    rows, files, size = (
        int(newest.summary.get(f"total-{what}", 0)) if newest else 0 for what in ("records", "data-files", "files-size")
    )
    return Position(
        state.name,
        branch_of(pipeline, epoch),
        state.main,
        mark,
        carried,
        # Each marked commit copies the marks of all pipelines. A commit without our mark means that we never wrote
        # here, or that other programs cut the history in between.
        known=mark is not None or bool(carried) or state.history_complete(),
        whole=state.history_complete(),
        uuid=state.uuid,
        schema=state.schema_id,
        snapshots=len(state.snapshots),
        expirable=len(_expirable(state, pipeline, epoch, retention)) if retention else 0,
        rows=rows,
        files=files,
        size=size,
        fence=state.refs.get(branch_of(pipeline, epoch)),
        spec=state.spec_id,
    )


def _expirable(state: TableState, pipeline: str, epoch: int, retention: Retention) -> set[int]:
    """Snapshots that `expiry.expire` would remove: old ones of main, and our own that no ref leads to."""
    ancestors = list(state.ancestors())
    kept = retention.kept((each.timestamp_ms, each.summary) for each in ancestors)
    if kept == len(ancestors) and len(state.snapshots) < retention.number:
        return set()  # unreferenced snapshots wait until the table is at its limit, so that one expiry removes many
    reachable = {each.id for ref in state.refs for each in state.ancestors(ref)}
    left = {
        each.id
        for each in state.snapshots.values()
        if each.id not in reachable and is_left_behind(each.summary, pipeline, epoch)
    }
    return ({each.id for each in ancestors[kept:]} | left) - {*state.refs.values()}


def newest_generation(places: Iterable[Position]) -> int:
    return max((place.mark.token.generation for place in places if place.mark), default=1)


# -- traces of earlier starts -----------------------------------------------------------------------------


def branch_of(pipeline: str, epoch: int) -> str:
    return f"{BRANCH}{pipeline}_{epoch}"


def branches(state: TableState, pipeline: str) -> dict[int, str]:
    """The branches of this pipeline, by epoch."""
    pattern = re.compile(rf"{BRANCH}{re.escape(pipeline)}_(\d+)")
    return {int(found[1]): ref for ref in state.refs if (found := pattern.fullmatch(ref))}


def direct_epoch(state: TableState, pipeline: str) -> int:
    return int(state.properties.get(f"{EPOCH}{pipeline}", 0))


def has_landed(state: TableState, pipeline: str) -> bool:
    """True if the table may hold rows of the pipeline. With a cut history, any trace of a start counts."""
    place = place_on(state, pipeline, 0)
    return place.mark is not None or (not place.whole and newest_epoch(state, pipeline) > 0)


def newest_epoch(state: TableState, pipeline: str) -> int:
    """The highest epoch that has opened this table, by either way to publish; 0 if none has."""
    mark = marks.newest((each.summary for each in state.ancestors()), pipeline)
    return max([direct_epoch(state, pipeline), *branches(state, pipeline), *([mark.token.epoch] if mark else [])])
