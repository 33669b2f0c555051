"""`lakehouse-ingest plan`: what `run` would do to the catalog with the records there are; nothing of it is done."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal, say
from lakehouse_ingest.pipeline.assembly import foreseen
from lakehouse_ingest.pipeline.dry_run import Foresight, Outlook, is_changed, properties_of
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, TRIMMED
from lakehouse_ingest.tables import Column, Foreseen

WOULD_CHANGE = 7


def plan(settings: Settings, options: RunOptions, *, as_json: bool = False) -> int:
    """The exit code: a start that would be refused goes before changes."""
    found = foreseen(settings, options)
    if as_json:
        say(json.dumps(_as_plain(found), indent=2))
    else:
        title = f"{settings.name}: namespace {settings.catalog.namespace}; nothing of this was done"
        Terminal().print(Group(Text(title, style="bold"), *_shown(found)))
    return code_of(found)


def code_of(found: Foresight) -> int:
    refused = next((each.refusal for each in found.streams if each.refusal), None)
    return refused.exit_code if refused else WOULD_CHANGE if found.changed else 0


# -- for people -------------------------------------------------------------------------------------------


def _shown(found: Foresight) -> Iterator[RenderableType]:
    for stream in found.streams:
        yield from _of_stream(stream)
    yield Text()
    for namespace in found.namespaces:
        yield Text(f"+ namespace {namespace}", style="green")
    files = _files(found)
    for table in found.tables:
        yield from _of_table(table, found, files.get(table.after.name))
    made, changed = (
        [each for each in found.tables if is_changed(each) and (each.before is None) is new] for new in (True, False)
    )
    if found.changed:
        yield Text(f"{many(len(made), 'table')} would be made, {len(changed)} changed.", style="bold")
    else:
        yield Text("The catalog would stay as it is.", style="bold")


def _of_stream(stream: Outlook) -> Iterator[RenderableType]:
    yield Text(f"\nstream {stream.name}", style="bold")
    if stream.refusal:
        yield Text(f"would not go on: {stream.refusal}", style="red")
    seen = stream.seen
    how = "all" if stream.whole else f"{seen.offsets:,} of {stream.there:,}"
    more = "" if stream.whole or stream.refusal else ", a sample: what comes later may change more"
    yield Text(f"{how} records looked at{f', {seen.offsets:,}' if stream.whole else ''}{more}")
    parts = {
        "would land": seen.tally.total(LANDED),
        "have landed before": seen.tally.total(TRIMMED),
        "would be filtered": seen.tally.total(FILTERED),
        "discarded": seen.tally.total(DISCARDED),
        "be dead letters": sum(seen.tally.dead.values()),
    }
    if said := [f"{count:,} {what}" for what, count in parts.items() if count]:
        yield Text(", ".join(said))
    for reason, count in seen.tally.dead.items():
        first = seen.examples.get(reason)
        where = f", the first in {first.topic}/{first.partition} at {first.offset}: {first.detail}" if first else ""
        yield Text(f"  {reason} {count:,}{where}", style="yellow")
    yield from (Text(f"  {note}", style="yellow") for note in seen.notes)


def _of_table(table: Foreseen, found: Foresight, files: float | None) -> Iterator[RenderableType]:
    name = table.after.name
    if table.before is None:
        yield Text(f"+ table {name}", style="green")
        yield from (Text(f"    + {_column(each)}", style="green") for each in table.after.columns)
        yield Text(f"    partitions {_listed(table.after.partitions)}, sorted by {_listed(table.after.sort)}")
    else:
        changed = is_changed(table)
        yield Text(f"{'~' if changed else '='} table {name}", style="yellow" if changed else "")
        yield from (Text(f"    {each}", style="yellow") for each in table.changes)
    for key, text in properties_of(table).items():
        yield Text(f"    {key} = {text}", style="dim")
    yield from (Text(f"    {note}", style="dim") for note in found.notes.get(name, ()))
    if files is not None:
        yield Text(f"    about {many(max(1, round(files)), 'file')} an hour, estimated from the records looked at")


def _column(column: Column) -> str:
    return f"{column.name} {column.type}{' required' if column.required else ''}"


def _listed(each: object) -> str:
    return f"[{', '.join(map(str, each))}]" if isinstance(each, tuple) else str(each)


def _files(found: Foresight) -> Mapping[str, float]:
    """Of tables that several streams feed, all of them together."""
    names = {name for stream in found.streams for name in stream.files_an_hour}
    return {name: sum(stream.files_an_hour.get(name, 0.0) for stream in found.streams) for name in names}


# -- for machines -----------------------------------------------------------------------------------------


def _as_plain(found: Foresight) -> dict[str, Any]:
    files = _files(found)
    return {
        "code": code_of(found),
        "changed": found.changed,
        "namespaces": list(found.namespaces),
        "tables": [_table(each, found, files.get(each.after.name)) for each in found.tables],
        "streams": [_stream(each) for each in found.streams],
    }


def _table(table: Foreseen, found: Foresight, files: float | None) -> dict[str, Any]:
    after = table.after
    return {
        "table": after.name,
        "change": "make" if table.before is None else "change" if is_changed(table) else "none",
        "changes": [str(each) for each in table.changes],
        "columns": [
            {"name": each.name, "type": each.type, "required": each.required, "doc": each.doc} for each in after.columns
        ],
        "partitions": [str(each) for each in after.partitions],
        "sort": [str(each) for each in after.sort],
        "properties": dict(properties_of(table)),
        "notes": list(found.notes.get(after.name, ())),
        "files_an_hour_estimated": files,
    }


def _stream(stream: Outlook) -> dict[str, Any]:
    seen, refusal = stream.seen, stream.refusal
    return {
        "stream": stream.name,
        "refused": {"kind": type(refusal).__name__, "code": refusal.exit_code, "says": str(refusal)}
        if refusal
        else None,
        "records_seen": seen.offsets,
        "records_there": stream.there,
        "whole": stream.whole,
        "batches": seen.batches,
        "tables": list(stream.tables),
        "landed": seen.tally.total(LANDED),
        "dead": seen.tally.dead,
        "first_dead": {reason: vars(each) for reason, each in seen.examples.items()},
        **{outcome: seen.tally.total(outcome) for outcome in (FILTERED, DISCARDED, TRIMMED)},
        "notes": seen.notes,
    }
