"""Taking over from another writer: where each stream would go on, in which tables, and doing it.

Doing it writes a mark to the batch log, as if a pipeline of this name had come so far. The next start goes on from
there, as from any other mark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SettingsRefused, SourceChanged
from lakehouse_ingest.operations.adopt import Origin, checkpoint, groups, offsets_file
from lakehouse_ingest.operations.adopt.summaries import Traces, Writer, together, traces
from lakehouse_ingest.operations.proposal import Proposal
from lakehouse_ingest.printable import many
from lakehouse_ingest.records import Offsets, SourceIdentity, TopicPartition
from lakehouse_ingest.resume import decision
from lakehouse_ingest.resume.decision import Decision, DecisionKind
from lakehouse_ingest.resume.new_topics import beginning
from lakehouse_ingest.schema import layout, names, table_plans
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import PipelineTables, Registered, TableState
from lakehouse_ingest.tables.batch_log import record_spec
from lakehouse_ingest.tables.pipeline_tables import tables_of

SAME = "that the topics were not deleted and recreated since then"
WAYS = "--from-checkpoint, --from-group or --from-file"
HOW = "Give --yes to do it."
HOW_TO_BEGIN = "Give one origin of the offsets."


@dataclass(frozen=True)
class OriginOption:
    """Where the offsets are to be taken from: one of these."""

    table: str | None = None
    checkpoint: Path | None = None
    group: str | None = None
    file: Path | None = None

    @property
    def named(self) -> list[str]:
        return [f"--from-{name}" for name, value in vars(self).items() if value is not None]

    def refuse_unclear(self) -> None:
        if len(self.named) > 1:
            raise SettingsRefused(f"{' and '.join(self.named)} are several origins of the offsets: give one of them")
        if "" in vars(self).values():
            raise SettingsRefused(f"{self.named[0]} is empty: give the name")


@dataclass(frozen=True)
class AdoptedTable:
    """A table that records of the stream will go to. Only tables are known whose names follow from the settings."""

    name: str
    state: TableState | None = None  # none: it is not there
    topic: str = ""  # that its name was made of
    adds: Sequence[str] = ()  # columns that a run would add to it

    @property
    def left(self) -> Traces:
        return traces(each.summary for each in self.state.ancestors()) if self.state else Traces()


@dataclass(frozen=True)
class Adoption:
    """One stream: where it would go on, and in which tables."""

    identity: str
    lake: PipelineTables
    batch_log: str  # its name
    source: Source
    logs: SourceIdentity
    low: Offsets
    high: Offsets
    tables: Sequence[AdoptedTable]
    origin: Origin | None = None  # none: it is left alone
    begun: NeedsOperator | None = None  # why it is left alone
    offsets: Offsets = field(default_factory=dict)
    done: bool = False

    @property
    def left(self) -> Traces:
        return together(each.left for each in self.tables)

    @cached_property
    def lost(self) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets that the other writer would have read next, and that the source no longer holds."""
        named = self.origin.offsets if self.origin else {}
        return {at: (named[at], end) for at, end in self.offsets.items() if at in named and named[at] < end}

    @cached_property
    def unnamed(self) -> set[TopicPartition]:
        return {at for at in self.offsets if self.origin and at not in self.origin.offsets}

    @property
    def trusted(self) -> Sequence[str]:
        return (*self.origin.trusted, SAME) if self.origin else ()

    @property
    def note(self) -> str:
        assert self.origin
        lost = sum(end - start for start, end in self.lost.values())
        gone = f"; {lost} offsets are noted as lost" if lost else ""
        return f"{self.origin.says} -> go on from there{gone}"


def look(settings: Settings, uri: str, *, option: OriginOption, accept_loss: bool) -> Proposal[Sequence[Adoption]]:
    """`uri`: of the catalog."""
    found = _adoptions(settings, uri, option)
    for each in found:
        if each.origin and each.lost and not accept_loss:
            raise _lost(each)

    def apply() -> Proposal[Sequence[Adoption]]:
        return Proposal([_applied(settings, each) if each.origin else each for each in found])

    return Proposal(found, pending=True, says=HOW, apply=apply)


