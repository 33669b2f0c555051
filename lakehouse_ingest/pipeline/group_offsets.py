"""Consumer group offsets, published so that lag tools work. Nothing of ours reads them back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.observe.events import GroupOffsetsNotPublished
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.stages.sources import Source

REFUSED_S = 60.0  # until it is tried again, and warned of again


class GroupOffsets:
    """Of one stream, for one start."""

    def __init__(
        self,
        source: Source,
        group: str,
        topics: Sequence[str],
        partitions: Mapping[str, Sequence[int]],
        every: float,
        watch: Watch,
        stream: str,
    ) -> None:
        self._source, self._group, self._every = source, group, every
        self._topics, self._partitions = topics, partitions
        self._watch, self._stream = watch, stream
        self._due = 0.0
        self.published: Offsets = {}

    def publish(self, complete: Offsets) -> None:
        """Now and then, where there is news; a refusal is warned of once a minute, and ends nothing."""
        if complete == self.published or monotonic() < self._due:
            return
        try:
            self._publish(complete)
        except LakehouseError as failure:
            self._due = monotonic() + REFUSED_S
            self._watch.emit(GroupOffsetsNotPublished(error=str(failure)))
        else:
            self._due = monotonic() + self._every

    def publish_last(self, complete: Offsets) -> None:
        """At the end of a start: nobody else comes to try it again."""
        with suppress(LakehouseError):
            self._publish(complete)

    def _publish(self, complete: Offsets) -> None:
        ours = {at: offset for at, offset in complete.items() if self._reads(*at)}
        with self._watch.span("acknowledge", self._stream):
            self._source.publish(ours, self._group)
        self.published = complete

    def _reads(self, topic: str, partition: int) -> bool:
        """What is left out of the settings may not be there any more."""
        return topic in self._topics and (topic not in self._partitions or partition in self._partitions[topic])
