"""Open transactions: how many offsets wait for them, and which of them hang.

A reader of committed records gets only up to the last stable offset, where the oldest open transaction of the partition
begins. A transaction that is never ended blocks the partition for good. The lag does not show that: it is counted up to
the last stable offset, and so it is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse_ingest.records import Offsets, TopicPartition

HANGS_S = 600.0  # ten times as long as a producer's transaction may take by default
FIND = "kafka-transactions.sh --bootstrap-server {brokers} find-hanging --topic {topic}"
ABORT = (
    "kafka-transactions.sh --bootstrap-server {brokers} abort --topic {topic} --partition {partition}"
    " --start-offset {stable}"
)


def uncommitted(ends: Offsets, high: Offsets) -> dict[TopicPartition, int]:
    """The number of offsets between the last stable offset and the high watermark, for each partition."""
    return {at: max(0, high.get(at, end) - end) for at, end in ends.items()}


@dataclass(frozen=True)
class Hanging:
    """A transaction that should have ended by now. It began at `stable`, and `offsets` are waiting for its end."""

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
            f" its end; run `{FIND.format(**said)}`, and if its producer is gone `{ABORT.format(**said)}`"
        )


@dataclass
class _Held:
    stable: int
    since: float
    is_reported: bool = False


@dataclass
class OpenTransactions:
    """The open transactions of one stream, looked at from time to time."""

    _held: dict[TopicPartition, _Held] = field(default_factory=dict)

    def see(self, moment: float, ends: Offsets, high: Offsets) -> list[Hanging]:
        """The transactions that hang by now. Each is returned once."""
        waiting = {at: offsets for at, offsets in uncommitted(ends, high).items() if offsets}
        self._held = {at: self._of(at, ends[at], moment) for at in waiting}
        found = []
        for at, held in self._held.items():
            if not held.is_reported and (open_s := moment - held.since) >= HANGS_S:
                held.is_reported = True
                found.append(Hanging(*at, held.stable, waiting[at], open_s))
        return found

    def _of(self, at: TopicPartition, stable: int, moment: float) -> _Held:
        before = self._held.get(at)
        return before if before and before.stable == stable else _Held(stable, moment)