def look_for_traces(settings: Settings, uri: str) -> Proposal[dict[str, str]]:
    """By table: what its snapshots say about the writer that has fed it, and which origin may fit."""
    found: dict[str, str] = {}
    for stream in settings.streams:
        lake = tables_of(settings, uri, stream)
        topics = [*sources.of_stream(settings.source, stream).identity().topics]
        for each in _tables_of(lake, stream, settings.catalog.namespace, topics):
            found[each.name] = _advice(each.name, each.left) if each.state else f"{each.name} is not there"
    return Proposal(found, pending=True, says=HOW_TO_BEGIN)


def _advice(table: str, left: Traces) -> str:
    """Which origin may fit, as the newest snapshots of a table say."""
    match left.last:
        case Writer.SPARK:
            query, batch = next(iter(left.batches.items()))
            return f"{table} was fed by the Spark query {query} up to its batch {batch}: --from-checkpoint its folder"
        case Writer.CONNECT:
            of = ", ".join(left.controls)
            return f"{table} was fed by Kafka Connect (control topic and group: {of}): --from-table {table}"
        case Writer.FLINK:
            return f"{table} was fed by Flink, which keeps its offsets in its own state: read them there; --from-file"
        case _:
            return f"no snapshot of {table} says how far its writer had come: {WAYS}"


# -- where each stream would go on ------------------------------------------------------------------------


def _adoptions(settings: Settings, uri: str, option: OriginOption) -> list[Adoption]:
    found = [_adoption_of(settings, stream, uri) for stream in settings.streams]
    shared = _shared_origin(option, together(each.left for each in found))
    for number, each in enumerate(found):
        if origin := shared(each) if shared else _origin_of_group(settings, each, option):
            found[number] = _begun_at(settings, each, origin)
    if not any(each.origin for each in found):
        for begun in (each.begun for each in found if each.begun):
            raise begun
        topics = ", ".join(sorted({topic for each in found for topic in each.logs.topics}))
        raise SettingsRefused(f"`{option.named[0]}` says nothing about {topics}: correct it, or `streams.topics`")
    return found


def _adoption_of(settings: Settings, stream: StreamSettings, uri: str) -> Adoption:
    identity, catalog = settings.identity_of(stream), settings.catalog
    lake = tables_of(settings, uri, stream)
    source = sources.of_stream(settings.source, stream)
    logs = source.identity()
    low, high = source.bounds()
    tables = [*_tables_of(lake, stream, catalog.namespace, [*logs.topics])]
    return Adoption(identity, lake, settings.batch_log, source, logs, low, high, tables)


def _tables_of(
    lake: PipelineTables, stream: StreamSettings, namespace: str, topics: Sequence[str]
) -> Iterator[AdoptedTable]:
    """The tables whose names the settings give. A table named after a type is found by its first record only."""
    known: set[str] = set()
    for entry in stream.tables:
        by_topic = "{topic}" in entry.table
        for topic in topics if by_topic else [""]:
            name = f"{namespace}.{names.of_table(entry.table, topic, '')}"
            if "{type}" in entry.table or name in known or (by_topic and entry.topics and topic not in entry.topics):
                continue
            known.add(name)
            state = lake.find(name)
            if state is None:
                yield AdoptedTable(name)
                continue
            layout.lies_otherwise(state, entry)
            plan = table_plans.plan_that_stands(state, entry)
            adds = [each.column.name for each in table_plans.additions(state, plan, entry)]
            yield AdoptedTable(name, state, topic, adds)


def _shared_origin(option: OriginOption, left: Traces) -> Callable[[Adoption], Origin] | None:
    """An origin that needs no broker is the same for all streams. `left`: in the tables of all of them."""
    if option.checkpoint:
        read = checkpoint.read(option.checkpoint)
        batch = left.batches.get(read.query)
        return lambda adoption: checkpoint.of_checkpoint(read, batch, shown=read.query in adoption.left.batches)
    if option.file:
        origin = offsets_file.of_file(option.file)
        return lambda _: origin
    return None


def _origin_of_group(settings: Settings, adoption: Adoption, option: OriginOption) -> Origin | None:
    source, topics = adoption.source, [*adoption.logs.topics]
    if option.group:
        control = adoption.left.control_of(option.group)
        if control is None:
            return groups.of_group(source, topics, option.group)
        return groups.of_sink(settings.source, source, topics, control, option.group)
    assert option.table
    table = option.table if "." in option.table else f"{settings.catalog.namespace}.{option.table}"
    state = adoption.lake.find(table)
    if state is None:
        raise SettingsRefused(f"`--from-table` names {table}, which is not there")
    left = traces(each.summary for each in state.ancestors())
    if left.last is not Writer.CONNECT:
        raise NeedsOperator(_advice(table, left))
    if len(left.controls) > 1:
        raise NeedsOperator(f"{table} was fed by several sinks ({', '.join(left.controls)}): give --from-group")
    control_and_group = groups.control_topic(source, left.controls[0])
    if control_and_group is None:
        raise SourceChanged(
            f"{table} was fed by a sink with the control topic and group {left.controls[0]}, and no such topic"
            " is there: it is of another cluster; give --from-file"
        )
    return groups.of_sink(settings.source, source, topics, *control_and_group)


