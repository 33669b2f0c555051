"""Which pipeline reads which partition, if several feed one table from one topic. Each record is written by one.

The marks of another pipeline, which every commit carries, say what it has committed. The settings that its last start
stored in the batch log say what it reads. This looks only at topics for which `source.partitions` lists partitions.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import MARK, SETTINGS
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Offsets, SourceIdentity, TopicPartition, is_same_topic
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.settings.field_types import ANY_TOPIC
from lakehouse_ingest.tables import Position


def left(record: Position, places: Sequence[Position], now: SourceNow, done: Offsets) -> dict[TopicPartition, int]:
    """The positions of partitions of our topics that are not read any more. Every commit has to keep them."""
    found = {at: offset for at, offset in done.items() if at[0] in now.identity.topics and at not in now.high}
    held = ledger.highest(place.held for place in (record, *places))
    for at, offset in found.items():
        if held.get(at, 0) > offset:
            raise SettingsRefused(
                f"`source.partitions` leaves out {_named(at)} in the middle of a batch; start once more with it and"
                " --until-latest, then leave it out"
            )
    return found


@dataclass(frozen=True)
class Other:
    """Another pipeline, as far as our tables know it."""

    name: str
    settings: Mapping[str, Any] | None  # None: the batch log does not know it
    marks: list[Mark] = field(default_factory=list)
    tables: dict[TopicPartition, str] = field(default_factory=dict)

    def reads(self, at: TopicPartition) -> bool:
        """Whether its last start read the partition. If nothing is known, assume so."""
        if self.settings is None:
            return True
        topics = self.settings.get("topics") or ()
        if not (re.fullmatch(topics, at[0]) if isinstance(topics, str) else at[0] in topics):
            return False
        stated = self.states(at[0])
        return not stated or at[1] in stated

    def states(self, topic: str) -> Sequence[int]:
        of_topics: Mapping[str, Sequence[int]] = (self.settings or {}).get("source.partitions", {})
        return of_topics.get(topic, ())


def stated(pipeline: str, record: Position, source: SourceSettings) -> Collection[str]:
    """The topics of which this start or the last one reads only listed partitions."""
    before = json.loads(record.carried.get(f"{SETTINGS}{pipeline}", "{}")).get("source.partitions", {})
    return {*source.partitions, *before}


def taken_over(
    pipeline: str, record: Position, tables: Sequence[Position], now: SourceNow, done: Offsets, source: SourceSettings
) -> dict[TopicPartition, int]:
    """Where to begin in partitions that another pipeline has left.

    A partition that the other pipeline still reads, or went on with after we left it, is refused.
    """
    found: dict[TopicPartition, int] = {}
    apart = stated(pipeline, record, source)
    for other in _others(pipeline, record, tables, now.identity):
        held, complete = (ledger.highest(of) for of in ([m.held() for m in other.marks], _complete(other, record)))
        for at in sorted(now.high.keys() & other.tables.keys()):
            shared = at[0] in apart or other.states(at[0])
            if not shared or (at not in done and _is_said(source, at)):
                continue
            if other.reads(at):
                raise SettingsRefused(
                    f"`source.partitions`: the pipeline {other.name} reads {_named(at)} into {other.tables[at]} as"
                    " well; take the partition out there and start that pipeline once, or take it out here"
                )
            if at not in done:
                found[at] = max(_begins(other, at, held[at], complete.get(at, 0), now), found.get(at, 0))
            elif held[at] > done[at]:
                raise SettingsRefused(
                    f"`source.partitions`: {_named(at)} went on in the pipeline {other.name} since this one left it;"
                    " leave the partition there, or read it under another `name`"
                )
    return found


def _others(pipeline: str, record: Position, tables: Sequence[Position], identity: SourceIdentity) -> Iterator[Other]:
    names = {key.removeprefix(MARK) for place in tables for key in place.carried if key.startswith(MARK)}
    for name in sorted(names - {pipeline}):
        meant = record.carried.get(f"{SETTINGS}{name}")
        other = Other(name, json.loads(meant) if meant else None)
        for place in (record, *tables):
            if (mark := ledger.from_summary(place.carried, name)) is None:
                continue
            ours = {at for at in mark.held() if _is_same_log(mark.source, identity, at[0])}
            if place is not record:
                other.tables.update(dict.fromkeys(ours, place.table))
            other.marks.append(mark)
        newest = max(mark.token.generation for mark in other.marks)
        other.marks[:] = [mark for mark in other.marks if mark.token.generation == newest]
        yield other


def _complete(other: Other, record: Position) -> list[Offsets]:
    """What its own start would take as complete: in the batch log, `next` is written after all commits of a batch."""
    noted = ledger.from_summary(record.carried, other.name)
    return [*([noted.held()] if noted in other.marks and noted else []), *(mark.complete for mark in other.marks)]


def _begins(other: Other, at: TopicPartition, held: int, complete: int, now: SourceNow) -> int:
    if held > complete:
        raise NeedsOperator(
            f"the pipeline {other.name} has left {_named(at)} in the middle of a batch; let it read the partition once"
            " more with --until-latest, or set its offset in `source.start`"
        )
    if not now.low[at] <= held <= now.high[at]:
        raise NeedsOperator(
            f"the pipeline {other.name} has read {_named(at)} up to {held}, and it holds {now.low[at]} to"
            f" {now.high[at] - 1} now; set its offset in `source.start`"
        )
    return held


def _is_same_log(then: SourceIdentity, now: SourceIdentity, topic: str) -> bool:
    before, after = then.topics.get(topic, ""), now.topics.get(topic, "")
    return then.cluster == now.cluster and (before == after or is_same_topic(before, after))


def _is_said(source: SourceSettings, at: TopicPartition) -> bool:
    """Whether the settings give an offset for this partition."""
    places = (source.seek, source.start if isinstance(source.start, Mapping) else {})
    return any(at[1] in positions.get(at[0], positions.get(ANY_TOPIC, {})) for positions in places)


def _named(at: TopicPartition) -> str:
    return f"partition {at[1]} of topic {at[0]}"
