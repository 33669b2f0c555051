"""The outcomes of records, and their counts: a value that anything may add up, without Spark."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakehouse_ingest.records import Reason, TopicPartition

LANDED, TRIMMED, FILTERED, DISCARDED = "landed", "trimmed", "filtered", "discarded"
REASONS = frozenset(map(str, Reason))
OUTCOMES = (LANDED, TRIMMED, FILTERED, DISCARDED, *map(str, Reason))
HEADER, LENGTH = "traceparent", 55  # the W3C header with the span in which a record was sent
LOOKED_AT = 512  # about how many records of a batch we read the header of


@dataclass(frozen=True)
class Tally:
    """Counts by partition and outcome: landed, trimmed, filtered, discarded, or the reason of a dead-letter record."""

    counts: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    oldest_ms: int | None = None  # the lowest and the highest timestamp of the records
    newest_ms: int | None = None
    bytes: int = 0  # of the records' values
    event_ms: int | None = None  # the newest event time, if the caller wanted it
    traces: frozenset[str] = frozenset()  # spans in which some of the records were sent, if the caller wanted them

    def total(self, *outcomes: str) -> int:
        return sum(count for counts in self.counts.values() for outcome, count in counts.items() if outcome in outcomes)

    @property
    def received(self) -> int:
        return self.total(*OUTCOMES)

    @property
    def dead(self) -> dict[str, int]:
        reasons: Counter[str] = Counter()
        for counts in self.counts.values():
            reasons.update({outcome: count for outcome, count in counts.items() if outcome in REASONS})
        return dict(sorted(reasons.items()))

    def only(self, *outcomes: str) -> "Tally":
        kept = {at: {name: n for name, n in counts.items() if name in outcomes} for at, counts in self.counts.items()}
        return Tally(kept, self.oldest_ms, self.newest_ms)  # bytes are not counted by outcome

    def discarding(self) -> "Tally":
        """The same counts, with dead-letter records counted as discarded."""
        found: dict[TopicPartition, Counter[str]] = {}
        for at, counts in self.counts.items():
            found[at] = Counter()
            for outcome, count in counts.items():
                found[at][DISCARDED if outcome in REASONS else outcome] += count
        return replace(self, counts=found)

    @classmethod
    def sum(cls, tallies: Iterable["Tally"]) -> "Tally":
        found: dict[TopicPartition, Counter[str]] = {}
        oldest, newest, event, size, traces = [], [], [], 0, frozenset[str]()
        for each in tallies:
            for at, counts in each.counts.items():
                found.setdefault(at, Counter()).update(counts)
            oldest += [each.oldest_ms] if each.oldest_ms is not None else []
            newest += [each.newest_ms] if each.newest_ms is not None else []
            event += [each.event_ms] if each.event_ms is not None else []
            size += each.bytes
            traces |= each.traces
        return cls(found, min(oldest, default=None), max(newest, default=None), size, max(event, default=None), traces)