def _begun_at(settings: Settings, adoption: Adoption, origin: Origin) -> Adoption:
    """Compares the offsets with what the source holds. A stream whose topics the origin lacks is left alone."""
    low, high = adoption.low, adoption.high
    named = {at: offset for at, offset in origin.offsets.items() if at[0] in adoption.logs.topics}
    if not named:
        return adoption
    if begun := _has_begun(adoption, settings.catalog.namespace):
        return replace(adoption, begun=begun)
    if absent := [at for at in named if at not in high]:
        raise SourceChanged(
            f"the origin names partition {absent[0][1]} of topic {absent[0][0]}, which has none of that number: it is"
            " of another cluster, or the topic was recreated"
        )
    if beyond := [at for at, offset in named.items() if offset > high[at]]:
        at = beyond[0]
        raise SourceChanged(
            f"the origin goes on at {named[at]} of topic {at[0]} partition {at[1]}, which ends at {high[at]}: it is of"
            " another cluster, or the topic was recreated"
        )
    first: Offsets = {}
    if set(high) - set(named):
        first = beginning(settings.source, low, high, adoption.source.since, ends=adoption.source.ends())
    offsets = {at: max(named[at], low[at]) if at in named else first[at] for at in sorted(high)}
    return replace(adoption, origin=origin, offsets=offsets)


def _has_begun(adoption: Adoption, namespace: str) -> NeedsOperator | None:
    """Why a pipeline of this name is left alone: it has a mark already, or nothing can say that it has none."""
    lake, identity = adoption.lake, adoption.identity
    if not lake.has_namespace(namespace):
        return None
    known = lake.known_in(namespace)
    known.refuse_unread(identity, {adoption.batch_log, *(each.name for each in adoption.tables)})
    places = [lake.seen(state) for name in sorted({adoption.batch_log, *known.tables}) if (state := lake.find(name))]
    if marked := next((each.table for each in places if each.mark), None):
        return NeedsOperator(
            f"the pipeline {identity} has begun already, {marked} says how far it is: it goes on from there;"
            " `lakehouse-ingest recover` says what can be done, or give another `name`"
        )
    # A start marks the batch log before it commits anything. If the batch log is lost, all tables have to be asked.
    asked = [each for each in places if each.table == adoption.batch_log] or places
    if pruned := next((each.table for each in asked if not each.known), None):
        return LedgerUnclear(
            f"the history of {pruned} was expired, so whether the pipeline {identity} has begun is unknown:"
            " give another `name`"
        )
    return None


def _lost(adoption: Adoption) -> SourceChanged:
    (at, (start, end)), *others = adoption.lost.items()
    more = f", and those of {many(len(others), 'partition')} more," if others else ""
    return SourceChanged(
        f"topic {at[0]} partition {at[1]} has lost the offsets {start} to {end - 1}{more} that are to be read"
        " next (retention): restore them; --accept-loss goes on behind them"
    )


# -- doing it ---------------------------------------------------------------------------------------------


def _applied(settings: Settings, adoption: Adoption) -> Adoption:
    lake, batch_log = adoption.lake, adoption.batch_log
    lake.ensure_namespace(settings.catalog.namespace)
    lake.create(record_spec(batch_log, FileOptions()))
    there = {each.name: Registered(each.state.uuid, each.topic) for each in adoption.tables if each.state}
    taken = Decision(
        kind=DecisionKind.ADOPT,
        pipeline=adoption.identity,
        generation=1,
        source=adoption.logs,
        offsets=adoption.offsets,
        note=adoption.note,
        spans={at: adoption.lost.get(at, (offset, offset)) for at, offset in adoption.offsets.items()},
        tables=there,
    )
    decision.carry_out(lake, batch_log, [*there], taken)
    return replace(adoption, done=True)
