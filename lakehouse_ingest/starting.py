"""Where a start begins, from nothing but what the tables and the source say now. Nothing is guessed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakehouse_ingest.errors import LedgerUnclear, SettingsRefused, SourceChanged, TableChanged
from lakehouse_ingest.ledger import SourceIdentity, highest
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Place


@dataclass(frozen=True)
class SourceNow:
    """What the source said at the start."""

    identity: SourceIdentity
    low: Offsets
    high: Offsets


def begin(record: Place, landings: Iterable[Place], source: SourceNow, start: str) -> Offsets:
    """The map to start reading from: the highest `complete` of all tables, and for what is new the settings' start."""
    places = list(landings)
    for place in (record, *places):
        if place.mark:
            _same_source(place, place.mark.source, source.identity)
    # In the batch record `next` is written after all landings, so there it is complete as well.
    complete = highest([record.held, *(place.mark.complete for place in places if place.mark)])
    if not complete and not record.known:
        raise LedgerUnclear(
            f"the history of {record.table} was expired with the mark that says what was read, and no table holds one:"
            " compare their `_source` columns with the topics, then start under another `name`"
        )
    for place in places:
        _settled(place, complete, has_record=record.mark is not None)
    held = highest([complete, *(place.held for place in places)])
    for at, offset in held.items():
        if at in source.high and offset > source.high[at]:
            raise SourceChanged(
                f"{_named(at)} ends at offset {source.high[at]}, the tables hold it up to {offset}: the broker lost"
                " records or the topic was made anew; start under another `name`, or restore the topic"
            )
    for at, offset in complete.items():
        if at in source.low and offset < source.low[at]:
            raise SourceChanged(
                f"{_named(at)} has lost the offsets {offset} to {source.low[at] - 1} before they were read"
                " (retention): restore them, or start under another `name`"
            )
    # The setting is for topics that no table holds: a new partition of a known one is read from its first record.
    topics = {topic for topic, _ in complete}
    fresh = source.high if start == "latest" else source.low
    return {at: complete.get(at, (source.low if at[0] in topics else fresh)[at]) for at in source.high}


def _same_source(place: Place, then: SourceIdentity, now: SourceIdentity) -> None:
    if then.cluster and now.cluster and then.cluster != now.cluster:
        raise SourceChanged(
            f"the table {place.table} was fed from Kafka cluster {then.cluster}, this one is {now.cluster}:"
            " mend `source.brokers`, or start under another `name`"
        )
    for topic, topic_id in now.topics.items():
        before = then.topics.get(topic)
        if before and topic_id and before != topic_id:
            raise SourceChanged(
                f"the topic {topic} was deleted and made anew (id {before} is now {topic_id}), so its offsets mean"
                " other records: start under another `name` to read it from its beginning"
            )


def _settled(place: Place, complete: Offsets, *, has_record: bool) -> None:
    """A table whose history was pruned without a mark: the batch record decides, or nobody can."""
    if place.known:
        return
    beyond = {at for at, offset in place.loose.items() if offset > complete.get(at, -1)}
    if not has_record or not place.loose or beyond:
        raise LedgerUnclear(
            f"the history of {place.table} was expired with the mark that says what it holds, and the batch record"
            " can't tell either: compare its `_source` column with the topic, then start under another `name`"
        )


def _named(at: tuple[str, int]) -> str:
    return f"topic {at[0]} partition {at[1]}"


# -- settings that change the meaning of what is written ---------------------------------------------------


def meaning(settings: Settings, tables: Mapping[str, str | None]) -> dict[str, object]:
    """What a start leaves for the next one to compare with; `tables` by name with their uuid, None while absent."""
    (stream,) = settings.streams
    (table,) = stream.tables
    return {
        "topics": sorted(stream.topics),
        "table": table.table,
        "namespace": settings.catalog.namespace,
        "dead_letters": settings.dead_letters.table,
        "event_time": table.event_time,
        "event_time_unit": table.event_time_unit,
        "columns": {each.name: f"{each.type}{' required' if each.required else ''}" for each in table.columns},
        "tables": dict(sorted(tables.items())),
    }


def hash_of(meant: Mapping[str, object]) -> str:
    return hashlib.sha256(
        as_text({key: value for key, value in meant.items() if key != "tables"}).encode()
    ).hexdigest()[:12]


def as_text(meant: Mapping[str, object]) -> str:
    return json.dumps(meant, sort_keys=True, separators=(",", ":"))


def compare(before: str | None, now: Mapping[str, object], *, accepted: bool) -> list[str]:
    """Harmless changes, to be noted; a change of meaning stops the start unless it was accepted."""
    if before is None:
        return []
    then: dict[str, object] = json.loads(before)
    _same_tables(then, now)
    changed = [key for key in now if key != "tables" and key in then and then[key] != now[key]]
    grave = [key for key in changed if not _harmless(key, then[key], now[key])]
    if grave and not accepted:
        key = grave[0]
        raise SettingsRefused(
            f"`{key}` was {json.dumps(then[key])} when this pipeline last ran and is now {json.dumps(now[key])}:"
            " change it back, start under another `name`, or run once with --accept-changes"
        )
    return [f"{key}: {json.dumps(then[key])} -> {json.dumps(now[key])}" for key in changed]


def _harmless(key: str, then: object, now: object) -> bool:
    # A column more, or columns where the data decided, judge no record anew that has landed.
    if key == "columns" and isinstance(then, dict) and isinstance(now, dict):
        return then.items() <= now.items()
    # A topic more is read from its start; a topic less would leave its table behind unseen.
    return key == "topics" and isinstance(then, list) and isinstance(now, list) and set(then) <= set(now)


def _same_tables(then: Mapping[str, object], now: Mapping[str, object]) -> None:
    before, after = then.get("tables"), now.get("tables")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    for name, uuid in before.items():
        if uuid and name in after and after[name] != uuid:
            found = f"was replaced (uuid {uuid} is now {after[name]})" if after[name] else "was dropped"
            raise TableChanged(
                f"the table {name} {found} since this pipeline last ran, and what it held is not read again:"
                " restore it, or start under another `name` to fill a new one from the beginning"
            )
