"""Counts are exact for every partition and outcome, whatever the batch looks like."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest.accounting import LANDED, TRIMMED, Tally, counted, tally, trimmed_by
from lakehouse_ingest.records import FAULT, RECORD, Range, Reason, TopicPartition
from tests.flows.conftest import FEW

ROWS = (
    f"{RECORD} struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>,"
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


def frame(spark: SparkSession, records: list[Made], slices: int = 3) -> DataFrame:
    rows = [
        (
            (*each.at, each.offset, NOON + dt.timedelta(seconds=each.second)),
            each.reason and (each.reason, "detail", "stage"),
        )
        for each in records
    ]
    return spark.createDataFrame(rows, ROWS).repartition(slices)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Range, dict[TopicPartition, int], list[Made]]:
    """Several topics, partitions with gaps, offsets with holes, a table that holds some of it already."""
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


def expected(records: list[Made], held: dict[TopicPartition, int]) -> dict[TopicPartition, dict[str, int]]:
    counts: dict[TopicPartition, Counter[str]] = {}
    for each in records:
        sound = TRIMMED if each.offset < held.get(each.at, 0) else LANDED
        counts.setdefault(each.at, Counter())[each.reason or sound] += 1
    return {at: dict(found) for at, found in counts.items()}


def counts_of(rows: DataFrame, batch: Range, held: dict[TopicPartition, int]) -> tuple[Tally, int]:
    trimmed = trimmed_by(batch.after(held), batch)
    observed, observation = counted(rows, batch, trimmed)
    landed = observed.where(F.col(FAULT).isNull() & ~trimmed).drop(RECORD, FAULT).withColumn("one", F.lit(1)).collect()
    return tally(observation.get, batch), len(landed)


@FEW
@given(drawn=batches())
def test_counts_are_exact(spark: SparkSession, drawn: tuple[Range, dict[TopicPartition, int], list[Made]]) -> None:
    batch, held, records = drawn
    found, landed = counts_of(frame(spark, records), batch, held)
    assert {at: dict(counts) for at, counts in found.counts.items()} == expected(records, held)
    assert found.received == len(records)
    assert found.total(LANDED) == landed
    assert found.absent(batch) == len(batch) - len(records)
    assert found.dead == dict(sorted(Counter(each.reason for each in records if each.reason).items()))
    seconds = [each.second for each in records]
    ms = NOON.timestamp() * 1000
    assert found.oldest_ms == (ms + min(seconds) * 1000 if seconds else None)
    assert found.newest_ms == (ms + max(seconds) * 1000 if seconds else None)


@FEW
@given(drawn=batches())
def test_what_is_trimmed_is_exactly_what_the_table_holds(
    spark: SparkSession, drawn: tuple[Range, dict[TopicPartition, int], list[Made]]
) -> None:
    batch, held, records = drawn
    record = F.col(RECORD)
    found = (
        frame(spark, records)
        .where(trimmed_by(batch.after(held), batch))
        .select(record["topic"], record["partition"], record["offset"])
        .collect()
    )
    assert sorted(tuple(row) for row in found) == sorted(
        (*each.at, each.offset) for each in records if each.offset < held.get(each.at, 0)
    )


def test_a_table_that_holds_nothing_of_a_batch_trims_nothing(spark: SparkSession) -> None:
    batch = Range({("t", 0): 5}, {("t", 0): 9})
    for held in ({}, {("t", 0): 5}, {("t", 0): 3}, {("other", 0): 99}):
        (row,) = spark.range(1).select(trimmed_by(batch.after(held), batch)).collect()
        assert row[0] is False


def test_topics_and_partitions_are_told_apart_by_both(spark: SparkSession) -> None:
    """A topic may end like another topic with its partition."""
    places: list[TopicPartition] = [("t", 1), ("t", 11), ("t/1", 1), ("t/1", 11), ("t1", 1)]
    batch = Range(dict.fromkeys(places, 0), dict.fromkeys(places, 2))
    records = [Made(at, offset, 0, None) for at in places for offset in (0, 1)]
    found, landed = counts_of(frame(spark, records), batch, {("t", 1): 2, ("t/1", 11): 1, ("t1", 1): BIG})
    assert {at: dict(counts) for at, counts in found.counts.items()} == {
        ("t", 1): {TRIMMED: 2},
        ("t", 11): {LANDED: 2},
        ("t/1", 1): {LANDED: 2},
        ("t/1", 11): {TRIMMED: 1, LANDED: 1},
        ("t1", 1): {TRIMMED: 2},
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
    found, _ = counts_of(frame(spark, records, slices=5), batch, {})
    assert {at: dict(counts) for at, counts in found.counts.items()} == expected(records, {})


def test_an_empty_batch_counts_nothing(spark: SparkSession) -> None:
    batch = Range({("t", 0): 5}, {("t", 0): 9})
    found, _ = counts_of(frame(spark, []), batch, {})
    assert (found, found.received, found.absent(batch)) == (Tally(), 0, 4)


def test_dead_letters_that_were_landed_before_are_counted_by_their_reason_still(spark: SparkSession) -> None:
    """The reason says more than that they are held; the dead letters trim them by their own map."""
    batch = Range({("t", 0): 0}, {("t", 0): 4})
    records = [Made(("t", 0), offset, 0, Reason.EMPTY if offset % 2 else None) for offset in range(4)]
    found, landed = counts_of(frame(spark, records), batch, {("t", 0): 4})
    assert dict(found.counts["t", 0]) == {TRIMMED: 2, Reason.EMPTY: 2}
    assert landed == 0


def test_totals_add_up() -> None:
    counts: dict[TopicPartition, dict[str, int]] = {("t", 0): {LANDED: 3, Reason.EMPTY: 1}, ("t", 1): {TRIMMED: 2}}
    found = Tally(counts)
    batch: Any = Range({("t", 0): 0, ("t", 1): 0}, {("t", 0): 5, ("t", 1): 2})
    assert (found.received, found.total(LANDED), found.total(LANDED, TRIMMED), found.absent(batch)) == (6, 3, 5, 1)
    assert found.dead == {Reason.EMPTY: 1}
