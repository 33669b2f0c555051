"""Positions of tables and a source, as a start finds them."""

import datetime as dt

from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets, SourceIdentity, Token
from lakehouse_ingest.resume import start_offsets
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.new_topics import beginning
from lakehouse_ingest.resume.start_offsets import complete
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.tables import Position

IDENTITY = SourceIdentity("cluster-1", {"t": "id-1"})


NOW = SourceNow(IDENTITY, {("t", 0): 0, ("t", 1): 0}, {("t", 0): 1000, ("t", 1): 1000})


NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


def at(first: int, second: int | None = None) -> Offsets:
    return {("t", 0): first} if second is None else {("t", 0): first, ("t", 1): second}


def place(
    table: str,
    following: Offsets | None = None,
    complete: Offsets | None = None,
    *,
    source: SourceIdentity = IDENTITY,
    known: bool = True,
    uuid: str = "",
) -> Position:
    """A table that holds up to `following`; without one it has no mark of ours."""
    found = None
    if following is not None:
        found = Mark(Token("p", 1, 1, 1), source, {}, following, following if complete is None else complete)
    return Position(table, "branch", 1, found, {}, known=known, uuid=uuid)


RECORD, NEVER = place("record", at(500, 500)), place("record")


def begin(
    record: Position, places: list[Position], now: SourceNow, start: object, seek: object = None, stated: object = None
) -> Offsets:
    """As a stream does it; at noon partition 0 stood at 600, and partition 1 has no record since."""
    settings = SourceSettings.model_validate({"start": start, "seek": seek or {}, "partitions": stated or {}})
    done = complete(record, places)
    new = beginning(
        settings,
        *now.unknown(done, settings.partitions),
        lambda moment: {("t", 0): 600} if moment == NOON else {},
        done,
        now.ends,
    )
    return start_offsets.begin(record, places, now, new)
