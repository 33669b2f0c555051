"""Settings that decide what is written: kept with each start, and compared by the next one."""

import hashlib
import json
from collections.abc import Mapping

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import Settings, StreamSettings, TableSettings


def meaning(settings: Settings, stream: StreamSettings) -> dict[str, object]:
    """What a start leaves for the next one to compare with, under the settings' own names."""
    meant: dict[str, object] = {
        # Those that a pattern finds become more, or fewer, without a change of anybody's mind.
        "topics": stream.topic_pattern or sorted(stream.topics),
        "source.kind": settings.source.kind,
        "source.partitions": {topic: sorted(numbers) for topic, numbers in settings.source.partitions.items()},
        "namespace": settings.catalog.namespace,
        "dead_letters": settings.dead_letters.table,
        "format": stream.format,
        "type_from": stream.type_from,
        "keep_types": stream.keep_types,
        "tables": sorted(table.table for table in stream.tables),
    }
    for table in stream.tables:
        # Entries may share a template; then it is what they take that tells them apart.
        of = ",".join((table.table, *sorted(table.topics), *sorted(table.types))) if _is_shared(table, stream) else ""
        meant |= {
            f"tables.{of or table.table}.{key}": value
            for key, value in {
                "topics": sorted(table.topics),
                "types": sorted(table.types),
                "event_time": table.event_time,
                "event_time_unit": table.event_time_unit,
                "columns": {each.name: f"{each.type}{' required' if each.required else ''}" for each in table.columns},
                "hints": dict(table.hints),
                "contract": table.contract or "evolve",
                "contracts": dict(table.contracts),
            }.items()
        }
    return meant


def _is_shared(table: TableSettings, stream: StreamSettings) -> bool:
    return sum(other.table == table.table for other in stream.tables) > 1


def hash_of(meant: Mapping[str, object]) -> str:
    return hashlib.sha256(as_text(meant).encode()).hexdigest()[:12]


def as_text(meant: Mapping[str, object]) -> str:
    return json.dumps(meant, sort_keys=True, separators=(",", ":"))


def compare(before: str | None, now: Mapping[str, object], *, accepted: bool) -> list[str]:
    """Harmless changes, to be noted; a change of meaning stops the start unless it was accepted."""
    if before is None:
        return []
    # Who wrote nothing of partitions read them all.
    then: dict[str, object] = {"source.partitions": {}, **json.loads(before)}
    changed = [key for key in now if key in then and then[key] != now[key]]
    grave = [key for key in changed if not _harmless(key, then[key], now[key])]
    if grave and not accepted:
        key = grave[0]
        raise SettingsRefused(
            f"`{key}` was {json.dumps(then[key])} when this pipeline last ran and is now {json.dumps(now[key])}:"
            " change it back, start under another `name` into other tables, or run once with --accept-changes"
        )
    return [f"{key}: {json.dumps(then[key])} -> {json.dumps(now[key])}" for key in changed]


def _harmless(key: str, then: object, now: object) -> bool:
    """Whether it means nothing for the records that have landed."""
    if key == "source.partitions":
        return False
    if key.endswith((".contract", ".contracts")):
        return True  # what has landed stays as it is
    match then, now:
        # A column more, or a hint more. A topic or a table more begins where it has to; one less would be left behind.
        case dict(), dict():
            return then.items() <= now.items()
        case list(), list() if key in ("topics", "tables"):
            return set(then) <= set(now)
    # Where records go from now on may change.
    return key == "keep_types" or key.endswith((".topics", ".types"))
