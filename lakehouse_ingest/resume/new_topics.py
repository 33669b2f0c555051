"""Where the stream begins to read a new topic, according to `source.seek` and `source.start`."""

import datetime as dt
from collections.abc import Callable, Collection, Mapping

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger.marks import no_further
from lakehouse_ingest.records import Offsets, TopicPartition
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.settings.field_types import ANY_TOPIC, Positions

NOWHERE: Offsets = {}


def beginning(
    settings: SourceSettings,
    low: Offsets,
    high: Offsets,
    since: Callable[[dt.datetime], Offsets],
    known: Collection[TopicPartition] = (),
    ends: Offsets = NOWHERE,
) -> Offsets:
    """The first offset to read, for each partition in `high`.

    `low` and `high` are the bounds of new topics, or of new partitions where `source.partitions` lists them; other
    partitions are `known`. `ends` is how far a reader gets. Never begin beyond it: records of a transaction that is
    open now become readable later, and would be skipped.
    """
    match settings.start:
        case "earliest":
            start = low
        case "latest":
            start = no_further(high, ends)
        case dt.datetime() as moment:
            start = no_further({**high, **(since(moment) if high else {})}, ends)
        case positions:
            start = {**low, **_within(_chosen(settings, positions, "start", low, known), low, high, "start", 0)}
    # `seek` names the last record that is done, so reading begins one offset later.
    seek = _within(_chosen(settings, settings.seek, "seek", low, known), low, high, "seek", 1)
    return {at: seek.get(at, start[at]) for at in high}


def _chosen(
    settings: SourceSettings, positions: Positions, setting: str, there: Offsets, known: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that the setting gives to partitions that are there and not yet `known`."""
    found = {}
    for topic in {topic for topic, _ in there}:
        for number, offset in positions.get(topic, positions.get(ANY_TOPIC, {})).items():
            if (topic, number) in known:
                continue
            if number not in settings.partitions.get(topic, (number,)):
                raise SettingsRefused(
                    f"`source.{setting}` names partition {number} of topic {topic}, which `source.partitions`"
                    " leaves out"
                )
            if (topic, number) not in there:
                last = max(number for name, number in there if name == topic)
                raise SettingsRefused(
                    f"`source.{setting}` names partition {number} of topic {topic}, whose partitions are 0 to {last}"
                )
            found[topic, number] = offset
    return found


def _within(
    chosen: Mapping[TopicPartition, int], low: Offsets, high: Offsets, setting: str, further: int
) -> dict[TopicPartition, int]:
    for (topic, number), offset in chosen.items():
        first, end = low[topic, number], high[topic, number]
        if not first <= offset + further <= end:
            held = f"holds {first} to {end - 1}" if first < end else f"is empty and goes on at {end}"
            raise SettingsRefused(
                f"`source.{setting}` names offset {offset} of topic {topic} partition {number}, which {held}"
            )
    return {at: offset + further for at, offset in chosen.items()}


def refuse_unread(settings: SourceSettings, is_read: Callable[[str], bool]) -> None:
    """Refuse topics that no stream reads, because a mistyped name would have no effect."""
    start = settings.start if isinstance(settings.start, Mapping) else {}
    names = {"start": start, "seek": settings.seek, "partitions": settings.partitions}
    for setting, named in names.items():
        for topic in named:
            if topic != ANY_TOPIC and not is_read(topic):
                raise SettingsRefused(f"`source.{setting}` names the topic {topic}, which no stream reads")


def refuse_unkept(settings: SourceSettings, there: Collection[TopicPartition]) -> None:
    """Refuse `source.partitions` if the source ignores it, which a plug-in may do."""
    for topic, number in there:
        if number not in settings.partitions.get(topic, (number,)):
            raise SettingsRefused(
                f"sources of the kind {settings.kind} ignore `source.partitions`, which leaves out partition"
                f" {number} of topic {topic}; remove that setting"
            )
