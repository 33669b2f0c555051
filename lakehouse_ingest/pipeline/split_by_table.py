"""The records of a batch, each on its way to a table, or to none.

First a look: an aggregate over records in memory tells which routes there are, how many records take each, and what
fields these have. Then tables are made ready for them, and only then the rows of each table are split off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.observe.watch import Span
from lakehouse_ingest.records import FAULT, RECORD, ROUTE, Range, Reason
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages import accounting, rescue, transforms
from lakehouse_ingest.stages.accounting import FILTERED, LANDED, Tally
from lakehouse_ingest.stages.faults import faulty, worded
from lakehouse_ingest.stages.formats import Format, Lenient
from lakehouse_ingest.stages.routing import NOT_KEPT, STAGE, Route, astray
from lakehouse_ingest.stages.shaping import shape
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables.effects import Landing
from lakehouse_ingest.tables.first_batch import Planned
from lakehouse_ingest.tables.stream_tables import Refusal, StreamTables
from lakehouse_ingest.tables.table_keeper import TableKeeper

AT_A_TIME = 64  # tables that are made before they are registered

# Does something for each item, all of them at once; what was made of them, and what went wrong with others.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], tuple[list[Any], list[BaseException]]]


class Spans(Protocol):
    """Begins one; the table is what it is about."""

    def __call__(self, name: str, table: str | None = None, /, **attributes: object) -> Span: ...


@dataclass(frozen=True)
class TablePart:
    """The rows for one table, sound and faulty ones, in its columns."""

    landing: Landing
    rows: DataFrame
    size: int  # records at most
    names: frozenset[str]  # of the fields that are known: columns, and what is in them


@dataclass(frozen=True)
class SplitBatch:
    parts: Sequence[TablePart]
    astray: Sequence[DataFrame] = ()  # records that no table takes, with their fault
    looked: Tally | None = None  # what the look counted: filtered, or all the others
    failures: Sequence[BaseException] = ()  # of tables that could not be made ready
    notes: Sequence[str] = ()  # why there is no table yet for some of the records


@dataclass(frozen=True)
class Group:
    """The records of one route."""

    route: Route
    size: int
    seen: str | None
    rows: DataFrame


@dataclass(frozen=True)
class BatchLook:
    """The records of a batch, in memory and routed, and what a look at them has told."""

    routed: DataFrame
    tally: Tally  # filtered, or all the others
    groups: Sequence[Group]


@dataclass(frozen=True)
class Ready:
    """Tables that are ready for the records of a batch."""

    led: list[tuple[Group, TableKeeper | Refusal]]  # where each group goes
    planned: list[tuple[Group, TableKeeper, Planned]]
    failures: list[BaseException]  # of tables that could not be made ready


def whole(records: DataFrame, keeper: TableKeeper, size: int, spans: Spans) -> SplitBatch:
    """All to one table that is known: nothing has to be looked at before the one pass that writes."""
    assert keeper.landing
    plan = keeper.plan((), records)
    return SplitBatch([TablePart(keeper.landing, _shaped(records, keeper, plan, spans), size, plan.plan.names)])


def look(routed: DataFrame, batch: Range, stream: StreamSettings, tables: StreamTables, *, traces: bool) -> BatchLook:
    """Which routes the records take, how many each of them, and what fields they have. Changes nothing."""
    tally = _counted(routed, batch, traces=traces)
    return BatchLook(routed, tally, _groups(routed, stream, tables))


def make_ready(groups: Sequence[Group], tables: StreamTables, each: Each) -> Ready:
    """Make and change tables, so that each group has one whose columns its records fit; or say why it has none.

    A few at a time are made and then registered: a start that ends in between leaves these to the next one.
    """
    ready = Ready([], [], [])
    for at in range(0, len(groups), AT_A_TIME):
        some = groups[at : at + AT_A_TIME]
        tables.look_up(group.route for group in some)
        led = [(group, tables.at(group.route)) for group in some]
        planned, failures = each(
            lambda one: (*one, _planned(*one)),
            [(group, keeper) for group, keeper in led if isinstance(keeper, TableKeeper)],
        )
        tables.register()
        ready.led.extend(led)
        ready.planned.extend(planned)
        ready.failures.extend(failures)
    return ready


def split(
    looked: BatchLook,
    ready: Ready,
    stream: StreamSettings,
    tables: StreamTables,
    spans: Spans,
    transform: Transform | None,
) -> SplitBatch:
    """The rows for each table, and the records that no table takes. Changes nothing."""
    parts, nowhere, notes = [], [], []
    for group, keeper, plan in ready.planned:
        rows = _shaped(group.rows, keeper, plan, spans, transform)
        if keeper.landing:
            parts.append(TablePart(keeper.landing, rows, group.size, plan.plan.names))
        else:
            nowhere.append(rows.select(RECORD, FAULT))
            notes.append(f"{keeper.name} is not made: {plan.why}")
    going = [group for group, keeper in ready.led if isinstance(keeper, TableKeeper)]
    if looked.tally.total(LANDED) > sum(group.size for group in going):
        refused = {group.route: refusal for group, refusal in ready.led if isinstance(refusal, Refusal)}
        nowhere.append(_nowhere(looked.routed, [group.route for group in going], refused, stream, tables))
    return SplitBatch(parts, nowhere, looked.tally, ready.failures, notes)


def _counted(routed: DataFrame, batch: Range, *, traces: bool) -> Tally:
    """The first who looks: for this the records come from the source, and then they are in memory."""
    outcome = F.when(F.col(ROUTE) == NOT_KEPT, accounting.number_of(FILTERED)).otherwise(accounting.number_of(LANDED))
    return accounting.count(routed, batch, outcome, traces=traces)


def _groups(routed: DataFrame, stream: StreamSettings, tables: StreamTables) -> list[Group]:
    infers = any(not table.columns for table in stream.tables)
    rows = (
        routed.where(F.col(ROUTE) != NOT_KEPT)
        .groupBy(ROUTE)
        .agg(
            F.count(F.lit(1)).alias("size"),
            (tables.format.seen() if infers else F.lit(None).cast("string")).alias("seen"),
        )
        # Those that have a table, and then by name, for there may be more of them than memory is for.
        .orderBy(~F.col(ROUTE).isin([str(route) for route in tables.routes]), ROUTE)
        .limit(2 * stream.max_tables)
        .collect()
    )
    return [
        Group(Route.parse(row[ROUTE]), row["size"], row["seen"], routed.where(F.col(ROUTE) == row[ROUTE]))
        for row in rows
    ]


def _planned(group: Group, keeper: TableKeeper) -> Planned:
    return keeper.plan(() if keeper.settled else keeper.format.fields_of(group.seen), group.rows)


def _shaped(
    rows: DataFrame, keeper: TableKeeper, planned: Planned, spans: Spans, transform: Transform | None = None
) -> DataFrame:
    """The expressions, which are made here and run when they are written: so do the spans say."""
    with spans("decode", keeper.name, lazy=True):
        decoded = _decoded(rows, keeper.format, planned)
    if transform:
        with spans("transform", keeper.name, lazy=True):
            decoded = transforms.applied(transform, decoded)
    with spans("shape", keeper.name, lazy=True):
        found = shape(decoded, planned.plan)
    if planned.settled:
        return found
    return found.withColumn(FAULT, F.coalesce(FAULT, faulty(Reason.MISSING, F.lit(planned.why), "plan")))


def _decoded(rows: DataFrame, form: Format, planned: Planned) -> DataFrame:
    aside = planned.plan.strict
    if aside is None:
        return form.decode(rows, planned.plan.columns, planned.refused)
    lenient = cast("Lenient", form).lenient(rows, planned.plan.columns)
    return rescue.set_aside(lenient, planned.plan.columns, aside, beyond=planned.beyond)


def _nowhere(
    routed: DataFrame,
    going: Sequence[Route],
    refused: Mapping[Route, Refusal],
    stream: StreamSettings,
    tables: StreamTables,
) -> DataFrame:
    """The records that no table takes, each with the reason."""
    left = routed.where(~F.coalesce(F.col(ROUTE).isin(NOT_KEPT, *map(str, going)), F.lit(False)))
    unasked = tables.unasked
    fault = F.when(F.col(ROUTE).isNotNull(), worded(unasked.reason, unasked.detail, STAGE))
    for reason in (Reason.NAME_TAKEN, Reason.NO_TABLE, Reason.TOO_MANY_TABLES):
        told = {str(route): refusal.detail for route, refusal in refused.items() if refusal.reason is reason}
        if told:
            detail = F.try_element_at(F.map_from_arrays(F.lit([*told]), F.lit([*told.values()])), F.col(ROUTE))
            fault = F.when(F.col(ROUTE).isin([*told]), faulty(reason, detail, STAGE)).otherwise(fault)
    # What can't be read at all has no type either: then that is what is said of it.
    read = tables.format.decode(left.withColumn(FAULT, F.coalesce(FAULT, fault)), ())
    return astray(read, stream, tables.format.field).select(RECORD, FAULT)
