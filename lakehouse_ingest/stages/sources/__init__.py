"""Sources: where records come from. Each has one folder, and one line here. Only the chosen one is imported.

Another package offers a source by an entry point of the group below: a class with the members of `Source`. It reads its
own keys from `source.options`. The suite in `lakehouse_ingest.testing.sources` proves it.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from lakehouse_ingest import plugins
from lakehouse_ingest.records import Offsets, SourceIdentity
from lakehouse_ingest.settings import SourceSettings, StreamSettings
from lakehouse_ingest.stages.records import Records, Share

SOURCES = {"kafka": "lakehouse_ingest.stages.sources.kafka.source:Kafka"}
GROUP = "lakehouse_ingest.sources"


@runtime_checkable
class Reader(Protocol):
    """Describes how a task reads a source. It is pickled with the task, so it holds no client.

    It raises `TryAgain` for an outage, and `SettingsRefused` for what a person must fix. Then the share counts as not
    read. If it ends without an error, then every record of the share was given once.
    """

    def read(self, share: Share) -> Iterator[Records]:
        """The records of one share, in the order of their offsets."""

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        """The records of several shares. Those of one partition come in the order of their offsets."""


@runtime_checkable
class Source(Protocol):
    """The topics of one stream. A topic has partitions, and the offsets of a partition's records only rise.

    If `settings.partitions` lists partitions of a topic, every method behaves as if there were no others. A method
    raises `TryAgain` for an outage, and `SettingsRefused` for what a person must fix; nothing else on purpose.
    """

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        """Refuse settings that are wrong in themselves. Don't wait for a server here."""

    def identity(self) -> SourceIdentity:
        """The id of the cluster, and an id of each topic that a recreated topic would not have; "" if there is none."""

    def matching(self, pattern: str) -> list[str]:
        """All topics whose whole names match the pattern."""

    def bounds(self) -> tuple[Offsets, Offsets]:
        """For each partition, the first offset that is still there, and the next one to be written."""

    def ends(self) -> Offsets:
        """For each partition, the offset up to which a reader gets now."""

    def since(self, moment: dt.datetime) -> Offsets:
        """For each partition, the offset of its first record at or after that time. Leave out those that have none."""

    def reader(self, group: str, epoch: int) -> Reader:
        """How tasks read the records. `group` is a name for the brokers, `epoch` the number of the start."""

    def publish(self, offsets: Offsets, group: str) -> None:
        """Publish the group offsets for people who watch the source. We never read them."""

    def probe(self, group: str) -> str:
        """Try everything that a run does with the source, and say in a sentence what is there."""


def chosen(settings: SourceSettings) -> type[Source]:
    """The class that `source.kind` names."""
    return cast("type[Source]", plugins.load("source.kind", settings.kind, SOURCES, GROUP, Source))


def of_stream(settings: SourceSettings, stream: StreamSettings) -> Source:
    """The source with the topics of the stream. A pattern is matched now."""
    kind, pattern = chosen(settings), stream.topic_pattern
    return kind(settings, kind(settings, ()).matching(pattern) if pattern else stream.topics)
