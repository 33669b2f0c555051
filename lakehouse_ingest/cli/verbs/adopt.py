"""`lakehouse-ingest adopt`: go on where another writer of the same tables has ended, without reading again or skipping.

Where it has ended is told by what it has left behind: see `origins`. Without `--yes` it is only said what was found
and what would be done. The doing is a mark in the batch record, as if a pipeline of this name had come so far; the
next start goes on from there like from any other mark.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SettingsRefused, SourceChanged
from lakehouse_ingest.operations.adopt import Origin, checkpoint, given, groups
from lakehouse_ingest.operations.adopt.summaries import Traces, Writer, together, traces
from lakehouse_ingest.records import Offsets, SourceIdentity, TopicPartition
from lakehouse_ingest.resume import decision as decided
from lakehouse_ingest.resume.decision import Decision, Kind
from lakehouse_ingest.resume.new_topics import beginning
from lakehouse_ingest.schema import existing, layout, names
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.tables import Lake, Registered, TableState
from lakehouse_ingest.tables.batch_log import record_spec
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.clients import connection_of

UNANSWERED = 3
SHOWN = 20  # partitions of a stream; the others are in the JSON
SAME = "that the topics were not deleted and made anew since then"
WAYS = "--from-checkpoint, --from-group or --from-file"


@dataclass(frozen=True)
class From:
    """Where the offsets are to be taken from: one of these."""

    table: str | None = None
    checkpoint: Path | None = None
    group: str | None = None
    file: Path | None = None

    @property
    def named(self) -> list[str]:
        return [f"--from-{name}" for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class Target:
    """A table that the stream's records will go to, as far as the settings name it."""

    name: str
    state: TableState | None = None  # none: it is not there
    topic: str = ""  # that its name was made of
    adds: Sequence[str] = ()  # columns that a run would add to it

    @property
    def left(self) -> Traces:
        return traces(each.summary for each in self.state.ancestors()) if self.state else Traces()


@dataclass
class Stood:
    """One stream: where it would go on, and in which tables."""

    identity: str
    lake: Lake
    record: str  # the batch record's name
    source: Source
    logs: SourceIdentity
    low: Offsets
    high: Offsets
    targets: Sequence[Target]
    origin: Origin | None = None  # none: it is left alone
    begun: NeedsOperator | None = None  # why
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def left(self) -> Traces:
        return together(each.left for each in self.targets)

    @property
    def lost(self) -> dict[TopicPartition, tuple[int, int]]:
        """What the origin would have read next, and the source no longer holds."""
        named = self.origin.offsets if self.origin else {}
        return {at: (named[at], end) for at, end in self.offsets.items() if at in named and named[at] < end}

    @property
    def unnamed(self) -> list[TopicPartition]:
        return [at for at in self.offsets if self.origin and at not in self.origin.offsets]

    @property
    def trusted(self) -> Sequence[str]:
        return (*self.origin.trusted, SAME) if self.origin else ()

    @property
    def note(self) -> str:
        assert self.origin
        lost = sum(end - start for start, end in self.lost.values())
        gone = f"; {lost} offsets are noted as lost" if lost else ""
        return f"{self.origin.says} -> go on from there{gone}"


