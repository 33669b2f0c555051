"""Settings that decide what is written. Each start stores them, and the next one compares them with its own."""

import hashlib
import json
from collections.abc import Mapping

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import Settings, StreamSettings, TableSettings


def meaning(settings: Settings, stream: StreamSettings) -> dict[str, object]:
    """The settings that a start stores for the next one to compare, under their own names."""
    meant: dict[str, object] = {
        # The topics that a pattern matches come and go without a change of the settings, so store the pattern.
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
        # Entries may share a template; then their topics and types distinguish them.
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
    """The changes that are worth a note. A change of meaning raises, unless it was accepted."""
    if before is None:
        return []
    # Settings that were stored before `source.partitions` existed mean "all partitions".
    then: dict[str, object] = {"source.partitions": {}, **json.loads(before)}
    changed = [key for key in now if key in then and then[key] != now[key]]
    grave = [key for key in changed if not _harmless(key, then[key], now[key])]
    if grave and not accepted:
        key = grave[0]
        raise SettingsRefused(
            f"`{key}` was {json.dumps(then[key])} when this pipeline last ran and is now {json.dumps(now[key])};"
            " change it back, use another `name` with other tables, or run once with --accept-changes"
        )
    return [f"{key}: {json.dumps(then[key])} -> {json.dumps(now[key])}" for key in changed]


def _harmless(key: str, then: object, now: object) -> bool:
    """Whether rows that are already written would be the same under the new setting."""
    if key == "source.partitions":
        return False
    if key.endswith((".contract", ".contracts")):
        return True  # written rows stay as they are
    match then, now:
        # One more column or hint is harmless. One more topic or table begins where it has to. One less is not harmless:
        # its records would be left unread.
        case dict(), dict():
            return then.items() <= now.items()
        case list(), list() if key in ("topics", "tables"):
            return set(then) <= set(now)
    # Which table future records go to may change.
    return key == "keep_types" or key.endswith((".topics", ".types"))
