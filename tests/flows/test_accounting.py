"""Counts are exact for every partition and outcome, whatever the batch looks like."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest.records import FAULT, RECORD, Range, Reason, TopicPartition
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, TRIMMED, Tally, beyond, by_fault, counted
from tests.flows.conftest import FEW

ROWS = (
    f"{RECORD} struct<topic: string, partition: int, offset: bigint, timestamp: timestamp, value: binary>,"
    f"{FAULT} struct<reason: string, detail: string, stage: string>"
)
NOON = dt.datetime(2024, 5, 6, 12, tzinfo=dt.UTC)
BIG = 2**40
TOPICS = ("t", "a.b", "/events/payments", "t/1", "é")


@dataclass(frozen=True)
class Made:
    """One record: where it lies, when it came, and why it can't land."""

    at: TopicPartition
    offset: int
    second: int
    reason: str | None

    @property
    def value(self) -> bytes | None:
        """A compacted topic's tombstones have none."""
        return None if self.second % 7 == 0 else b"\xff\x00" * (self.second % 100)


def frame(spark: SparkSession, records: list[Made], slices: int = 3) -> DataFrame:
    rows = [
        (
            (*each.at, each.offset, NOON + dt.timedelta(seconds=each.second), each.value),
            each.reason and (each.reason, "detail", "stage"),
        )
        for each in records
    ]
    return spark.createDataFrame(rows, ROWS).repartition(slices)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Range, dict[TopicPartition, int], list[Made]]:
    """Several topics, partitions with gaps, offsets with holes, and ends that some of them lie below."""
    places = draw(
        st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 30)), min_size=1, max_size=12, unique=True)
    )
    start = {at: draw(st.sampled_from([0, 7, BIG])) for at in places}
    batch = Range(start, {at: offset + draw(st.integers(0, 12)) for at, offset in start.items()})
    held = {at: batch.start[at] + draw(st.integers(-3, 15)) for at in places if draw(st.booleans())}
    outcomes = st.one_of(st.none(), st.sampled_from([str(reason) for reason in Reason]))
    records = [
        Made(at, offset, draw(st.integers(0, 3600)), draw(outcomes))
        for at in places
        for offset in range(batch.start[at], batch.end[at])
        if draw(st.integers(0, 9)) > 1
    ]
    return batch, held, records


def expected(records: list[Made]) -> dict[TopicPartition, dict[str, int]]:
    counts: dict[TopicPartition, Counter[str]] = {}
    for each in records:
        counts.setdefault(each.at, Counter())[each.reason or LANDED] += 1
    return {at: dict(found) for at, found in counts.items()}


def counts_of(rows: DataFrame, batch: Range) -> tuple[Tally, int]:
    # Any time will do for the event time.
    event_time = F.when(F.col(FAULT).isNull(), F.col(RECORD)["timestamp"])
    observed, tally = counted(rows, batch, by_fault(), event_time)
    landed = observed.where(F.col(FAULT).isNull()).drop(RECORD, FAULT).withColumn("one", F.lit(1)).collect()
    return tally(), len(landed)


@FEW
@given(drawn=batches())
def test_counts_are_exact(spark: SparkSession, drawn: tuple[Range, dict[TopicPartition, int], list[Made]]) -> None:
    batch, _, records = drawn
    found, landed = counts_of(frame(spark, records), batch)
    assert {at: dict(counts) for at, counts in found.counts.items()} == expected(records)
    assert found.received == len(records)
    assert found.total(LANDED) == landed
    assert found.dead == dict(sorted(Counter(each.reason for each in records if each.reason).items()))
    seconds = [each.second for each in records]
    ms = NOON.timestamp() * 1000
    assert found.oldest_ms == (ms + min(seconds) * 1000 if seconds else None)
    assert found.newest_ms == (ms + max(seconds) * 1000 if seconds else None)
    assert found.bytes == sum(len(each.value or b"") for each in records)
    sound = [each.second for each in records if not each.reason]
    assert found.event_ms == (ms + max(sound) * 1000 if sound else None)