def adopt(
    settings: Settings,
    origin: From,
    *,
    yes: bool = False,
    accept_loss: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: whether it is still to be done."""
    if len(origin.named) > 1:
        raise SettingsRefused(f"{' and '.join(origin.named)} are several origins of the offsets: give one of them")
    if "" in vars(origin).values():
        raise SettingsRefused(f"{origin.named[0]} is empty: give the name")
    console = Terminal(soft_wrap=True)
    with catalog_at(settings, jars) as uri:
        if not origin.named:
            _tell_traces(console, settings, uri, as_json=as_json)
            return UNANSWERED
        found = _found(settings, uri, origin)
        taken = [each for each in found if each.origin]
        for each in taken:
            _check(each, accept_loss=accept_loss)
        if yes:
            for each in taken:
                _carry_out(settings, each)
    if as_json:
        say(json.dumps([_plain(each, done=yes) for each in found], indent=2))
    else:
        for each in found:
            _show(console, each)
        _end(console, taken, done=yes)
    return 0 if yes else UNANSWERED


# -- what is there ----------------------------------------------------------------------------------------


def _found(settings: Settings, uri: str, origin: From) -> list[Stood]:
    found = [_looked(settings, stream, uri) for stream in settings.streams]
    whole = _whole(origin, together(each.left for each in found))
    for each in found:
        if offsets := whole(each) if whole else _of_groups(settings, each, origin):
            _begin(settings, each, offsets)
    if not any(each.origin for each in found):
        for begun in (each.begun for each in found if each.begun):
            raise begun
        topics = ", ".join(sorted({topic for each in found for topic in each.logs.topics}))
        raise SettingsRefused(f"`{origin.named[0]}` says nothing of {topics}: it is another one, or `topics` are")
    return found


def _looked(settings: Settings, stream: StreamSettings, uri: str) -> Stood:
    identity, namespace = settings.identity_of(stream), settings.catalog.namespace
    told = settings.catalog
    lake = Lake(connection_of(told, settings.s3, uri), identity, told.publish, create=told.create)
    source = sources.of_stream(settings.source, stream)
    logs = source.identity()
    low, high = source.bounds()
    targets = [*_targets(lake, stream, namespace, [*logs.topics])]
    return Stood(identity, lake, f"{namespace}.{settings.ledger.batch_table}", source, logs, low, high, targets)


def _whole(origin: From, left: Traces) -> Callable[[Stood], Origin] | None:
    """Of an origin that needs no broker: the same for all streams. `left`: in the tables of all of them."""
    if origin.checkpoint:
        read = checkpoint.read(origin.checkpoint)
        landed = left.batches.get(read.query)
        return lambda stood: checkpoint.of_checkpoint(read, landed, shown=read.query in stood.left.batches)
    if origin.file:
        said = given.of_file(origin.file)
        return lambda _: said
    return None


def _begin(settings: Settings, stood: Stood, origin: Origin) -> None:
    """Holds the offsets against what the source has; a stream whose topics are not named is left alone."""
    low, high = stood.low, stood.high
    named = {at: offset for at, offset in origin.offsets.items() if at[0] in stood.logs.topics}
    if not named:
        return
    stood.begun = _begun(stood, settings.catalog.namespace)
    if stood.begun:
        return
    if absent := [at for at in named if at not in high]:
        raise SourceChanged(
            f"the origin names partition {absent[0][1]} of topic {absent[0][0]}, which has none of that number: it is"
            " of another cluster, or the topic was made anew"
        )
    if beyond := [at for at, offset in named.items() if offset > high[at]]:
        at = beyond[0]
        raise SourceChanged(
            f"the origin goes on at {named[at]} of topic {at[0]} partition {at[1]}, which ends at {high[at]}: it is of"
            " another cluster, or the topic was made anew"
        )
    first: Offsets = {}
    if set(high) - set(named):
        first = beginning(settings.source, low, high, stood.source.since, ends=stood.source.ends())
    stood.offsets = {at: max(named[at], low[at]) if at in named else first[at] for at in sorted(high)}
    stood.origin = origin


def _of_groups(settings: Settings, stood: Stood, origin: From) -> Origin | None:
    source, topics = stood.source, [*stood.logs.topics]
    if origin.group:
        control = stood.left.control_of(origin.group)
        if control is None:
            return groups.of_group(source, topics, origin.group)
        return groups.of_sink(settings.source, source, topics, control, origin.group)
    assert origin.table
    table = origin.table if "." in origin.table else f"{settings.catalog.namespace}.{origin.table}"
    state = stood.lake.find(table)
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


def _targets(lake: Lake, stream: StreamSettings, namespace: str, topics: Sequence[str]) -> Iterator[Target]:
    """The tables whose names the settings tell; those named after a type are found by the first record of it."""
    told: set[str] = set()
    for entry in stream.tables:
        by_topic = "{topic}" in entry.table
        for topic in topics if by_topic else [""]:
            name = f"{namespace}.{names.of_table(entry.table, topic, '')}"
            if "{type}" in entry.table or name in told or (by_topic and entry.topics and topic not in entry.topics):
                continue
            told.add(name)
            state = lake.find(name)
            if state is None:
                yield Target(name)
                continue
            layout.lies_otherwise(state, entry)
            plan = existing.plan_that_stands(state, entry)
            adds = [each.column.name for each in existing.additions(state, plan, entry)]
            yield Target(name, state, topic, adds)


def _begun(stood: Stood, namespace: str) -> NeedsOperator | None:
    """A pipeline that knows where it is goes on from there; what it does not know it asks for."""
    lake = stood.lake
    if not lake.has_namespace(namespace):
        return None
    known = lake.known_in(namespace)
    known.refuse_unread(stood.identity, {stood.record, *(each.name for each in stood.targets)})
    places = [lake.seen(state) for name in sorted({stood.record, *known.tables}) if (state := lake.find(name))]
    if marked := next((each.table for each in places if each.mark), None):
        return NeedsOperator(
            f"the pipeline {stood.identity} has begun already, {marked} says how far it is: it goes on from there;"
            " `lakehouse-ingest recover` says what can be done, or give another `name`"
        )
    # A start leaves its mark in the batch record before anything lands. Where that is lost, the tables have to tell.
    telling = [each for each in places if each.table == stood.record] or places
    if pruned := next((each.table for each in telling if not each.known), None):
        return LedgerUnclear(
            f"the history of {pruned} was expired, so whether the pipeline {stood.identity} has begun can't be told:"
            " give another `name`"
        )
    return None


def _check(stood: Stood, *, accept_loss: bool) -> None:
    if stood.lost and not accept_loss:
        (at, (start, end)), *others = stood.lost.items()
        more = f", and those of {len(others)} partitions more," if others else ""
        raise SourceChanged(
            f"topic {at[0]} partition {at[1]} has lost the offsets {start} to {end - 1}{more} that are to be read"
            " next (retention): restore them; --accept-loss goes on behind them"
        )


# -- the doing of it --------------------------------------------------------------------------------------


def _carry_out(settings: Settings, stood: Stood) -> None:
    stood.lake.ensure_namespace(settings.catalog.namespace)
    stood.lake.create(record_spec(stood.record, FileOptions()))
    there = {each.name: Registered(each.state.uuid, each.topic) for each in stood.targets if each.state}
    decision = Decision(
        kind=Kind.ADOPT,
        pipeline=stood.identity,
        generation=1,
        source=stood.logs,
        offsets=stood.offsets,
        note=stood.note,
        spans={at: stood.lost.get(at, (offset, offset)) for at, offset in stood.offsets.items()},
        tables=there,
    )
    decided.carry_out(stood.lake, stood.record, [*there], decision)


# -- what is said -----------------------------------------------------------------------------------------


def _tell_traces(console: Terminal, settings: Settings, uri: str, *, as_json: bool) -> None:
    """Without an origin: what the tables themselves say of who has fed them."""
    said: dict[str, str] = {}
    for stream in settings.streams:
        lake = Lake(connection_of(settings.catalog, settings.s3, uri), settings.identity_of(stream))
        topics = [*sources.of_stream(settings.source, stream).identity().topics]
        for each in _targets(lake, stream, settings.catalog.namespace, topics):
            found = _advice(each.name, each.left) if each.state else f"{each.name} is not there"
            said[each.name] = found
    if as_json:
        say(json.dumps([{"table": name, "found": found} for name, found in said.items()], indent=2))
        return
    for found in said.values():
        console.print(f"{found}.")
    console.print("\nNothing has been changed. Give one origin of the offsets.")


def _advice(table: str, left: Traces) -> str:
    """Which origin there may be, by what the newest snapshots of a table say."""
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


def _show(console: Terminal, stood: Stood) -> None:
    console.print(Text(stood.identity, style="bold"), end=": ")
    if stood.origin is None:
        why = str(stood.begun) if stood.begun else "the origin says nothing of its topics"
        console.print(f"{why}. It is left alone.")
        return
    console.print(f"{stood.note}.")
    unnamed = set(stood.unnamed)
    for at, offset in [*stood.offsets.items()][:SHOWN]:
        why = " (not named there: as `source.start` says)" if at in unnamed else ""
        lost = f", {stood.lost[at][0]} to {offset - 1} are lost" if at in stood.lost else ""
        holds = f"holds {stood.low[at]} to {stood.high[at] - 1}" if stood.low[at] < stood.high[at] else "is empty"
        console.print(f"  topic {at[0]} partition {at[1]}, which {holds}: from {offset} on{why}{lost}")
    if (more := len(stood.offsets) - SHOWN) > 0:
        console.print(f"  and {more} partitions more, see --json")
    for each in stood.targets:
        adds = f"; the first run adds {', '.join(each.adds)}" if each.adds else ""
        there = f"is there, and taken as it is{adds}" if each.state else "is not there: the first records make it"
        console.print(f"  table {each.name} {there}")


def _end(console: Terminal, taken: Sequence[Stood], *, done: bool) -> None:
    read = {topic for each in taken for topic in each.logs.topics}
    named = {topic for each in taken if each.origin for topic, _ in each.origin.offsets}
    if others := named - read:
        console.print(f"Topics of the origin that these streams do not read: {', '.join(sorted(others))}.")
    for said in dict.fromkeys(said for each in taken for said in each.trusted):
        console.print(f"You answer for it: {said}.", style="yellow")
    console.print(
        "\nDone: the next `run` begins there." if done else "\nNothing has been changed. With --yes it is done."
    )


def _plain(stood: Stood, *, done: bool) -> dict[str, Any]:
    unnamed = set(stood.unnamed)
    return {
        "pipeline": stood.identity,
        "origin": stood.origin.says if stood.origin else None,
        "begun": str(stood.begun) if stood.begun else None,
        "trusted": [*stood.trusted],
        "partitions": [
            {
                "topic": at[0],
                "partition": at[1],
                "offset": offset,
                "named": at not in unnamed,
                "lost": offset - stood.lost[at][0] if at in stood.lost else 0,
                "first": stood.low[at],
                "end": stood.high[at],
            }
            for at, offset in stood.offsets.items()
        ],
        "tables": [
            {"table": each.name, "there": each.state is not None, "adds": [*each.adds]} for each in stood.targets
        ],
        "done": done and stood.origin is not None,
    }
