"""`lakehouse-ingest status`: what the tables know of each stream, and how far behind the broker that is."""

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

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.operations.status import BatchStanding, Found, PartitionStanding, StreamStanding, of_streams
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.settings.secret_words import without_login
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
    where = Text(f"{settings.name}: namespace {settings.catalog.namespace} of {without_login(uri)}", style="bold")
    return Group(where, *(part for each in of_streams(settings, uri) for part in _of_stream(each)))


def _of_stream(found: Found) -> Iterator[RenderableType]:
    yield Text(f"\nstream {found.name}", style="bold")
    if found.silent:
        yield Text(f"lag unknown: {found.silent}", style="yellow")
    now = found.standing
    if now is None:
        yield Text("The catalog knows nothing of it: it has not landed anything yet.")
        return
    yield Text(_batch_sentence(now))
    offsets = Table("topic", box=None, pad_edge=False)
    for name in ("partition", "landed up to", "end", "lag"):
        offsets.add_column(name, justify="right")
    for part in now.partitions:
        offsets.add_row(part.topic, *(_number(each) for each in (part.partition, part.landed, part.end, part.lag)))
    tables = Table("table", box=None, pad_edge=False)
    for name in ("rows", "files", "size", "snapshots", "last commit"):
        tables.add_column(name, justify="right")
    for table in now.tables:
        counts = (_number(table.rows), _number(table.files), _size(table.bytes), _number(table.snapshots))
        tables.add_row(table.name, *counts, _ago(table.last_commit))
    yield offsets
    for part in now.partitions:
        if part.uncommitted:
            yield Text(_open_transaction(part), style="yellow")
    yield from (Text(), tables)
    if now.gone:
        said = f"{', '.join(now.gone)}: not there any more; `lakehouse-ingest recover` says what can be done"
        yield Text(said, style="yellow")


def _open_transaction(part: PartitionStanding) -> str:
    return (
        f"{part.topic} partition {part.partition}: {_number(part.uncommitted)} offsets from {_number(part.end)} on wait"
        " for the end of a transaction that is open, and are no part of the lag; should that not come,"
        " `kafka-transactions.sh find-hanging` names its producer, and `abort` ends it"
    )


def _batch_sentence(now: StreamStanding) -> str:
    last = now.last_batch
    if last is None:
        return f"epoch {now.epoch}; the batch record holds no batch of it"
    ended = f"epoch {now.epoch}; batch {last.batch} ended {_ago(last.finished_at)} after {last.seconds:.1f} s: "
    return ended + _counts(last) + (f" ({last.note})" if last.note else "")


def _counts(last: BatchStanding) -> str:
    parts = [f"{count:,} {outcome}" for outcome, count in last.counts.items() if count and outcome != "received"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in last.reasons.items())
    return f"{last.counts['received']:,} received = {' + '.join(parts) or 'none'}" + (
        f" [{reasons}]" if reasons else ""
    )


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:  # noqa: PLR2004
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"  # noqa: PLR2004


def _ago(moment: dt.datetime | None) -> str:
    if moment is None:
        return "never"
    seconds = max(0.0, (dt.datetime.now(dt.UTC) - moment).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


# -- for machines -----------------------------------------------------------------------------------------


def _as_plain(found: Found) -> dict[str, Any]:
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
