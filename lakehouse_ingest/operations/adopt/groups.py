"""A Kafka consumer group: what it has committed is the next offset to read of each partition.

Iceberg's sink for Kafka Connect works in two steps. One transaction commits the offsets that it has read, and sends the
files that it has written to its control topic. Its coordinator reads that topic, commits the files to the tables, and
then commits how far it has come to a group of its own. So once the sink is stopped, the two groups say whether files
were handed over that are in no table.
"""

import json
from collections.abc import Sequence

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.operations.adopt import Origin
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.sources.groups import Grouped

COORDINATOR = "-coord"  # what the coordinator's group adds to the name of the sink's group
# Iceberg's AvroEncoderUtil writes an event of the control topic as this, its schema, and then its fields.
MAGIC = b"\xc2\x01"
FIELDS = ("id", "type", "timestamp")  # the first of them; the fourth is the group
DATA_WRITTEN = 1


def of_group(source: Source, topics: Sequence[str], group: str) -> Origin | None:
    """None if the group has read none of these topics."""
    asked = _asked(source)
    _refuse_who_reads(asked, group)
    offsets = {at: offset for at, offset in asked.committed(group).items() if at[0] in topics}
    trusted = ("that the tables hold all records which the group has committed, and nothing beyond",)
    return Origin(f"what the group {group} has committed", offsets, trusted) if offsets else None


def of_sink(settings: SourceSettings, source: Source, topics: Sequence[str], control: str, group: str) -> Origin | None:
    """The same for a sink of Kafka Connect. It is refused while files that it has handed over are in no table."""
    if (found := of_group(source, topics, group)) is None:
        return None
    _refuse_who_reads(_asked(source), f"{group}{COORDINATOR}")
    if waiting := handed_over(settings, control, group):
        raise NeedsOperator(
            f"the sink {group} has handed over {waiting} times what is in no table yet, as far as is known: start it,"
            " wait for a commit, stop it again; or give --from-file"
        )
    return Origin(
        f"what the Kafka Connect sink {group} has committed",
        found.offsets,
        ("that the sink is stopped for good: we can't fence it",),
    )


def handed_over(settings: SourceSettings, control: str, group: str) -> int:
    """How often the sink has written files since the last commit of its coordinator."""
    source = sources.chosen(settings)(settings, [control])
    asked, (low, _) = _asked(source), source.bounds()
    done = asked.committed(f"{group}{COORDINATOR}")
    start = {at: max(first, done.get(at, first)) for at, first in low.items()}
    count = 0
    for value in asked.values_from(start, group):
        try:
            kind, sender = event(value)
        except (ValueError, IndexError, KeyError, TypeError) as strange:
            raise NeedsOperator(
                f"the topic {control} holds a record that is no known event of Iceberg's sink: give --from-file"
            ) from strange
        count += (kind, sender) == (DATA_WRITTEN, group)
    return count


def control_topic(source: Source, written: str) -> tuple[str, str] | None:
    """Topic and group of `<control topic>.<group>`. Both may have dots, so the topic is the longest that exists."""
    there = {topic for topic in source.matching(".*") if written.startswith(f"{topic}.")}
    topic = max(there, key=len, default=None)
    return (topic, written.removeprefix(f"{topic}.")) if topic else None


def event(value: bytes) -> tuple[int, str]:
    """The kind of an event, and the group of the sink that sent it. Raises ValueError or the like for anything else."""
    if not value.startswith(MAGIC):
        raise ValueError("another encoding")
    at = len(MAGIC) + 2
    length = int.from_bytes(value[len(MAGIC) : at], "big")
    first, *others = json.loads(value[at : at + length])["fields"]
    if tuple(each["name"] for each in (first, *others[:2])) != FIELDS:
        raise ValueError("other fields")
    at += length + first["type"]["size"]
    kind, at = _number(value, at)
    _, at = _number(value, at)
    size, at = _number(value, at)
    return kind, value[at : at + size].decode()


def _number(value: bytes, at: int) -> tuple[int, int]:
    """Reads Avro's int or long: seven bits in each byte, the lowest first, zigzag."""
    found = shift = 0
    while True:
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), at


def _refuse_who_reads(source: Grouped, group: str) -> None:
    if members := source.members(group):
        raise NeedsOperator(
            f"the group {group} has {members} members: stop its readers, so that its offsets no longer move"
        )


def _asked(source: Source) -> Grouped:
    if not isinstance(source, Grouped):
        raise SettingsRefused("this `source.kind` has no consumer groups: give --from-file")
    return source
