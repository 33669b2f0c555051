"""What every source promises, of a topic that was filled before and rests meanwhile.

A second Spark of the same process would not do: `spark` is the only session, like the pipeline's. `scratch` is an
empty folder.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Row, SparkSession

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.ledger.batch_range import batch_range
from lakehouse_ingest.records import Offsets, Range, TopicPartition
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.sources import RECORD_COLUMNS, Source

GROUP = "lakehouse-ingest-suite"  # what a broker has to allow
LONG_AGO, NEVER = dt.datetime(1971, 1, 1, tzinfo=dt.UTC), dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
NOBODYS = "nobody-has-a-topic-of-this-name"


@dataclass(frozen=True)
class Filled:
    """A topic, and of each of its partitions the values in the order of their offsets; a few there have to be."""

    kind: type[Source]
    settings: SourceSettings
    topic: str
    values: Mapping[int, Sequence[bytes | None]]

    @property
    def source(self) -> Source:
        return self.kind(self.settings, [self.topic])

    @property
    def counts(self) -> dict[TopicPartition, int]:
        return {(self.topic, number): len(values) for number, values in self.values.items()}


def the_bounds_hold_all_records_and_nothing_else(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    low, high = filled.source.bounds()
    assert low.keys() == high.keys() == filled.counts.keys(), f"the partitions are {sorted(high)}"
    assert {at: high[at] - low[at] for at in high} == filled.counts, f"the bounds are {low} and {high}"
    assert filled.source.ends() == high, "at rest a reader does not get as far as the records are written"


def the_identity_stays_and_names_each_topic(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    first, again = filled.source.identity(), filled.source.identity()
    assert first == again, f"{first} was {again} a moment ago"
    assert [*first.topics] == [filled.topic], f"the identity is of {[*first.topics]}"


def topics_are_found_by_their_whole_names(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    source = filled.kind(filled.settings, ())
    assert source.matching(filled.topic) == [filled.topic]
    assert filled.topic in source.matching(f"{filled.topic[:2]}.*")
    assert source.matching(filled.topic[:-1]) == [], "the beginning of a name is taken for it"


def a_time_leads_to_the_first_record_since(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    low, _ = filled.source.bounds()
    held = {at: low[at] for at, count in filled.counts.items() if count}
    assert {at: offset for at, offset in filled.source.since(LONG_AGO).items() if at in held} == held
    assert filled.source.since(NEVER) == {}, "partitions without a record of that time are not left out"


def every_record_is_read_once_and_as_it_was(filled: Filled, spark: SparkSession, scratch: Path) -> None:
    low, _ = filled.source.bounds()
    frame = filled.source.stream(spark, low, 1_000_000, GROUP)
    types = dict(frame.dtypes)
    assert {name: types.get(name) for name in RECORD_COLUMNS} == RECORD_COLUMNS, f"the columns are {types}"
    rows = [row for _, batch in _batches(filled, low, 1_000_000, spark, scratch) for row in batch]
    assert _values(rows) == _wanted(filled, low, low)
    assert all(row["timestamp"] for row in rows), "a record has no timestamp"


def a_start_within_reads_what_follows(filled: Filled, spark: SparkSession, scratch: Path) -> None:
    low, high = filled.source.bounds()
    middle = {at: (low[at] + high[at]) // 2 for at in low}
    rows = [row for _, batch in _batches(filled, middle, 1_000_000, spark, scratch) for row in batch]
    assert _values(rows) == _wanted(filled, low, middle)


def batches_follow_one_another_and_hold_their_ranges(filled: Filled, spark: SparkSession, scratch: Path) -> None:
    """Of what Spark's offset log says; with no more records in one than were asked for."""
    low, high = filled.source.bounds()
    most = max(1, sum(filled.counts.values()) // 2)
    reached: dict[TopicPartition, int] = dict(low)
    for batch, rows in _batches(filled, low, most, spark, scratch):
        assert len(rows) <= most, f"{len(rows)} records in a batch of {most} at most"
        assert {at: batch.start[at] for at in batch.end} == reached, f"after {reached} comes {batch}"
        for row in rows:
            at = (row["topic"], row["partition"])
            assert batch.start[at] <= row["offset"] < batch.end[at], f"{row} is not within {batch}"
        assert len(rows) == len(batch), f"{len(rows)} records in {batch}"
        reached = dict(batch.end)
    assert reached == high, f"reading has come to {reached}, the ends are {high}"


def it_keeps_to_the_partitions_that_it_is_told(filled: Filled, spark: SparkSession, scratch: Path) -> None:
    number = max(number for number, values in filled.values.items() if values)
    settings = filled.settings.model_copy(update={"partitions": {filled.topic: (number,)}})
    only = Filled(filled.kind, settings, filled.topic, {number: filled.values[number]})
    low, high = only.source.bounds()
    assert low.keys() == high.keys() == only.counts.keys(), f"the partitions are {sorted(high)}"
    assert only.source.ends() == high
    assert only.source.since(LONG_AGO) == low
    rows = [row for _, batch in _batches(only, low, 1_000_000, spark, scratch) for row in batch]
    assert _values(rows) == _wanted(only, low, low)


def a_hint_may_be_left_and_a_probe_answers(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    filled.source.publish(filled.source.ends(), GROUP)
    said = filled.source.probe(GROUP)
    assert said, "the probe says nothing"
    assert "\n" not in said, f"the probe says more than a sentence: {said}"


def a_topic_that_is_not_there_is_one_sentence(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    source = filled.kind(filled.settings, [NOBODYS])  # it waits for nobody
    for ask in (source.ends, source.bounds):
        try:
            found = ask()
        except LakehouseError as refusal:
            assert NOBODYS in str(refusal), f"the sentence does not name the topic: {refusal}"  # noqa: PT017
        else:
            raise AssertionError(f"of a topic that is not there it says {found}")


def what_is_not_its_own_is_not_explained(filled: Filled, _spark: SparkSession, _scratch: Path) -> None:
    assert filled.kind.explained("java.lang.IllegalStateException: something else", filled.settings) is None


Check = Callable[[Filled, SparkSession, Path], None]
CHECKS: tuple[Check, ...] = (
    the_bounds_hold_all_records_and_nothing_else,
    the_identity_stays_and_names_each_topic,
    topics_are_found_by_their_whole_names,
    a_time_leads_to_the_first_record_since,
    every_record_is_read_once_and_as_it_was,
    a_start_within_reads_what_follows,
    batches_follow_one_another_and_hold_their_ranges,
    it_keeps_to_the_partitions_that_it_is_told,
    a_hint_may_be_left_and_a_probe_answers,
    a_topic_that_is_not_there_is_one_sentence,
    what_is_not_its_own_is_not_explained,
)


def _batches(
    filled: Filled, start: Offsets, most: int, spark: SparkSession, scratch: Path
) -> list[tuple[Range, list[Row]]]:
    """All that there is from `start` on, batch by batch, each with the range that the offset log gives it."""
    checkpoint = scratch / uuid4().hex
    found: list[tuple[Range, list[Row]]] = []

    def batch(rows: DataFrame, number: int) -> None:
        entry, *before = [
            (checkpoint / "offsets" / str(each)).read_text(encoding="utf-8")
            for each in (number, number - 1)
            if each >= 0
        ]
        range_ = batch_range(entry, before[0] if before else None, start)
        found.append((range_, rows.select(*RECORD_COLUMNS).collect()))

    frame = filled.source.stream(spark, start, most, GROUP)
    query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return found


def _values(rows: Sequence[Row]) -> list[tuple[str, int, int, bytes | None]]:
    return sorted(
        (row["topic"], row["partition"], row["offset"], None if row["value"] is None else bytes(row["value"]))
        for row in rows
    )


def _wanted(filled: Filled, low: Offsets, start: Offsets) -> list[tuple[str, int, int, bytes | None]]:
    return [
        (filled.topic, number, offset, value)
        for number, values in sorted(filled.values.items())
        for offset, value in enumerate(values, low[filled.topic, number])
        if offset >= start[filled.topic, number]
    ]
