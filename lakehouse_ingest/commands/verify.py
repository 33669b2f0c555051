"""`lakehouse-ingest verify`: every offset in exactly one place, recounted from the tables; what is not, is listed.

No Spark: the coordinates of all rows are read by pyarrow, and compared as bits.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lakehouse_ingest import sources
from lakehouse_ingest.catalog_access import connection_of
from lakehouse_ingest.commands.status import reached
from lakehouse_ingest.observing import Watch, pushing
from lakehouse_ingest.settings import Settings, SourceSettings, StreamSettings
from lakehouse_ingest.settings.secret_keys import without_login
from lakehouse_ingest.sources import Source
from lakehouse_ingest.tables import Lake
from lakehouse_ingest.terminal import Terminal, say
from lakehouse_ingest.verifying.findings import PROVEN, UNTOLD, WRONG, Finding, Kind, Verdict
from lakehouse_ingest.verifying.heads import Names
from lakehouse_ingest.verifying.proof import Recounted, recount

SHOWN = 3  # snapshots of a finding; the others are in the JSON


@dataclasses.dataclass(frozen=True)
class Verified:
    """One stream; without a verdict the catalog knows nothing of it."""

    name: str
    verdict: Verdict | None

    @property
    def code(self) -> int:
        # Nothing is proven by looking into the wrong namespace.
        return self.verdict.code if self.verdict else UNTOLD


def verify(settings: Settings, *, jars: Path | None = None, as_json: bool = False) -> int:
    """The exit code: what is wrong goes before what can't be told."""
    with reached(settings, jars) as uri:
        found = [_verified(settings, stream, uri) for stream in settings.streams]
    _push(settings, found)
    if as_json:
        say(json.dumps([_as_plain(each) for each in found], indent=2))
    else:
        where = Text(f"{settings.name}: namespace {settings.catalog.namespace} of {without_login(uri)}", style="bold")
        Terminal().print(Group(where, *(part for each in found for part in _of_stream(each))))
    codes = {each.code for each in found}
    return next((code for code in (WRONG, UNTOLD) if code in codes), PROVEN)


def prove(settings: Settings, jars: Path | None = None) -> list[Verified]:
    with reached(settings, jars) as uri:
        found = [_verified(settings, stream, uri) for stream in settings.streams]
    _push(settings, found)
    return found


def _push(settings: Settings, found: Sequence[Verified]) -> None:
    with pushing(settings, "verify") as watch:
        if watch:
            tell(watch, settings, found)


def tell(watch: Watch, settings: Settings, found: Sequence[Verified]) -> None:
    """Of each stream every kind, so that what is right again is seen to be; nothing of what the catalog knows not."""
    for stream, verdict in zip(settings.streams, (each.verdict for each in found), strict=True):
        name = stream.known_as
        if verdict:
            listed = Counter(each.kind for each in verdict.findings)
            for kind in Kind:
                count = listed[kind] + verdict.unlisted.get(str(kind), 0)
                watch.gauge("lakehouse.verify.findings", count, stream=name, kind=str(kind))
            watch.gauge("lakehouse.verify.timestamp", time(), stream=name)


def _verified(settings: Settings, stream: StreamSettings, uri: str) -> Verified:
    _, found = recounted(settings, stream, uri)
    return Verified(known_as(stream), found.verdict if found else None)


def known_as(stream: StreamSettings) -> str:
    return stream.name or stream.topic_pattern or ", ".join(stream.topics)


def recounted(settings: Settings, stream: StreamSettings, uri: str) -> tuple[Lake, Recounted | None]:
    """None where the catalog knows nothing of it."""
    identity, namespace = settings.identity_of(stream), settings.catalog.namespace
    names = Names(namespace, f"{namespace}.{settings.ledger.batch_table}", f"{namespace}.{settings.dead_letters.table}")
    lake = Lake(connection_of(settings.catalog, settings.s3, uri), identity)
    found = recount(
        lake,
        identity,
        names,
        partial(_source, settings.source),
        filters=bool(stream.keep_types) or stream.on_error == "ignore",
    )
    return lake, found


def _source(settings: SourceSettings, topics: Sequence[str]) -> Source:
    """With all partitions: some may have been read that are no more."""
    return sources.chosen(settings)(settings.model_copy(update={"partitions": {}}), topics)


# -- for people -------------------------------------------------------------------------------------------


def _of_stream(found: Verified) -> Iterator[RenderableType]:
    yield Text(f"\nstream {found.name}", style="bold")
    verdict = found.verdict
    if verdict is None:
        yield Text("The catalog knows nothing of it: it has landed nothing yet, or `catalog.namespace` is another.")
        return
    yield Text(_sentence(verdict), style="green" if verdict.code == PROVEN else "")
    if verdict.adopted:
        yield Text(f"begun where another writer had ended, whose rows are not looked at: {verdict.adopted}")
    if verdict.beyond:
        yield Text(f"{verdict.beyond:,} rows beyond, of what is still under way: looked at for duplicates only")
    for topic, count in verdict.older.items():
        yield Text(f"{count:,} rows of the log that {topic} was before: looked at for duplicates only")
    if verdict.back:
        yield Text(f"{verdict.back:,} rows that were acknowledged as removed are there again")
    if not verdict.findings:
        return
    yield listed(verdict.findings)
    for kind, count in verdict.unlisted.items():
        yield Text(f"and {count:,} findings more of the kind {kind}")


def listed(findings: Sequence[Finding]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in findings:
        style = "yellow" if each.kind is Kind.UNKNOWN else "red"
        table.add_row(Text(each.kind, style=style), Text(f"{each.says}{_snapshots(each)}"))
    return table


def _sentence(verdict: Verdict) -> str:
    """Where the offsets are, and whether that is as it should be."""
    tables = len([count for count in verdict.tables.values() if count])
    parts = {
        f"in {tables} table{'' if tables == 1 else 's'}": sum(verdict.tables.values()),
        "among the dead letters": verdict.dead,
        "filtered": verdict.filtered,
        "discarded": verdict.discarded,
        "removed on purpose": verdict.removed,
        "holes of the log": verdict.holes,
        "holes of the log by the batch record": verdict.holes_recorded,
        "lost": verdict.lost,
        "that can't be told": verdict.unknown,
        "too many": verdict.duplicates,
    }
    counts = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count) or "none"
    whole = "; every other one in exactly one place" if verdict.removed else "; every one in exactly one place"
    proven = {PROVEN: whole, UNTOLD: "; the rest in one place each"}.get(verdict.code, "")
    return f"{verdict.offsets:,} offsets of {verdict.partitions} partitions: {counts}{proven}"


def _snapshots(finding: Finding) -> str:
    if not finding.snapshots:
        return ""
    shown = ", ".join(map(str, finding.snapshots[:SHOWN]))
    more = len(finding.snapshots) - SHOWN
    return f" [snapshots {shown}{f' and {more} more' if more > 0 else ''}]"


# -- for machines -----------------------------------------------------------------------------------------


def _as_plain(found: Verified) -> dict[str, Any]:
    verdict = dataclasses.asdict(found.verdict) if found.verdict else {}
    return {"stream": found.name, "known": found.verdict is not None, "code": found.code, **verdict}
