"""`lakehouse-ingest acknowledge`: what was taken out of the tables on purpose is noted, and counts as lost no more.

Nothing is changed without `--yes`. Then the ranges, the reason and the time are a row of the batch record, and a
pipeline that runs goes on as if nothing had been.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lakehouse_ingest.cli.printing import listed
from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.errors import SettingsRefused, TableChanged
from lakehouse_ingest.operations.verify.acknowledged import MOST, Part, Parts, fewer, narrowed, total
from lakehouse_ingest.operations.verify.findings import Kind
from lakehouse_ingest.operations.verify.offset_sets import Run
from lakehouse_ingest.operations.verify.proof import Recounted
from lakehouse_ingest.operations.verify.recorded_batches import landed_in
from lakehouse_ingest.operations.verify.streams import recounted
from lakehouse_ingest.records import Token, TopicPartition
from lakehouse_ingest.settings import Settings, StreamSettings
from lakehouse_ingest.tables import Lake, batch_log
from lakehouse_ingest.tables.catalog_address import catalog_at

UNANSWERED = 3
SHOWN = 20  # ranges; all of them are in the JSON

Wanted = Mapping[TopicPartition, Sequence[Run]]


@dataclass(frozen=True)
class Stood:
    """One stream, and what of its losses somebody means."""

    name: str
    lake: Lake
    record: str  # the batch record's name
    found: Recounted | None = None  # None: the catalog knows nothing of it
    meant: Parts | None = None

    @property
    def lost(self) -> int:
        return self.found.verdict.lost if self.found else 0


def acknowledge(
    settings: Settings,
    *,
    reason: str = "",
    only: str | None = None,
    offsets: Sequence[str] = (),
    yes: bool = False,
    jars: Path | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: whether something that is lost is not acknowledged."""
    wanted, why = _ranges(offsets), " ".join(reason.split())
    if yes and not why:
        raise SettingsRefused("--yes needs a --reason: whoever reads the batch record later has to know why")
    with catalog_at(settings, jars) as uri:
        found = [_looked(settings, stream, uri, only, wanted) for stream in settings.streams]
        for each in found if yes else ():
            _carry_out(each, why)
    if as_json:
        say(json.dumps([_as_plain(each, done=yes) for each in found], indent=2))
    else:
        console = Terminal(soft_wrap=True)
        console.print(*(part for each in found for part in _of_stream(each, done=yes)), sep="\n")
        if not yes and any(each.meant for each in found):
            console.print("\nNothing has been changed. --yes with a --reason, or set right what is wrong.")
    return UNANSWERED if any(each.lost > (total(each.meant or {}) if yes else 0) for each in found) else 0


def _ranges(offsets: Sequence[str]) -> Wanted:
    wanted: dict[TopicPartition, list[Run]] = {}
    for text in offsets:
        found = re.fullmatch(r"(.+)/(\d+)/(\d+)(?:-(\d+))?", text)
        first, last = (int(found[3]), int(found[4] or found[3])) if found else (1, 0)
        if not found or first > last:
            raise SettingsRefused(f"--offsets {text} should be topic/partition/first-last, such as sensors/0/40-42")
        wanted.setdefault((found[1], int(found[2])), []).append((first, last))
    return wanted


def _looked(settings: Settings, stream: StreamSettings, uri: str, only: str | None, wanted: Wanted) -> Stood:
    lake, found = recounted(settings, stream, uri)
    stood = Stood(stream.known_as, lake, f"{settings.catalog.namespace}.{settings.ledger.batch_table}", found)
    if found is None or not found.verdict.lost:
        return stood
    meant = narrowed(found.lost, wanted) if wanted else found.lost
    if only and (of_topic := {at: parts for at, parts in meant.items() if at[0] == only}):
        meant = of_topic
    elif only:
        table = only if "." in only else f"{settings.catalog.namespace}.{only}"
        record = lake.pin(stood.record)
        meant = narrowed(meant, landed_in(lake, record, found.verdict.pipeline, table) if record else {})
    return Stood(stood.name, lake, stood.record, found, fewer(meant, MOST))


def _carry_out(stood: Stood, reason: str) -> None:
    if not stood.found or not stood.meant:
        return
    if stood.lake.find(stood.record) is None:
        raise TableChanged(
            f"the batch record {stood.record} is not there, and nothing else can hold it; start the pipeline, which"
            " makes it anew, then acknowledge"
        )
    token = Token(stood.found.verdict.pipeline, stood.found.generation, stood.found.epoch, -1)
    logs: dict[str, int] = {}
    for at, parts in stood.meant.items():
        for log in stood.found.logs[at[0]]:
            logs[log] = logs.get(log, 0) + total({at: parts})
    ranges = {at: [(part.start, part.end, part.count) for part in of] for at, of in stood.meant.items()}
    stood.lake.append_beside(stood.record, [batch_log.acknowledged(token, ranges, logs, reason)])


# -- what is said -----------------------------------------------------------------------------------------


def _of_stream(stood: Stood, *, done: bool) -> Iterator[RenderableType]:
    yield Text(f"stream {stood.name}", style="bold")
    if stood.found is None:
        yield Text("The catalog knows nothing of it: it has landed nothing yet, or `catalog.namespace` is another.")
        return
    if not stood.lost:
        yield Text("Nothing of it is lost, so there is nothing to acknowledge.")
        return
    verdict = stood.found.verdict
    yield Text(f"{stood.lost:,} offset{' is' if stood.lost == 1 else 's are'} lost:")
    yield listed([each for each in verdict.findings if each.kind is Kind.LOST])
    if more := verdict.unlisted.get(Kind.LOST):
        yield Text(f"and {more:,} ranges more")
    ranges = [(at, part) for at, parts in (stood.meant or {}).items() for part in parts]
    says = "were acknowledged" if done else "would be acknowledged"
    yield Text(f"{total(stood.meant or {}):,} of them {says} as removed:" if ranges else f"None of them {says}.")
    for at, part in ranges[:SHOWN]:
        yield Text(f"  {_named(at, part)}")
    if len(ranges) > SHOWN:
        yield Text(f"  and {len(ranges) - SHOWN:,} ranges more")


def _named(at: TopicPartition, part: Part) -> str:
    of = "" if part.is_whole else f"{part.count:,} of "
    offsets = f"offset {part.start}" if part.end == part.start + 1 else f"offsets {part.start} to {part.end - 1}"
    return f"{of}{offsets} of topic {at[0]} partition {at[1]}"


def _as_plain(stood: Stood, *, done: bool) -> dict[str, Any]:
    return {
        "stream": stood.name,
        "known": stood.found is not None,
        "lost": stood.lost,
        "acknowledged": total(stood.meant or {}) if done else 0,
        "ranges": [
            {"topic": at[0], "partition": at[1], "first": part.start, "last": part.end - 1, "count": part.count}
            for at, parts in (stood.meant or {}).items()
            for part in parts
        ],
    }
