"""Where a start begins. It follows only from what the tables and the source say now; nothing is guessed."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lakehouse_ingest.ledger.marks import Head, highest
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.resume import blockers
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.tables import Position, Registered


def complete(record: Position, places: Sequence[Position]) -> Offsets:
    """The offsets below which all tables have their rows: the highest that any of them knows."""
    # The batch log is committed after all other tables of a batch, so its `next` is complete as well.
    return highest([record.held, *(place.mark.complete for place in places if place.mark)])


def begin(
    record: Position,
    places: Sequence[Position],
    source: SourceNow,
    beginning: Offsets,
    heads: Mapping[str, Head] = blockers.NOTHING,
    apart: Collection[str] = (),
) -> Offsets:
    """The offsets to start reading from: what is complete, and the beginning of new topics."""
    for blocker in blockers.of_source(record, places, source, heads, apart):
        raise blocker.error
    done = complete(record, places)
    # A new partition of a known topic is read from its first record, whatever the settings say.
    return {**source.low, **beginning, **{at: offset for at, offset in done.items() if at in source.high}}


def uncertain(places: Iterable[Position], done: Offsets, ours: Collection[str] = ()) -> list[Position]:
    """The tables that may hold rows beyond what is complete.

    A table of `ours` without a mark may be a copy, or another program has cut its history; then we have to look at its
    rows. We don't look at a table that was never ours: rows of another pipeline, even of the same topic, say nothing
    about where our records go.
    """
    return [
        place
        for place in places
        if place.main is not None
        and (
            any(offset > done.get(at, -1) for at, offset in place.mark.next.items())
            if place.mark
            else place.table in ours or not place.known
        )
    ]


def same_tables(before: Mapping[str, Registered], heads: Mapping[str, Head], now: Mapping[str, Position]) -> None:
    """Refuse a table that is not the one that this pipeline has written to, or that was rolled back since."""
    for blocker in blockers.of_tables(before, heads, now, None):
        raise blocker.error
