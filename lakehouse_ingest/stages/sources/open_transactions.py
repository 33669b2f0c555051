"""Transactions that are open: how many offsets wait for their end, and which of them hang.

A reader of what is committed gets no further than the last stable offset, where the oldest open transaction of the
partition begins. A transaction that nobody ends any more holds the partition back for good. The lag does not show that:
it is counted to the last stable offset, and is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse_ingest.records import Offsets, TopicPartition

HANGS_S = 600.0  # ten times what a producer's transaction may take by default
FIND = "kafka-transactions.sh --bootstrap-server {brokers} find-hanging --topic {topic}"
ABORT = (
    "kafka-transactions.sh --bootstrap-server {brokers} abort --topic {topic} --partition {partition}"
    " --start-offset {stable}"
)


def uncommitted(ends: Offsets, high: Offsets) -> dict[TopicPartition, int]:
    """Of each partition the offsets from the last stable one to the high watermark."""
    return {at: max(0, high.get(at, end) - end) for at, end in ends.items()}


@dataclass(frozen=True)
class Hanging:
    """A transaction that should have ended by now; it began at `stable`, and so many `offsets` wait for its end."""

    topic: str
    partition: int
    stable: int
    offsets: int
    open_s: float

    def sentence(self, brokers: str) -> str:
        said: Mapping[str, object] = {
            "brokers": brokers,
            "topic": self.topic,
            "partition": self.partition,
            "stable": self.stable,
        }
        return (
            f"topic {self.topic} partition {self.partition} can't be read beyond offset {self.stable}: a transaction"
            f" that began there has been open for {self.open_s / 60:.0f} minutes, and {self.offsets} offsets wait for"
            f" its end; see `{FIND.format(**said)}`, and where its producer is gone `{ABORT.format(**said)}`"
        )


@dataclass
class _Held:
    stable: int
    since: float
    is_told: bool = False


@dataclass
class OpenTransactions:
    """Of one stream, as they are seen from time to time."""

    _held: dict[TopicPartition, _Held] = field(default_factory=dict)

    def see(self, moment: float, ends: Offsets, high: Offsets) -> list[Hanging]:
        """Those that are found to hang now; each of them once."""
        waiting = {at: offsets for at, offsets in uncommitted(ends, high).items() if offsets}
        self._held = {at: self._of(at, ends[at], moment) for at in waiting}
        found = []
        for at, held in self._held.items():
            if not held.is_told and (open_s := moment - held.since) >= HANGS_S:
                held.is_told = True
                found.append(Hanging(*at, held.stable, waiting[at], open_s))
        return found

    def _of(self, at: TopicPartition, stable: int, moment: float) -> _Held:
        before = self._held.get(at)
        return before if before and before.stable == stable else _Held(stable, moment)