@FEW
@given(drawn=batches())
def test_what_lies_beyond_is_told_by_row(
    spark: SparkSession, drawn: tuple[Range, dict[TopicPartition, int], list[Made]]
) -> None:
    _, ends, records = drawn
    record = F.col(RECORD)
    found = (
        frame(spark, records)
        .where(beyond(record, ends))
        .select(record["topic"], record["partition"], record["offset"])
        .collect()
    )
    assert sorted(tuple(row) for row in found) == sorted(
        (*each.at, each.offset) for each in records if each.at in ends and each.offset >= ends[each.at]
    )


def test_topics_and_partitions_are_told_apart_by_both(spark: SparkSession) -> None:
    """A topic may end like another topic with its partition."""
    places: list[TopicPartition] = [("t", 1), ("t", 11), ("t/1", 1), ("t/1", 11), ("t1", 1)]
    batch = Range(dict.fromkeys(places, 0), dict.fromkeys(places, 2))
    records = [Made(at, offset, 0, None) for at in places for offset in (0, 1)]
    rows = frame(spark, records).where(beyond(F.col(RECORD), {("t", 1): 0, ("t/1", 11): 1, ("t1", 1): 0}))
    found, landed = counts_of(rows, batch)
    assert {at: dict(counts) for at, counts in found.counts.items()} == {
        ("t", 1): {LANDED: 2},
        ("t/1", 11): {LANDED: 1},
        ("t1", 1): {LANDED: 2},
    }
    assert landed == 5


@pytest.mark.parametrize("gap", [1, 3])
def test_600_partitions_and_every_outcome_are_counted_one_by_one(spark: SparkSession, gap: int) -> None:
    """More partitions and outcomes at once than a histogram has by default, over several tasks."""
    places: list[TopicPartition] = [("t", number * gap) for number in range(600)]
    outcomes = [None, *map(str, Reason)]
    batch = Range(dict.fromkeys(places, BIG), dict.fromkeys(places, BIG + len(outcomes) * 2))
    records = [
        Made(at, BIG + offset, 0, outcomes[offset % len(outcomes)])
        for at in places
        for offset in range(len(outcomes) + at[1] % 5)
    ]
    found, _ = counts_of(frame(spark, records, slices=5), batch)
    assert {at: dict(counts) for at, counts in found.counts.items()} == expected(records)


def test_an_empty_batch_counts_nothing(spark: SparkSession) -> None:
    batch = Range({("t", 0): 5}, {("t", 0): 9})
    found, _ = counts_of(frame(spark, []), batch)
    assert (found, found.received) == (Tally(), 0)


def test_totals_add_up() -> None:
    counts: dict[TopicPartition, dict[str, int]] = {("t", 0): {LANDED: 3, Reason.EMPTY: 1}, ("t", 1): {TRIMMED: 2}}
    found = Tally(counts)
    assert (found.received, found.total(LANDED), found.total(LANDED, TRIMMED)) == (6, 3, 5)
    assert found.dead == {Reason.EMPTY: 1}


def test_what_spark_finds_to_be_nothing_is_counted_as_nothing(spark: SparkSession) -> None:
    """Found out while it runs, so that the counting is left out of the plan."""
    batch = Range({("t", 0): 0}, {("t", 0): 4})
    rows = frame(spark, [Made(("t", 0), offset, 0, None) for offset in range(4)])
    nothing = rows.join(
        spark.range(4).where("id < 0").repartition(2), F.col(RECORD)["offset"] == F.col("id"), "left_semi"
    )
    assert counts_of(nothing.persist(), batch) == (Tally(), 0)


def test_tallies_of_several_tables_make_one() -> None:
    one = Tally({("t", 0): {LANDED: 3}}, 5, 9, 30, 4)
    two = Tally({("t", 0): {LANDED: 1, Reason.EMPTY: 2}, ("t", 1): {FILTERED: 4}}, 2, 7, 12, 6)
    assert Tally.sum([one, two, Tally()]) == Tally(
        {("t", 0): {LANDED: 4, Reason.EMPTY: 2}, ("t", 1): {FILTERED: 4}}, 2, 9, 42, 6
    )
    assert Tally.sum([]) == Tally()


def test_what_is_not_kept_is_discarded_and_still_received() -> None:
    tally = Tally({("t", 0): {LANDED: 3, Reason.EMPTY: 1, Reason.BROKEN: 2, FILTERED: 1}})
    found = tally.discarding()
    assert found.counts == {("t", 0): {LANDED: 3, DISCARDED: 3, FILTERED: 1}}
    assert found.received == tally.received
    assert found.dead == {}
