"""A batch is cut into tasks, and nothing of it is left over or read twice."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Range, SourceIdentity, TopicPartition
from lakehouse_ingest.stages.accounting import NEAR, PER_TASK, samples, shares
from lakehouse_ingest.stages.records import Share

IDENTITY = SourceIdentity("cluster", {"a": "1", "b": "2"})
PARTITIONS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 20))
BATCHES = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 2**60), st.integers(0, 3_000)), max_size=30).map(
    lambda parts: Range({at: first for at, (first, _) in parts.items()}, {at: sum(of) for at, of in parts.items()})
)


def offsets(tasks: list[list[Share]]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.partition, at) for task in tasks for each in task for at in range(each.start, each.end)]


def size(task: list[Share]) -> int:
    return sum(each.end - each.start for each in task)


def batch(*counts: int, topic: str = "a") -> Range:
    start: dict[TopicPartition, int] = {(topic, number): 1_000 * number for number in range(len(counts))}
    return Range(start, {at: start[at] + counts[at[1]] for at in start})


class TestTasks:
    @given(BATCHES, st.integers(1, 5_000), st.integers(1, 5), st.integers(1, 40))
    def test_hold_every_offset_once(self, whole: Range, per_task: int, cores: int, most: int) -> None:
        tasks = shares(whole, IDENTITY, per_task, cores, most)
        wanted = [(*at, offset) for at in sorted(whole.end) for offset in range(whole.start[at], whole.end[at])]
        assert offsets(tasks) == wanted
        assert len(tasks) <= most
        assert all(each.start < each.end for task in tasks for each in task)

    @given(BATCHES, st.integers(100, 5_000), st.integers(1, 5))
    def test_have_about_the_same_size(self, whole: Range, per_task: int, cores: int) -> None:
        tasks = shares(whole, IDENTITY, per_task, cores)
        fair = len(whole) / max(1, len(tasks))
        assert all(abs(size(task) - fair) <= 2 * fair / NEAR + 1 for task in tasks)
        assert all(size(task) <= per_task * (1 + 2 / NEAR) + 1 for task in tasks)

    def test_do_not_depend_on_the_order_of_the_partitions(self) -> None:
        seed = Random().randrange(2**32)
        print("seed", seed)
        whole = batch(*(Random(seed + n).randrange(500) for n in range(20)))
        shuffled = list(whole.end)
        Random(seed).shuffle(shuffled)
        again = Range({at: whole.start[at] for at in shuffled}, {at: whole.end[at] for at in reversed(shuffled)})
        assert shares(whole, IDENTITY, 100) == shares(again, IDENTITY, 100)

    def test_are_cut_at_the_ends_of_partitions_if_these_are_near(self) -> None:
        tasks = shares(batch(100_000, 99_000, 101_000), IDENTITY)
        assert [len(task) for task in tasks] == [1, 1, 1]

    def test_keep_all_cores_busy(self) -> None:
        assert [size(task) for task in shares(batch(250_000), IDENTITY, PER_TASK, cores=2)] == [62_500] * 4

    def test_follow_one_another_within_a_partition(self) -> None:
        parts = [share for task in shares(batch(1_000_003), IDENTITY) for share in task]
        assert all(a.end == b.start for a, b in pairwise(parts))


class TestSmallBatch:
    def test_is_one_task(self) -> None:
        (task,) = shares(batch(40_000, 0, 60_000), IDENTITY, cores=8)
        assert [(each.partition, each.end - each.start) for each in task] == [(0, 40_000), (2, 60_000)]

    def test_of_nothing_has_no_task(self) -> None:
        assert shares(batch(0, 0), IDENTITY) == shares(Range({}, {}), IDENTITY) == []


class TestShare:
    def test_names_the_log_of_its_topic(self) -> None:
        whole = Range({("a", 0): 0, ("b", 0): 0}, {("a", 0): 1, ("b", 0): 1})
        (task,) = shares(whole, IDENTITY)
        assert [each.log for each in task] == [IDENTITY.log("a"), IDENTITY.log("b")]


class TestSamples:
    @given(BATCHES, st.integers(0, 5_000), st.integers(1, 5))
    def test_are_bounded_and_end_before_the_batch(self, whole: Range, most: int, cores: int) -> None:
        tasks = samples(whole, IDENTITY, most, cores)
        every = [share for task in tasks for share in task]
        assert sum(map(size, tasks)) <= most
        assert len(tasks) <= cores
        assert all(tasks)
        assert len({(share.topic, share.partition) for share in every}) == len(every)
        assert all(
            whole.start[share.topic, share.partition]
            <= share.start
            < share.end
            < whole.end[share.topic, share.partition]
            and share.log == IDENTITY.log(share.topic)
            for share in every
        )

    def test_are_near_the_ends_of_all_partitions(self) -> None:
        tasks = samples(batch(100_000, 1, 300_000, 6), IDENTITY, 40, cores=2)
        found = {share.partition: (share.start, share.end) for task in tasks for share in task}
        assert found == {0: (99_980, 99_990), 2: (301_980, 301_990), 3: (3_004, 3_005)}
        assert [len(task) for task in tasks] == [2, 1]


class TestPlanThatContradictsItself:
    @pytest.mark.parametrize(
        ("start", "end"),
        [({("a", 0): 5}, {("a", 0): 4}), ({}, {("a", 0): 4}), ({("a", 0): 1, ("a", 1): 1}, {("a", 0): 4})],
        ids=["goes back", "has no start", "has no end"],
    )
    def test_reads_nothing(self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> None:
        with pytest.raises(TryAgain, match="a batch was planned"):
            shares(Range(start, end), IDENTITY)
