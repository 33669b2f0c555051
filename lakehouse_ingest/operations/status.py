"""How far a stream has come, from nothing but what the tables, the batch record and the broker say."""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import TOKEN
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources.open_transactions import uncommitted
from lakehouse_ingest.tables import Lake, TableState, newest_generation
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.clients import connection_of

RECENT = dt.timedelta(minutes=1)  # before the record's newest row: so far back the last batch is looked for
DAY = dt.timedelta(days=1)  # likewise, where other streams have written since, and more than the record keeps
OUTCOMES = ("received", "landed", "dead", "filtered", "discarded")


@dataclass(frozen=True)
class PartitionStanding:
    topic: str
    partition: int
    landed: int  # all below this offset has its place
    end: int | None  # the topic's; None when the broker does not answer
    lag: int | None
    uncommitted: int | None  # offsets behind `end`, which wait for the end of a transaction that is open


@dataclass(frozen=True)
class TableStanding:
    name: str
    rows: int
    files: int
    bytes: int
    snapshots: int
    last_commit: dt.datetime | None


@dataclass(frozen=True)
class BatchStanding:
    batch: int
    finished_at: dt.datetime
    seconds: float
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    note: str | None


@dataclass(frozen=True)
class StreamStanding:
    pipeline: str  # the stream's name in the ledger
    epoch: int
    partitions: Sequence[PartitionStanding]
    tables: Sequence[TableStanding]
    last_batch: BatchStanding | None
    gone: Sequence[str] = ()  # tables that it has landed in, and that are not there

    @property
    def lag(self) -> int | None:
        """None while the broker is silent; what is gone there lags no more."""
        lags = [each.lag for each in self.partitions if each.lag is not None]
        return sum(lags) if lags else None


def standing(
    lake: Lake, identity: str, record_name: str, ends: Offsets | None, high: Offsets, every: float
) -> StreamStanding | None:
    """None where this stream has never been. `ends`: how far a reader gets; `high`: how far records are written."""
    record = lake.find(record_name)
    if record is None:
        return None
    registered = lake.registered(record_name)
    states = {name: lake.find(name) for name in registered}
    found = [state for state in states.values() if state]
    seen = [lake.seen(state) for state in (record, *found)]
    places = [place.within(newest_generation(seen)) for place in seen]
    if not (marks := [place.mark for place in places if place.mark]):
        return None
    done = ledger.highest([places[0].held, *(mark.complete for mark in marks)])
    return StreamStanding(
        identity,
        max(mark.token.epoch for mark in marks),
        [_partition(at, offset, ends, high) for at, offset in sorted(done.items())],
        [_table(state) for state in sorted(found, key=lambda state: state.name)],
        _last_batch(lake, record, identity, RECENT + dt.timedelta(seconds=every)),
        # Of those without an id somebody has said that they are to be taken as they are.
        sorted(name for name, state in states.items() if state is None and registered[name].uuid),
    )


def _partition(at: tuple[str, int], landed: int, ends: Offsets | None, high: Offsets) -> PartitionStanding:
    end = ends.get(at) if ends is not None else None
    if end is None:
        return PartitionStanding(*at, landed, None, None, None)
    return PartitionStanding(*at, landed, end, max(0, end - landed), uncommitted({at: end}, high)[at])


def _table(state: TableState) -> TableStanding:
    newest = state.snapshots.get(state.main) if state.main is not None else None
    counts = newest.summary if newest else {}
    rows, files, size = (int(counts.get(f"total-{what}", 0)) for what in ("records", "data-files", "files-size"))
    return TableStanding(
        state.name, rows, files, size, len(state.snapshots), _moment(newest.timestamp_ms) if newest else None
    )


def _moment(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def _last_batch(lake: Lake, record: TableState, identity: str, recent: dt.timedelta) -> BatchStanding | None:
    """Of this stream: others may write to the same record later."""
    tokens = ((each, each.summary.get(TOKEN, "")) for each in record.ancestors())
    own = next((each for each, token in tokens if _is_of_batch(token, identity)), None)
    newest = own or next(record.ancestors(), None)
    if newest is None:
        return None
    since = _moment(newest.timestamp_ms) - (recent if own else DAY)
    columns = ("pipeline", "kind", "batch", "started_at", "finished_at", "partitions", "reasons", "note")
    rows = lake.rows_since(record.name, "finished_at", since, columns)
    batches = [row for row in rows if row["pipeline"] == identity and row["kind"] == "batch"]
    return _batch(max(batches, key=lambda row: (row["finished_at"], row["batch"]))) if batches else None


def _is_of_batch(token: str, identity: str) -> bool:
    pipeline, _, _, number = token.split("/") if token.count("/") == 3 else ("", "", "", "-1")  # noqa: PLR2004
    return pipeline == identity and int(number) >= 0


def _batch(row: Mapping[str, Any]) -> BatchStanding:
    parts: Iterable[Mapping[str, int]] = row["partitions"] or ()
    return BatchStanding(
        row["batch"],
        row["finished_at"],
        (row["finished_at"] - row["started_at"]).total_seconds(),
        {outcome: sum(part[outcome] for part in parts) for outcome in OUTCOMES},
        dict(row["reasons"] or ()),
        row["note"],
    )


@dataclasses.dataclass(frozen=True)
class Found:
    """One stream, and why its lag is not known."""

    name: str
    standing: StreamStanding | None
    silent: str = ""  # what keeps the broker from answering


def look(settings: Settings, jars: Path | None = None) -> list[Found]:
    with catalog_at(settings, jars) as uri:
        return of_streams(settings, uri)


def of_streams(settings: Settings, uri: str) -> list[Found]:
    return [_found(settings, stream, uri) for stream in settings.streams]


def _found(settings: Settings, stream: StreamSettings, uri: str) -> Found:
    identity = settings.identity_of(stream)
    lake = Lake(connection_of(settings.catalog, settings.s3, uri), identity)
    record = f"{settings.catalog.namespace}.{settings.ledger.batch_table}"
    ends: Offsets | None = None
    high: Offsets = {}
    silent = ""
    try:
        source = sources.of_stream(settings.source, stream)
        _, high = source.bounds()  # before the ends: what is written meanwhile waits for no transaction
        ends = source.ends()
    except LakehouseError as failure:
        silent = str(failure)
    return Found(stream.known_as, standing(lake, identity, record, ends, high, settings.ledger.batch_every), silent)
