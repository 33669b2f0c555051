"""Where each record of a batch went, counted in the pass that writes it.

One aggregate does it for any number of partitions: a histogram with a bin for every pair of partition and
outcome, which is exact as long as there are as many bins as pairs. It costs 0.07 µs a row.
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
HEADER, LENGTH = "traceparent", 55  # what W3C calls the header that names the span of who has sent a record
LOOKED_AT = 512  # records of a batch, at most and about, whose header is read


@dataclass(frozen=True)
class Tally:
    """Counts by partition and outcome: landed, trimmed (held before), filtered, discarded, or a reason of the dead."""

    counts: Mapping[TopicPartition, Mapping[str, int]] = field(default_factory=dict)
    oldest_ms: int | None = None  # the broker's time of the first and the last record
    newest_ms: int | None = None
    bytes: int = 0  # of the records' values
    event_ms: int | None = None  # the newest event time, where it was asked for
    traces: frozenset[str] = frozenset()  # spans in which some of the records were sent, where they were asked for

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
        return Tally(kept, self.oldest_ms, self.newest_ms)  # of how many bytes these were nothing tells

    def discarding(self) -> "Tally":
        """The same, where what is dead is not kept."""
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
    """The number of a row's outcome once its fate is known."""
    reason = F.array_position(F.lit(list(OUTCOMES)), F.col(FAULT)["reason"]).cast("int") - 1
    return F.when(F.col(FAULT).isNull(), number_of(LANDED)).otherwise(reason)


def count(rows: DataFrame, batch: Range, outcome: Column, *, traces: bool = False) -> Tally:
    """Goes over the rows at once."""
    return _tally(rows.agg(*_counts(batch, outcome), *_traces(batch, wanted=traces)).collect()[0].asDict(), batch)


def counted(
    rows: DataFrame, batch: Range, outcome: Column, event_time: Column | None = None, *, traces: bool = False
) -> tuple[DataFrame, Callable[[], Tally]]:
    """The same rows, and their counts, to be asked for when they have been written: of a failed action they are
    nothing, and so they are where there is a shuffle after them."""
    observation = Observation()
    newest = [] if event_time is None else [F.unix_millis(F.max(event_time)).alias(EVENT)]
    observed = rows.observe(observation, *_counts(batch, outcome), *newest, *_traces(batch, wanted=traces))

    def tally() -> Tally:
        try:
            return _tally(observation.get, batch)
        except Py4JJavaError as failure:
            # Spark leaves the counting out where it finds that there is nothing to count.
            if rows.isEmpty():
                return Tally()
            raise TryAgain("Spark has not counted the records of a batch") from failure

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
    """One record in so many: most that a batch without such headers costs is a division a row."""
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
    """Whether these coordinates lie at or behind those offsets, which know their partition at all.

    A map costs the same for any number of partitions.
    """
    if not offsets:
        return F.lit(False)
    key = F.concat(at["topic"], F.lit("/"), at["partition"].cast("string"))
    keys = F.lit([f"{topic}/{number}" for topic, number in offsets])
    ends = F.lit(list(offsets.values())).cast("array<bigint>")
    return F.coalesce(at["offset"] >= F.try_element_at(F.map_from_arrays(keys, ends), key), F.lit(False))
