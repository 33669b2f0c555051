"""Blockers: what only a person can decide, with the choices and what each of them would do.

A start raises the first blocker as its error. `lakehouse-ingest recover` shows all of them. It carries out a choice by
writing a mark of the next generation into the batch log: where to go on, and in which log.

Reading again is safe as long as the log is the same. Records that stand in a table are recognised by their coordinates,
and are not written again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SourceChanged, TableChanged
from lakehouse_ingest.ledger.marks import Head, highest, no_further
from lakehouse_ingest.printable import many
from lakehouse_ingest.records import Choice, Offsets, SourceIdentity, begun_again, is_same_topic
from lakehouse_ingest.tables import Position, Registered

NOTHING: Mapping[str, Head] = {}
ADVICE = "; `lakehouse-ingest recover` says what can be done"


@dataclass(frozen=True)
class Resolution:
    """What a choice would do."""

    says: str
    offsets: Offsets = field(default_factory=dict)  # where these partitions go on
    without: frozenset[str] = frozenset()  # topics whose other partitions are forgotten
    topics: Mapping[str, str] = field(default_factory=dict)  # the ids of logs that begin with this choice
    cluster: str | None = None
    tables: tuple[str, ...] = ()  # tables that are accepted as they are


@dataclass(frozen=True)
class Blocker:
    about: str  # the topic, the table, or the pipeline's whole source
    error: NeedsOperator
    choices: Mapping[Choice, Resolution]


@dataclass(frozen=True)
class SourceNow:
    """What the source answered at the start."""

    identity: SourceIdentity
    low: Offsets
    high: Offsets  # the next offset to be written; a log must not go back below what the tables hold
    ends: Offsets = field(default_factory=dict)  # how far a reader gets; lower than `high` while a transaction is open

    def unknown(self, done: Offsets, apart: Collection[str] = ()) -> tuple[Offsets, Offsets]:
        """The bounds of the topics that no table knows. In topics `apart` it is each partition that counts."""
        known = {topic for topic, _ in done}
        new = {at for at in self.high if (at not in done if at[0] in apart else at[0] not in known)}
        low, high = ({at: each[at] for at in each if at in new} for each in (self.low, self.high))
        return low, high

    def anew(self, topics: Mapping[str, str], says: str = "", cluster: str | None = None) -> Resolution:
        said = says or "read it from its first record that is there; rows of the older log stay"
        return Resolution(said, _of(self.low, topics), frozenset(topics), topics, cluster)

    def latest(self, topics: Mapping[str, str], cluster: str | None = None) -> Resolution:
        said = "go on with what comes from now on; what it holds now is not read"
        offsets = no_further(_of(self.high, topics), self.ends)
        return Resolution(said, offsets, frozenset(topics), topics, cluster)


# -- of the source ----------------------------------------------------------------------------------------


def of_source(
    record: Position,
    places: Sequence[Position],
    source: SourceNow,
    heads: Mapping[str, Head] = NOTHING,
    apart: Collection[str] = (),
) -> Iterator[Blocker]:
    """The blockers in what the source says now.

    `heads`: the last batches that the batch log knows. `apart`: topics of which only some partitions are or were read.
    """
    marks = [(place.table, place.mark) for place in (record, *places) if place.mark]
    if not marks:
        pruned = [place for place in (record, *places) if not place.known]
        # Every table has marks of other pipelines, so they have committed since. The batch log knows that we had too.
        if pruned or heads:
            yield _unclear((pruned or [record])[0], source)
            return
    now, generation = source.identity, max((mark.token.generation for _, mark in marks), default=1)
    if strange := [(table, mark) for table, mark in marks if _differ(mark.source.cluster, now.cluster)]:
        yield _other_cluster(strange[0][0], strange[0][1].source.cluster, source)
        return
    recreated = {
        topic: mark.source.topics[topic]
        for _, mark in marks
        for topic, topic_id in now.topics.items()
        if _differ(mark.source.topics.get(topic, ""), topic_id, is_same_topic)
    }
    for topic, before in recreated.items():
        yield _recreated(topic, before, source)
    done = _without(highest([record.held, *(mark.complete for _, mark in marks)]), recreated)
    held = _without(highest([done, *(place.held for place in places)]), recreated)
    ahead = {at: offset for at, offset in sorted(held.items()) if offset > source.high.get(at, offset)}
    for topic, ats in groupby(ahead, key=lambda at: at[0]):
        yield _went_back(topic, [*ats], done, held, source, generation)
    # A partition that went back has its own blocker, and can't have missed records as well.
    missed = {at: o for at, o in sorted(done.items()) if o < source.low.get(at, o) and at not in ahead}
    # A partition that was added while nothing ran is read from offset 0, and retention may have removed that.
    read = {topic for topic, _ in done} - {*apart}
    missed |= {at: 0 for at, low in sorted(source.low.items()) if low and at not in done and at[0] in read}
    if missed:
        yield _missed(missed, source)


def _unclear(place: Position, source: SourceNow) -> Blocker:
    return Blocker(
        place.table,
        LedgerUnclear(
            f"the history of {place.table} was expired with the mark that says what was read, and nothing else holds"
            f" one{ADVICE}"
        ),
        {
            Choice.ANEW: source.anew(
                source.identity.topics, "read again all that is there; rows that are in a table stay as they are"
            ),
            Choice.LATEST: source.latest(source.identity.topics),
        },
    )


def _other_cluster(table: str, before: str, source: SourceNow) -> Blocker:
    now = source.identity
    return Blocker(
        now.cluster,
        SourceChanged(
            f"the table {table} was fed from the cluster {before}, this one is {now.cluster}: correct `source.brokers`"
            f"{ADVICE}"
        ),
        {
            Choice.ANEW: source.anew(now.topics, cluster=now.cluster),
            Choice.LATEST: source.latest(now.topics, now.cluster),
        },
    )


def _recreated(topic: str, before: str, source: SourceNow) -> Blocker:
    now = {topic: source.identity.topics[topic]}
    return Blocker(
        topic,
        SourceChanged(
            f"the topic {topic} was deleted and recreated (id {before} is now {now[topic]}), so its offsets mean other"
            f" records{ADVICE}"
        ),
        {Choice.ANEW: source.anew(now), Choice.LATEST: source.latest(now)},
    )


def _went_back(
    topic: str, ats: Sequence[tuple[str, int]], done: Offsets, held: Offsets, source: SourceNow, generation: int
) -> Blocker:
    first = ats[0]
    under_way = sum(held[at] - done.get(at, 0) for at in held if at[0] == topic)
    twice = f"; up to {under_way} rows of an interrupted batch may then stand twice" if under_way else ""
    ends = {at: min(done[at], source.high[at]) for at in done if at[0] == topic and at in source.high}
    return Blocker(
        topic,
        SourceChanged(
            f"{_named(first)} ends at offset {source.high[first]}, the tables hold it up to {held[first]}: the broker"
            f" lost records, or the topic was recreated{ADVICE}"
        ),
        {
            Choice.ACCEPT: Resolution(
                f"keep the rows, and read what the topic gets from its end on as a log of its own{twice}",
                ends,
                frozenset([topic]),
                {topic: begun_again(source.identity.topics.get(topic, ""), generation + 1)},
            )
        },
    )


def _missed(missed: Offsets, source: SourceNow) -> Blocker:
    first, *others = missed
    more = f", and those of {many(len(others), 'other partition')}," if others else ""
    count = sum(source.low[at] - offset for at, offset in missed.items())
    return Blocker(
        first[0],
        SourceChanged(
            f"{_named(first)} has lost the offsets {missed[first]} to {source.low[first] - 1}{more} before they were"
            f" read (retention): restore them{ADVICE}"
        ),
        {Choice.SKIP: Resolution(f"go on behind them: {count} offsets are noted as lost", _at(source.low, missed))},
    )


# -- of the tables ----------------------------------------------------------------------------------------


def of_tables(
    before: Mapping[str, Registered], heads: Mapping[str, Head], now: Mapping[str, Position], source: SourceNow | None
) -> Iterator[Blocker]:
    """Tables that are not as this pipeline left them. Without a `source` there is no choice to read them again."""
    for name, registered in before.items():
        place = now.get(name)
        if not registered.uuid:
            continue  # a person has decided to accept it as it is
        if place is None or place.uuid != registered.uuid:
            ids = f"{registered.uuid[:8]}… is now {place.uuid[:8]}…" if place else ""
            found = f"was replaced (uuid {ids})" if place else "was dropped"
            yield _other_table(name, f"{found} since this pipeline last ran: restore it", source, there=bool(place))
        elif (head := heads.get(name)) and (place.mark or place.whole) and _reached(place) < head:
            said = f"does not show this pipeline's last commit any more (batch {head[1]} of epoch {head[0]})"
            yield _other_table(name, f"{said}: it was rolled back", source)


def _reached(place: Position) -> Head:
    return (place.mark.token.epoch, place.mark.token.batch) if place.mark else (-1, -1)


def _other_table(name: str, found: str, source: SourceNow | None, *, there: bool = True) -> Blocker:
    how = "with the table as it is" if there else "without the table; the next record for it creates it again"
    choices = {Choice.ACCEPT: Resolution(f"go on {how}; what it held is not read again", tables=(name,))}
    if source:
        said = "read again what the topics still hold, and write what is in no table; rows that are in one stay"
        anew = source.anew(source.identity.topics, said)
        choices[Choice.ANEW] = Resolution(anew.says, anew.offsets, tables=(name,))
    return Blocker(name, TableChanged(f"the table {name} {found}{ADVICE}"), choices)


# -- small things -----------------------------------------------------------------------------------------


def _differ(then: str, now: str, is_same: object = str.__eq__) -> bool:
    """True if both are known and differ."""
    return bool(then and now) and not is_same(then, now)  # type: ignore[operator]


def _of(offsets: Offsets, topics: Mapping[str, str]) -> Offsets:
    return {at: offset for at, offset in offsets.items() if at[0] in topics}


def _at(offsets: Offsets, places: Offsets) -> Offsets:
    return {at: offsets[at] for at in places}


def _without(offsets: Offsets, topics: Mapping[str, str]) -> Offsets:
    return {at: offset for at, offset in offsets.items() if at[0] not in topics}


def _named(at: tuple[str, int]) -> str:
    return f"topic {at[0]} partition {at[1]}"
