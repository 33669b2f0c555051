"""Where a start begins, from nothing but what the tables and the source say now. Nothing is guessed."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from lakehouse_ingest.ledger.marks import Head, highest
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.resume import blockers
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.tables import Position, Registered


def complete(record: Position, places: Sequence[Position]) -> Offsets:
    """The map below which every landing of every table is done: the highest that any of them knows."""
    # In the batch record `next` is written after all landings, so there it is complete as well.
    return highest([record.held, *(place.mark.complete for place in places if place.mark)])


def begin(
    record: Position,
    places: Sequence[Position],
    source: SourceNow,
    beginning: Offsets,
    heads: Mapping[str, Head] = blockers.NOTHING,
    apart: Collection[str] = (),
) -> Offsets:
    """The map to start reading from: what is complete, and for topics that are new where they begin."""
    for question in blockers.of_source(record, places, source, heads, apart):
        raise question.error
    done = complete(record, places)
    # A new partition of a known topic is read from its first record, whatever the settings say.
    return {**source.low, **beginning, **{at: offset for at, offset in done.items() if at in source.high}}


def uncertain(places: Iterable[Position], done: Offsets, ours: Collection[str] = ()) -> list[Position]:
    """The tables that may hold something beyond what is complete.

    Where no mark says how far, one of `ours` may be a copy of what it was, or others have cut its history: then the
    rows tell. Those of a table that was never ours are not asked: what another pipeline has read of the same topic may
    go elsewhere from here.
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
    """Refuses a table that is not the one which this pipeline has landed in, or not as it left it."""
    for question in blockers.of_tables(before, heads, now, None):
        raise question.error
