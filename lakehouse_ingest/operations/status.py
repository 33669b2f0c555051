"""How far a stream has come, as the tables, the batch log and the broker say."""

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
from lakehouse_ingest.stages.sources.kafka.open_transactions import uncommitted
from lakehouse_ingest.tables import PipelineTables, TableState, newest_generation
from lakehouse_ingest.tables.catalog_address import catalog_at
from lakehouse_ingest.tables.pipeline_tables import tables_of

RECENT = dt.timedelta(minutes=1)  # the last batch is searched so far back from the newest row of the batch log
DAY = dt.timedelta(days=1)  # likewise, if other streams have pushed the snapshot of our last batch out of its history
OUTCOMES = ("received", "landed", "dead", "filtered", "discarded")


@dataclass(frozen=True)
class PartitionStanding:
    topic: str
    partition: int
    landed: int  # every record below this offset has its outcome
    end: int | None  # of the partition in the topic; None if the broker does not answer
    lag: int | None
    uncommitted: int | None  # offsets behind `end`, held back by an open transaction


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
    gone: Sequence[str] = ()  # tables that it has written to, and that are not there

    @property
    def lag(self) -> int | None:
        """None while the broker does not answer. Partitions that are gone have no lag."""
        lags = [each.lag for each in self.partitions if each.lag is not None]
        return sum(lags) if lags else None


def standing(
    lake: PipelineTables, identity: str, batch_log_name: str, ends: Offsets | None, high: Offsets, every: float
) -> StreamStanding | None:
    """None if this stream has left no mark. `ends`: how far a reader gets; `high`: how far records are written."""
    batch_log = lake.find(batch_log_name)
    if batch_log is None:
        return None
    registered = lake.registered(batch_log_name)
    states = {name: lake.find(name) for name in registered}
    found = [state for state in states.values() if state]
    seen = [lake.seen(state) for state in (batch_log, *found)]
    places = [place.within(newest_generation(seen)) for place in seen]
    if not (marks := [place.mark for place in places if place.mark]):
        return None
    done = ledger.highest([places[0].held, *(mark.complete for mark in marks)])
    return StreamStanding(
        identity,
        max(mark.token.epoch for mark in marks),
        [_partition(at, offset, ends, high) for at, offset in sorted(done.items())],
        [_table(state) for state in sorted(found, key=lambda state: state.name)],
        _last_batch(lake, batch_log, identity, RECENT + dt.timedelta(seconds=every)),
        # A table without an id is one that a person has decided to take as it is.
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


def _last_batch(
    lake: PipelineTables, batch_log: TableState, identity: str, recent: dt.timedelta
) -> BatchStanding | None:
    """The last batch of this stream. Other streams may have written to the batch log since."""
    tokens = ((each, each.summary.get(TOKEN, "")) for each in batch_log.ancestors())
    own = next((each for each, token in tokens if _is_of_batch(token, identity)), None)
    newest = own or next(batch_log.ancestors(), None)
    if newest is None:
        return None
    since = _moment(newest.timestamp_ms) - (recent if own else DAY)
    columns = ("pipeline", "kind", "batch", "started_at", "finished_at", "partitions", "reasons", "note")
    rows = lake.rows_since(batch_log.name, "finished_at", since, columns)
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
class StreamStatus:
    """One stream, and why its lag is not known."""

    name: str
    standing: StreamStanding | None
    silent: str = ""  # why the broker does not answer


def look(settings: Settings, jars: Path | None = None) -> list[StreamStatus]:
    with catalog_at(settings, jars) as uri:
        return of_streams(settings, uri)


def of_streams(settings: Settings, uri: str) -> list[StreamStatus]:
    return [_status(settings, stream, uri) for stream in settings.streams]


def _status(settings: Settings, stream: StreamSettings, uri: str) -> StreamStatus:
    identity = settings.identity_of(stream)
    lake, batch_log = tables_of(settings, uri, stream), settings.batch_log
    ends: Offsets | None = None
    high: Offsets = {}
    silent = ""
    try:
        source = sources.of_stream(settings.source, stream)
        _, high = source.bounds()  # before the ends, or records written in between would look held back
        ends = source.ends()
    except LakehouseError as failure:
        silent = str(failure)
    now = standing(lake, identity, batch_log, ends, high, settings.ledger.batch_every)
    return StreamStatus(stream.known_as, now, silent)
