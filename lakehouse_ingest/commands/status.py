"""`lakehouse-ingest status`: what the tables know of each stream, and how far behind the broker that is."""

import dataclasses
import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakehouse_ingest import sources
from lakehouse_ingest.catalog_access import connection_of, embedded, refuse_what_is_no_rest_catalog
from lakehouse_ingest.embedded.catalog import is_warehouse
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.scratch import scratch_folder
from lakehouse_ingest.settings import CatalogSettings, Settings, StreamSettings
from lakehouse_ingest.settings.secret_keys import without_login
from lakehouse_ingest.standing import BatchStanding, PartitionStanding, StreamStanding, standing
from lakehouse_ingest.tables import Lake
from lakehouse_ingest.terminal import Terminal, say

WATCH_S = 2.0


@dataclasses.dataclass(frozen=True)
class Found:
    """One stream, and why its lag is not known."""

    name: str
    standing: StreamStanding | None
    silent: str = ""  # what keeps the broker from answering


def status(settings: Settings, *, jars: Path | None = None, as_json: bool = False, watch: bool = False) -> None:
    with reached(settings, jars, serve=not watch) as uri:
        if as_json:
            say(json.dumps([_as_plain(each) for each in _all(settings, uri)], indent=2, default=_written))
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


def look(settings: Settings, jars: Path | None = None) -> list[Found]:
    with reached(settings, jars) as uri:
        return _all(settings, uri)


@contextmanager
def reached(settings: Settings, jars: Path | None, *, make: bool = False, serve: bool = True) -> Iterator[str]:
    """The catalog of the settings: where it is, or the embedded one, served by whoever has it or by us meanwhile."""
    refuse_what_is_no_rest_catalog(settings.catalog)
    if settings.catalog.uri:
        yield settings.catalog.uri
        return
    if not (make or is_warehouse(settings.catalog.path)):
        raise SettingsRefused(
            f"`catalog.path` is {settings.catalog.path}, where no warehouse is: nothing has been ingested into it yet"
        )
    catalog = embedded(settings.catalog, settings.s3, jars)
    if served := catalog.served:
        yield served
        return
    if not serve:  # for as long as somebody looks on, no pipeline could begin
        raise TryAgain(f"nobody serves the warehouse {settings.catalog.path} now; look at it without --watch")
    try:
        uri = catalog.start(passing=True)
    except (SettingsRefused, TryAgain):
        if not (served := catalog.served):
            raise
        yield served  # by whoever has just begun to
        return
    try:
        yield uri
    finally:
        catalog.stop()


@contextmanager
def reached_or_empty(settings: Settings, jars: Path | None) -> Iterator[CatalogSettings]:
    """With its address; where there is no warehouse yet, an empty one elsewhere: not even its folder is made.

    What somebody makes there meanwhile is theirs.
    """
    with scratch_folder() as folder:
        if not (settings.catalog.uri or is_warehouse(settings.catalog.path)):
            empty = settings.catalog.model_copy(update={"path": folder})
            settings = settings.model_copy(update={"catalog": empty})
        with reached(settings, jars, make=True) as uri:
            yield settings.catalog.model_copy(update={"uri": uri})


def _all(settings: Settings, uri: str) -> list[Found]:
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
    name = stream.name or stream.topic_pattern or ", ".join(stream.topics)
    return Found(name, standing(lake, identity, record, ends, high, settings.ledger.batch_every), silent)


# -- for people -------------------------------------------------------------------------------------------


def _shown(settings: Settings, uri: str) -> RenderableType:
    where = Text(f"{settings.name}: namespace {settings.catalog.namespace} of {without_login(uri)}", style="bold")
    return Group(where, *(part for each in _all(settings, uri) for part in _of_stream(each)))


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
