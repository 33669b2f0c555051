"""Split the records of a batch by table.

First comes a look: one aggregate over the records in memory finds the routes, the number of records on each, and their
fields. Then tables are made ready for these records. Only then are the rows of each table split off.
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

AT_A_TIME = 64  # tables that are created before they are registered

# Does something for each item, in parallel. Gives the results, and the failures of the other items.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], tuple[list[Any], list[BaseException]]]


class Spans(Protocol):
    """Begins a span, which may be about a table."""

    def __call__(self, name: str, table: str | None = None, /, **attributes: object) -> Span: ...


@dataclass(frozen=True)
class TablePart:
    """The rows for one table in its columns, with and without faults."""

    landing: Landing
    rows: DataFrame
    size: int  # the most records that they may be
    names: frozenset[str]  # the known field names: columns, and the fields inside them


@dataclass(frozen=True)
class SplitBatch:
    """The records of a batch, split by table."""

    parts: Sequence[TablePart]
    astray: Sequence[DataFrame] = ()  # records that no table takes, with their fault
    looked: Tally | None = None  # the look's counts: filtered records, and all others
    failures: Sequence[BaseException] = ()  # the errors of tables that could not be made ready
    notes: Sequence[str] = ()  # why some of the records have no table yet


@dataclass(frozen=True)
class Group:
    """The records of one route."""

    route: Route
    size: int
    seen: str | None
    rows: DataFrame


@dataclass(frozen=True)
class BatchLook:
    """The routed records of a batch, kept in memory, and what a look at them has found."""

    routed: DataFrame
    tally: Tally  # filtered records, and all others
    groups: Sequence[Group]


@dataclass(frozen=True)
class Ready:
    """The tables that are ready for the records of a batch."""

    led: list[tuple[Group, TableKeeper | Refusal]]  # the table of each group, or why it has none
    planned: list[tuple[Group, TableKeeper, Planned]]
    failures: list[BaseException]  # the errors of tables that could not be made ready


def whole(records: DataFrame, keeper: TableKeeper, size: int, spans: Spans) -> SplitBatch:
    """Send all records to one known table. They need no look before the one pass that writes them."""
    assert keeper.landing
    plan = keeper.plan((), records)
    return SplitBatch([TablePart(keeper.landing, _shaped(records, keeper, plan, spans), size, plan.plan.names)])


def look(
    routed: DataFrame, batch: Range, stream: StreamSettings, tables: StreamTables, spans: Spans, *, traces: bool
) -> BatchLook:
    """Find the routes of the records, the number of records on each, and their fields. Changes nothing."""
    with spans("read", runs=("read", "route")):
        tally = _counted(routed, batch, traces=traces)
    return BatchLook(routed, tally, _groups(routed, stream, tables))


def make_ready(groups: Sequence[Group], tables: StreamTables, each: Each) -> Ready:
    """Create and change tables, so that each group has a table that fits its records. Or say why it has none.

    Tables are created and then registered in groups of `AT_A_TIME`. If the start ends between the two, the next start
    finds at most these tables unregistered, and still without rows.
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
            notes.append(f"{keeper.name} is not created yet: {plan.why}")
    going = [group for group, keeper in ready.led if isinstance(keeper, TableKeeper)]
    if looked.tally.total(LANDED) > sum(group.size for group in going):
        refused = {group.route: refusal for group, refusal in ready.led if isinstance(refusal, Refusal)}
        nowhere.append(_nowhere(looked.routed, [group.route for group in going], refused, stream, tables))
    return SplitBatch(parts, nowhere, looked.tally, ready.failures, notes)


def _counted(routed: DataFrame, batch: Range, *, traces: bool) -> Tally:
    """Count the records. This first action reads them from the source, and from then on they are in memory."""
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
        # There may be more routes than fit into memory: routes with a table come first, then the others by name.
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
    """Build the expressions that decode and shape the rows. They run during the write, so the spans are lazy."""
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
        details = {str(route): refusal.detail for route, refusal in refused.items() if refusal.reason is reason}
        if details:
            detail = F.try_element_at(F.map_from_arrays(F.lit([*details]), F.lit([*details.values()])), F.col(ROUTE))
            fault = F.when(F.col(ROUTE).isin([*details]), faulty(reason, detail, STAGE)).otherwise(fault)
    # A record that cannot be decoded has no type either. Decode first, so that its fault says so.
    read = tables.format.decode(left.withColumn(FAULT, F.coalesce(FAULT, fault)), ())
    return astray(read, stream, tables.format.field).select(RECORD, FAULT)
