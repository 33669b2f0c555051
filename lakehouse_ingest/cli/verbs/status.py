"""`lakehouse-ingest status`: what the tables know of each stream, and how far that is behind the broker."""

import dataclasses
import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.cli.printing import UNKNOWN_STREAM, headline
from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.observe.figures import ago, count, seconds, size
from lakehouse_ingest.operations.status import (
    BatchStanding,
    PartitionStanding,
    StreamStanding,
    StreamStatus,
    of_streams,
)
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables.catalog_address import catalog_at

WATCH_S = 2.0


def status(settings: Settings, *, jars: Path | None = None, as_json: bool = False, watch: bool = False) -> None:
    with catalog_at(settings, jars, serve=not watch) as uri:
        if as_json:
            say(json.dumps([_as_plain(each) for each in of_streams(settings, uri)], indent=2, default=_written))
        elif watch:
            with (
                Live(_shown(settings, uri), console=Terminal(), auto_refresh=False) as live,
                suppress(KeyboardInterrupt),
            ):
                while True:
                    time.sleep(WATCH_S)
                    live.update(_shown(settings, uri), refresh=True)
        else:
            Terminal().print(_shown(settings, uri))


# -- for people -------------------------------------------------------------------------------------------


def _shown(settings: Settings, uri: str) -> RenderableType:
    return Group(headline(settings, uri), *(part for each in of_streams(settings, uri) for part in _of_stream(each)))


def _of_stream(found: StreamStatus) -> Iterator[RenderableType]:
    yield Text(f"\nstream {found.name}", style="bold")
    if found.silent:
        yield Text(f"lag unknown: {found.silent}", style="yellow")
    now = found.standing
    if now is None:
        yield Text(UNKNOWN_STREAM)
        return
    yield Text(_batch_sentence(now))
    offsets = Table("topic", box=None, pad_edge=False)
    for name in ("partition", "complete up to", "end", "lag"):
        offsets.add_column(name, justify="right")
    for part in now.partitions:
        offsets.add_row(part.topic, *(count(each) for each in (part.partition, part.landed, part.end, part.lag)))
    tables = Table("table", box=None, pad_edge=False)
    for name in ("rows", "files", "size", "snapshots", "last commit"):
        tables.add_column(name, justify="right")
    for table in now.tables:
        counts = (count(table.rows), count(table.files), size(table.bytes), count(table.snapshots))
        tables.add_row(table.name, *counts, _since(table.last_commit))
    yield offsets
    for part in now.partitions:
        if part.uncommitted:
            yield Text(_open_transaction(part), style="yellow")
    yield from (Text(), tables)
    if now.gone:
        says = f"{', '.join(now.gone)}: not there any more; `lakehouse-ingest recover` says what can be done"
        yield Text(says, style="yellow")


def _open_transaction(part: PartitionStanding) -> str:
    return (
        f"{part.topic} partition {part.partition}: {count(part.uncommitted)} offsets from {count(part.end)} on wait"
        " for the end of an open transaction, and do not count as lag; if it does not end,"
        " `kafka-transactions.sh find-hanging` names its producer, and `abort` ends it"
    )


def _batch_sentence(now: StreamStanding) -> str:
    last = now.last_batch
    if last is None:
        return f"epoch {now.epoch}; the batch log holds no batch of it"
    ended = f"epoch {now.epoch}; batch {last.batch} ended {_since(last.finished_at)} after {seconds(last.seconds)}: "
    return ended + _counts(last) + (f" ({last.note})" if last.note else "")


def _counts(last: BatchStanding) -> str:
    outcomes = {outcome: records for outcome, records in last.counts.items() if outcome != "received"}
    parts = [f"{count(records)} {outcome}" for outcome, records in outcomes.items() if records]
    reasons = ", ".join(f"{count(records)} {reason}" for reason, records in last.reasons.items())
    return f"{count(last.counts['received'])} received = {' + '.join(parts) or 'none'}" + (
        f" [{reasons}]" if reasons else ""
    )


def _since(moment: dt.datetime | None) -> str:
    return ago(None if moment is None else (dt.datetime.now(dt.UTC) - moment).total_seconds())


# -- for machines -----------------------------------------------------------------------------------------


def _as_plain(found: StreamStatus) -> dict[str, Any]:
    now = found.standing
    return {
        "stream": found.name,
        "known": now is not None,
        "lag": now.lag if now else None,
        "broker": found.silent or "answers",
        **(dataclasses.asdict(now) if now else {}),
    }


def _written(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
