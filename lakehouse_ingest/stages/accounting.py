"""Counts the outcomes of a batch's records, in the same pass that writes them.

One aggregate serves any number of partitions: a histogram with a bin for each pair of partition and outcome. It is
exact as long as there are as many bins as pairs, and costs 0.07 µs for each row.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import FAULT, RECORD, Offsets, Range, Reason, TopicPartition

LANDED, TRIMMED, FILTERED, DISCARDED = "landed", "trimmed", "filtered", "discarded"
REASONS = frozenset(map(str, Reason))
OUTCOMES = (LANDED, TRIMMED, FILTERED, DISCARDED, *map(str, Reason))
COUNTS, OLDEST, NEWEST, BYTES, EVENT, TRACES = "counts", "oldest", "newest", "bytes", "event", "traces"
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

    def received_from(self, at: TopicPartition) -> int:
        return sum(self.counts.get(at, {}).values())

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


def number_of(outcome: str) -> Column:
    return F.lit(OUTCOMES.index(outcome))


def by_fault() -> Column:
    """The number of a row's outcome: landed, or the reason of its fault."""
    reason = F.array_position(F.lit(list(OUTCOMES)), F.col(FAULT)["reason"]).cast("int") - 1
    return F.when(F.col(FAULT).isNull(), number_of(LANDED)).otherwise(reason)


def count(rows: DataFrame, batch: Range, outcome: Column, *, traces: bool = False) -> Tally:
    """Count the rows now, in a pass of its own."""
    return _tally(rows.agg(*_counts(batch, outcome), *_traces(batch, wanted=traces)).collect()[0].asDict(), batch)


def counted(
    rows: DataFrame, batch: Range, outcome: Column, event_time: Column | None = None, *, traces: bool = False
) -> tuple[DataFrame, Callable[[], Tally]]:
    """Returns the rows and a function that gives their counts after the write.

    The counts are empty if the action failed, or if a shuffle follows.
    """
    observation = Observation()
    newest = [] if event_time is None else [F.unix_millis(F.max(event_time)).alias(EVENT)]
    observed = rows.observe(observation, *_counts(batch, outcome), *newest, *_traces(batch, wanted=traces))

    def tally() -> Tally:
        try:
            return _tally(observation.get, batch)
        except Py4JJavaError as failure:
            # Spark's optimizer removes the counting if it finds that there are no rows.
            if rows.isEmpty():
                return Tally()
            raise TryAgain("Spark has not counted the records of a batch, so its outcome is unknown") from failure

    return observed, tally


def _counts(batch: Range, outcome: Column) -> list[Column]:
    places = sorted(batch.end)
    record = F.col(RECORD)
    first = {topic: index for index, (topic, number) in reversed(list(enumerate(places)))}
    numbers = {topic: [number for name, number in places if name == topic] for topic in first}
    place = F.lit(None).cast("int")
    for topic, base in first.items():
        within = F.array_position(F.lit(numbers[topic]), record["partition"]).cast("int") - 1
        if numbers[topic] == list(range(len(numbers[topic]))):
            within = record["partition"]
        place = F.when(record["topic"] == topic, within + base).otherwise(place)
    return [
        F.histogram_numeric(place * len(OUTCOMES) + outcome, F.lit(len(places) * len(OUTCOMES))).alias(COUNTS),
        F.unix_millis(F.min(record["timestamp"])).alias(OLDEST),
        F.unix_millis(F.max(record["timestamp"])).alias(NEWEST),
        F.sum(F.octet_length(record["value"])).alias(BYTES),
    ]


def _traces(batch: Range, *, wanted: bool) -> list[Column]:
    """Look at a sample of the records, so that a batch without such headers costs hardly more than a division a row."""
    if not wanted:
        return []
    record = F.col(RECORD)
    value = F.get(F.filter(record["headers"], lambda each: each["key"] == HEADER), F.lit(0))["value"]
    whole = F.when(F.octet_length(value) == LENGTH, value.cast("string"))
    return [F.collect_set(F.when(record["offset"] % max(1, len(batch) // LOOKED_AT) == 0, whole)).alias(TRACES)]


def _tally(observed: Mapping[str, Any], batch: Range) -> Tally:
    places = sorted(batch.end)
    counts: dict[TopicPartition, Counter[str]] = {}
    for bin_ in observed[COUNTS] or ():
        index, outcome = divmod(round(bin_["x"]), len(OUTCOMES))
        counts.setdefault(places[index], Counter())[OUTCOMES[outcome]] += round(bin_["y"])
    traces = frozenset(observed.get(TRACES) or ())
    return Tally(counts, observed[OLDEST], observed[NEWEST], observed[BYTES] or 0, observed.get(EVENT), traces)


def beyond(at: Column, offsets: Offsets) -> Column:
    """Whether the coordinates lie at or beyond the offset of their partition. False if the partition has no offset.

    A map costs the same for any number of partitions.
    """
    if not offsets:
        return F.lit(False)
    key = F.concat(at["topic"], F.lit("/"), at["partition"].cast("string"))
    keys = F.lit([f"{topic}/{number}" for topic, number in offsets])
    ends = F.lit(list(offsets.values())).cast("array<bigint>")
    return F.coalesce(at["offset"] >= F.try_element_at(F.map_from_arrays(keys, ends), key), F.lit(False))
