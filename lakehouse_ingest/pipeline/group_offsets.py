"""Consumer group offsets, published so that lag tools work. Nothing of ours reads them back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.observe.events import GroupOffsetsNotPublished
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.stages.sources import Source

REFUSED_S = 60.0  # how long to wait after a refusal, before the next attempt and warning


class GroupOffsets:
    """The published group offsets of one stream, for one start."""

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
        """Publish offsets that have changed, at most every `every` seconds.

        A refusal is warned about once a minute, and stops nothing.
        """
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
        """Publish at the end of a start, whenever the last time was. There is no later attempt."""
        with suppress(LakehouseError):
            self._publish(complete)

    def _publish(self, complete: Offsets) -> None:
        ours = {at: offset for at, offset in complete.items() if self._reads(*at)}
        with self._watch.span("acknowledge", self._stream):
            self._source.publish(ours, self._group)
        self.published = complete

    def _reads(self, topic: str, partition: int) -> bool:
        """True if the settings read this partition. Others may no longer exist."""
        return topic in self._topics and (topic not in self._partitions or partition in self._partitions[topic])
