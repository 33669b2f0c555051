"""Counts the outcomes of a batch's records, in the same pass that writes them.

One aggregate serves any number of partitions: a histogram with a bin for each pair of partition and outcome. It is
exact as long as there are as many bins as pairs, and costs 0.07 µs for each row.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import FAULT, RECORD, Offsets, Range, TopicPartition
from lakehouse_ingest.stages.tally import (
    DISCARDED,
    FILTERED,
    HEADER,
    LANDED,
    LENGTH,
    LOOKED_AT,
    OUTCOMES,
    REASONS,
    TRIMMED,
    Tally,
)

__all__ = ["DISCARDED", "FILTERED", "LANDED", "OUTCOMES", "REASONS", "TRIMMED", "Tally", "beyond", "by_fault"]
__all__ += ["count", "counted", "number_of"]

COUNTS, OLDEST, NEWEST, BYTES, EVENT, TRACES = "counts", "oldest", "newest", "bytes", "event", "traces"


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
