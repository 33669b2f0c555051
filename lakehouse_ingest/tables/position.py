"""Where a start of a pipeline stands on a table, read from nothing but what the table says."""

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
    """Where this start of the pipeline stands on one table."""

    table: str
    branch: str  # where nothing but main is allowed, it is never made
    main: int | None
    mark: Mark | None
    carried: Mapping[str, str]  # the newest summary with a mark of anybody: others' marks travel on from it
    known: bool  # false: main's history was cut and holds no mark of ours, nor of anybody who would have carried it
    whole: bool = True  # main's history reaches back to its first commit
    uuid: str = ""
    schema: int = 0
    snapshots: int = 0
    expirable: int = 0  # of those
    rows: int = 0  # of main, and the files that they are in
    files: int = 0
    size: int = 0

    @property
    def epoch(self) -> int:
        return int(self.branch.rpartition("_")[2])

    @property
    def held(self) -> Offsets:
        return self.mark.held() if self.mark else {}

    def within(self, generation: int) -> "Position":
        """The same; what an older generation's mark says holds no more, and that it is there tells who was here."""
        older = self.mark is not None and self.mark.token.generation < generation
        return replace(self, mark=None, known=True) if older else self


@dataclass(frozen=True)
class Registered:
    """Which table it is, and whose: the topic and the type that its name was made of."""

    uuid: str
    topic: str = ""
    type: str = ""


@dataclass(frozen=True)
class Known:
    """The tables of a namespace that know a pipeline, and those that could not be asked, each with the reason."""

    tables: Mapping[str, Registered] = field(default_factory=dict)
    unread: Mapping[str, LakehouseError] = field(default_factory=dict)

    def refuse_unread(self, pipeline: str, named: Collection[str]) -> None:
        """Stops at a table that can't be read and may be ours; the others may be passed over.

        Every start opens the dead letters before anything lands: where they can be read and know nothing of the
        pipeline, and no other table does, it has never landed anything. Where one does, the batch record is lost, and
        a table that is not asked might hold the highest `complete` of all: what lies below it would be read again, or
        by `source.start = "latest"` never. Should all that knew us be lost at once, `StreamTables` still sees what a
        table holds before it writes to it.
        """
        if own := next((failure for name, failure in self.unread.items() if name in named), None):
            raise own
        if self.tables and self.unread:
            failure = next(iter(self.unread.values()))
            why = f"as the batch record knows {pipeline} no more, this table may be its own: see that it can be read"
            raise type(failure)(f"{failure}; {why}") from failure


def place_on(state: TableState, pipeline: str, epoch: int, retention: Retention | None = None) -> Position:
    """Without a retention nothing is expirable."""
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
        # Each marked commit carries the marks of all: one without ours says that we were never here, or that others
        # have cut the history in between.
        known=mark is not None or bool(carried) or state.history_complete(),
        whole=state.history_complete(),
        uuid=state.uuid,
        schema=state.schema_id,
        snapshots=len(state.snapshots),
        expirable=len(_expirable(state, pipeline, epoch, retention)) if retention else 0,
        rows=rows,
        files=files,
        size=size,
    )


def _expirable(state: TableState, pipeline: str, epoch: int, retention: Retention) -> set[int]:
    """What `maintenance.expire` would take: of main what need not stay, and what no ref leads to and was ours."""
    ancestors = list(state.ancestors())
    kept = retention.kept((each.timestamp_ms, each.summary) for each in ancestors)
    if kept == len(ancestors) and len(state.snapshots) < retention.number:
        return set()  # what was left behind waits until there are as many as may be
    reachable = {each.id for ref in state.refs for each in state.ancestors(ref)}
    left = {
        each.id
        for each in state.snapshots.values()
        if each.id not in reachable and is_left_behind(each.summary, pipeline, epoch)
    }
    return ({each.id for each in ancestors[kept:]} | left) - {*state.refs.values()}


def newest_generation(places: Iterable[Position]) -> int:
    return max((place.mark.token.generation for place in places if place.mark), default=1)


# -- who was here -----------------------------------------------------------------------------------------


def branch_of(pipeline: str, epoch: int) -> str:
    return f"{BRANCH}{pipeline}_{epoch}"


def branches(state: TableState, pipeline: str) -> dict[int, str]:
    """By their epochs."""
    pattern = re.compile(rf"{BRANCH}{re.escape(pipeline)}_(\d+)")
    return {int(found[1]): ref for ref in state.refs if (found := pattern.fullmatch(ref))}


def direct_epoch(state: TableState, pipeline: str) -> int:
    return int(state.properties.get(f"{EPOCH}{pipeline}", 0))


def has_landed(state: TableState, pipeline: str) -> bool:
    """Whether rows of it may be there; where the history was cut, to have been there is enough."""
    place = place_on(state, pipeline, 0)
    return place.mark is not None or (not place.whole and newest_epoch(state, pipeline) > 0)


def newest_epoch(state: TableState, pipeline: str) -> int:
    """Of the starts that have been here, however they publish; 0: none has."""
    mark = marks.newest((each.summary for each in state.ancestors()), pipeline)
    return max([direct_epoch(state, pipeline), *branches(state, pipeline), *([mark.token.epoch] if mark else [])])
