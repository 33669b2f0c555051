"""Every record has exactly one outcome: counted exactly, whatever a share looks like, and added up from receipts."""

import copy
import datetime as dt
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages.accounting import Count, TaskReceipt, one_in, tiles
from lakehouse_ingest.stages.records import Fault, Share
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, LOOKED_AT, TRIMMED, Tally
from tests.stages.making import NOON, Headers, records_of

BIG = 2**40
SEEDS = st.integers(0, 2**32)
MS = int(NOON.timestamp() * 1000)
TOPICS = ("t", "a.b", "/events/payments", "t/1", "é")
OTHERS = (FILTERED, TRIMMED)


def span(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number + 1, number + 1)


def faults(*reasons: Reason) -> list[Fault]:
    return [Fault(reason, "detail", "stage", "") for reason in reasons]


def shares_of(topic: str, partition: int, *cuts: int) -> list[Share]:
    return [Share(topic, partition, start, end) for start, end in pairwise(cuts)]


class TestCount:
    @given(
        st.lists(st.tuples(st.integers(0, 3600), st.sampled_from([None, LANDED, *OTHERS, *Reason]))), st.integers(1, 7)
    )
    def test_is_exact(self, made: list[tuple[int, str | None]], size: int) -> None:
        """Of several chunks, with tombstones; None: the outcome is counted by another pass."""
        values = [None if second % 7 == 0 else b"\xff\x00" * (second % 100) for second, _ in made]
        count = Count(Share("t", 3, BIG, BIG + len(made)))
        for start in range(0, len(made), size):
            part = made[start : start + size]
            count.read(records_of(values[start : start + size], seconds=[second for second, _ in part]))
            sound = [second for second, outcome in part if outcome == LANDED]
            times = pa.array([NOON + dt.timedelta(seconds=each) for each in sound], pa.timestamp("us", "UTC"))
            count.landed(len(sound), 2 * len(sound), times)
            count.dead(faults(*(outcome for _, outcome in part if isinstance(outcome, Reason))))
            count.elsewhere += sum(outcome is None for _, outcome in part)
            for outcome in OTHERS:
                count.add(outcome, sum(each == outcome for _, each in part))
        found = count.tally()
        expected = Counter(str(outcome) for _, outcome in made if outcome)
        assert found.counts == ({("t", 3): dict(expected)} if expected else {})
        assert count.received == len(made) == found.received + count.elsewhere
        assert count.rows == 2 * expected[LANDED]
        assert count.letters == sum(found.dead.values())
        seconds = [second for second, _ in made]
        assert found.oldest_ms == (MS + min(seconds) * 1000 if seconds else None)
        assert found.newest_ms == (MS + max(seconds) * 1000 if seconds else None)
        assert found.bytes == sum(len(value or b"") for value in values)
        sound = [second for second, outcome in made if outcome == LANDED]
        assert found.event_ms == (MS + max(sound) * 1000 if sound else None)
        assert pickle.loads(pickle.dumps(count)) == count

    def test_of_nothing_is_an_empty_tally(self) -> None:
        count = Count(Share("t", 0, 5, 9), 1)
        count.read(records_of([]))
        count.landed(0, 0, pa.array([], pa.timestamp("us", "UTC")))
        assert (count.tally(), count.tally().received) == (Tally(), 0)

    def test_knows_times_before_1970(self) -> None:
        count = Count(Share("t", 0, 0, 1))
        count.read(records_of([b""], seconds=[-2_000_000_000]))
        assert count.tally().oldest_ms == MS - 2_000_000_000_000

    @pytest.mark.parametrize("size", [1, 3, 512, 5_000])
    def test_looks_at_the_spans_of_a_sample(self, size: int) -> None:
        """In chunks of any size, a record each so many."""
        count, made = Count(Share("t", 0, 0, 5_000), one_in(5_000)), [[("traceparent", span(n))] for n in range(5_000)]
        for start in range(0, 5_000, size):
            count.read(records_of([b""] * len(made[start : start + size]), headers=made[start : start + size]))
        assert count.tally().traces == {span(n).decode() for n in range(0, 5_000, 9)}
        assert LOOKED_AT <= len(count.traces) < 1.1 * LOOKED_AT

    def test_takes_a_span_only_from_a_header_that_holds_one(self) -> None:
        headers: list[Headers | None] = [
            [("other", span(0)), ("traceparent", span(1)), ("traceparent", span(2))],
            [("traceparent", span(3)[1:]), ("traceparent", span(4))],
            [("traceparent", b"\xff" * 55)],
            [("traceparent", None)],
            [],
            None,
        ]
        count = Count(Share("t", 0, 0, 6), 1)
        count.read(records_of([b""] * 6, headers=headers))
        assert count.tally().traces == {span(1).decode()}

    def test_looks_at_no_spans_if_nobody_asks(self) -> None:
        count = Count(Share("t", 0, 0, 1))
        count.read(records_of([b""], headers=[[("traceparent", span(0))]]))
        assert count.tally().traces == frozenset()

    @pytest.mark.parametrize(("records", "found"), [(0, 1), (511, 1), (1024, 2), (1_000_000, 1953)])
    def test_looks_at_one_in_so_many(self, records: int, found: int) -> None:
        assert one_in(records) == found


# -- receipts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenFile:
    path: str
    record_count: int


@dataclass
class Batch:
    planned: list[Share]
    receipts: list[TaskReceipt]


def count_of(share: Share, dice: random.Random) -> Count:
    count = Count(share)
    for _ in range(share.start, share.end):
        if dice.random() < 0.8:
            count.received += 1
            outcome = dice.choice([LANDED, LANDED, FILTERED, TRIMMED, str(Reason.EMPTY)])
            count.add(outcome, 1)
            count.rows += dice.choice([1, 3]) if outcome == LANDED else 0
    count.bytes = count.received
    return count


def files_of(rows: int, dice: random.Random) -> list[WrittenFile]:
    first = dice.randint(0, rows)
    return [WrittenFile(f"{dice.random()}.parquet", each) for each in (first, rows - first) if each]


def batch_of(dice: random.Random) -> Batch:
    """Several topics and partitions, each cut into shares, of which a task reads some."""
    places = dice.sample([(topic, partition) for topic in TOPICS for partition in range(3)], dice.randint(1, 6))
    planned = [
        share
        for topic, partition in places
        for share in shares_of(topic, partition, *sorted(dice.sample(range(BIG, BIG + 60), dice.randint(2, 5))))
    ]
    left, receipts = dice.sample(planned, len(planned)), []
    while left:
        some = [left.pop() for _ in range(min(len(left), dice.randint(1, 3)))]
        counts = [count_of(share, dice) for share in some]
        letters = sum(count.letters for count in counts)
        rows = sum(count.rows for count in counts)
        receipts.append(TaskReceipt(counts, files_of(rows, dice), files_of(letters, dice)))
    return Batch(planned, receipts)


def lost(batch: Batch, at: int) -> None:
    del batch.receipts[at]


def twice(batch: Batch, at: int) -> None:
    batch.receipts.append(copy.deepcopy(batch.receipts[at]))


def twice_with_other_files(batch: Batch, at: int) -> None:
    """Spark ran the task two times, and both answers came."""
    one = batch.receipts[at]
    renamed = [
        [WrittenFile(f"{file.path}2", file.record_count) for file in files] for files in (one.files, one.letters)
    ]
    batch.receipts.append(TaskReceipt(copy.deepcopy(one.counts), *renamed))


def of_another(batch: Batch, at: int) -> None:
    """The numbers are right, the place is not: in place of one share another is there twice."""
    counts = batch.receipts[at].counts
    counts[0].share = replace(counts[0].share, partition=counts[0].share.partition + 1)


def cut_short(batch: Batch, at: int) -> None:
    count = batch.receipts[at].counts[0]
    count.share = replace(count.share, end=count.share.end - 1)


def one_record_less(batch: Batch, at: int) -> None:
    batch.receipts[at].counts[0].received -= 1


def one_outcome_more(batch: Batch, at: int) -> None:
    batch.receipts[at].counts[-1].add(FILTERED, 1)


def one_row_more(batch: Batch, at: int) -> None:
    batch.receipts[at].counts[-1].rows += 1


def one_file_more(batch: Batch, at: int) -> None:
    one = batch.receipts[at]
    batch.receipts[at] = replace(one, files=[*one.files, WrittenFile("more.parquet", 1)])


def letters_lost(batch: Batch, at: int) -> None:
    count = batch.receipts[at].counts[0]
    count.add(Reason.BROKEN, 1)
    count.received += 1


def more_than_there_is(batch: Batch, at: int) -> None:
    count = batch.receipts[at].counts[0]
    more = count.share.end - count.share.start + 1 - count.received
    count.received += more
    count.add(FILTERED, more)


def below_nothing(batch: Batch, at: int) -> None:
    count = batch.receipts[at].counts[0]
    count.outcomes = count.outcomes | Counter({FILTERED: count.outcomes[FILTERED] + 100_000})
    count.outcomes[TRIMMED] -= count.outcomes.total() - count.received


def unknown_outcome(batch: Batch, at: int) -> None:
    count = batch.receipts[at].counts[0]
    count.received += 1
    count.add("forgotten", 1)


def record_that_lands_twice(batch: Batch, at: int) -> None:
    """It has an outcome here, and is said to have one elsewhere."""
    batch.receipts[at].counts[0].elsewhere += 1


def record_without_a_row(batch: Batch, at: int) -> None:
    """Whatever its outcome was, it is counted as landed now."""
    count = batch.receipts[at].counts[0]
    count.received = count.share.end - count.share.start
    count.outcomes = Counter({LANDED: count.received})
    files = [WrittenFile(f"{at}.parquet", count.received - 1)]
    count.rows = count.received - 1
    batch.receipts[at] = TaskReceipt([count], files)
    batch.receipts += [TaskReceipt([each]) for each in emptied(batch)]


def row_of_no_record(batch: Batch, at: int) -> None:
    count = Count(batch.receipts[at].counts[0].share, rows=1)
    batch.receipts[at] = TaskReceipt([count], [WrittenFile(f"{at}.parquet", 1)])
    batch.receipts += [TaskReceipt([each]) for each in emptied(batch)]


def emptied(batch: Batch) -> list[Count]:
    """Receipts of no record for all shares that no receipt covers any more."""
    there = {count.share for receipt in batch.receipts for count in receipt.counts}
    return [Count(share) for share in batch.planned if share not in there]


def same_file(batch: Batch, at: int) -> None:
    """Two empty files of one path count no row wrong."""
    one = batch.receipts[at]
    batch.receipts[at] = replace(one, letters=[*one.letters, *[WrittenFile("same.parquet", 0)] * 2])


def planned_with_a_gap(batch: Batch, at: int) -> None:
    share = batch.planned[at % len(batch.planned)]
    batch.planned.append(replace(share, start=share.end + 1000, end=share.end + 1000))
    batch.receipts.append(TaskReceipt([Count(batch.planned[-1])]))


def planned_with_an_overlap(batch: Batch, at: int) -> None:
    share = batch.planned[at % len(batch.planned)]
    batch.planned.append(replace(share, start=share.start, end=share.end + 1))
    batch.receipts.append(TaskReceipt([Count(batch.planned[-1])]))


WRONG: list[Callable[[Batch, int], None]] = [
    lost,
    twice,
    twice_with_other_files,
    of_another,
    cut_short,
    one_record_less,
    one_outcome_more,
    one_row_more,
    one_file_more,
    letters_lost,
    more_than_there_is,
    below_nothing,
    unknown_outcome,
    record_that_lands_twice,
    record_without_a_row,
    row_of_no_record,
    same_file,
    planned_with_a_gap,
    planned_with_an_overlap,
]


class TestReceipts:
    @given(SEEDS)
    def test_that_tile_the_batch_are_added_up(self, seed: int) -> None:
        dice = random.Random(seed)
        batch = batch_of(dice)
        found = tiles(batch.planned, dice.sample(batch.receipts, len(batch.receipts)))
        counts = [count for receipt in batch.receipts for count in receipt.counts]
        assert found.received == sum(count.received for count in counts) == found.bytes
        for at in {(share.topic, share.partition) for share in batch.planned}:
            there = [count for count in counts if (count.share.topic, count.share.partition) == at]
            assert sum(found.counts.get(at, {}).values()) == sum(count.received for count in there)
            expected = sum((count.outcomes for count in there), Counter[str]())
            assert {name: n for name, n in found.counts.get(at, {}).items() if n} == dict(+expected)

    @pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
    @given(seed=SEEDS)
    def test_that_do_not_tile_it_are_refused(self, wrong: Callable[[Batch, int], None], seed: int) -> None:
        dice = random.Random(seed)
        batch = batch_of(dice)
        wrong(batch, dice.randrange(len(batch.receipts)))
        with pytest.raises(TryAgain, match=r"; nothing of the batch is committed, and it is read again$"):
            tiles(batch.planned, batch.receipts)

    @pytest.mark.parametrize(
        ("planned", "counts", "says"),
        [
            ([(0, 5)], [], "no receipt covers the offsets 0 to 5 of topic t partition 0, and there should be 1"),
            ([(0, 5)], [(0, 5), (0, 5)], "2 receipts cover the offsets 0 to 5 of topic t partition 0"),
            ([(0, 5)], [(0, 5), (5, 6)], "a receipt covers the offsets 5 to 6 of topic t partition 0, which is not in"),
            ([(0, 5), (6, 7)], [], "the offsets 6 to 7 of .* do not follow the offsets 0 to 5 of"),
        ],
    )
    def test_are_refused_in_one_clear_sentence(
        self, planned: list[tuple[int, int]], counts: list[tuple[int, int]], says: str
    ) -> None:
        with pytest.raises(TryAgain, match=says):
            tiles(
                [Share("t", 0, *each) for each in planned],
                [TaskReceipt([Count(Share("t", 0, *each))]) for each in counts],
            )

    def test_of_discarded_records_need_no_letters(self) -> None:
        share = Share("t", 0, 0, 2)
        count = Count(share, received=2)
        count.dead(faults(Reason.EMPTY, Reason.BROKEN))
        with pytest.raises(TryAgain, match="counted 2 dead-letter records and wrote 0"):
            tiles([share], [TaskReceipt([count])])
        found = tiles([share], [TaskReceipt([count])], keeps_letters=False)
        assert found.discarding().counts == {("t", 0): {DISCARDED: 2}}

    def test_of_an_empty_batch_are_none(self) -> None:
        assert tiles([], []) == Tally()


class TestSecondPass:
    """After news, the records of the routes that were waiting are read again."""

    def counts(self) -> tuple[Share, Count, Count]:
        share = Share("t", 0, 0, 10)
        first = Count(share, received=8, rows=3, elsewhere=4, outcomes=Counter({LANDED: 3, FILTERED: 1}), bytes=80)
        second = Count(share, received=8, rows=4, elsewhere=4, outcomes=Counter({LANDED: 4}), bytes=80, event_us=7_000)
        return share, first, second

    def added_up(self, share: Share, *passes: Count) -> Tally:
        return tiles(
            [share], *([TaskReceipt([each], [WrittenFile(f"{n}", each.rows)])] for n, each in enumerate(passes))
        )

    def test_gives_the_rest_of_the_outcomes(self) -> None:
        found = self.added_up(*self.counts())
        assert found == Tally({("t", 0): {LANDED: 7, FILTERED: 1}}, None, None, 80, 7)

    def test_has_to_follow(self) -> None:
        share, first, _ = self.counts()
        with pytest.raises(TryAgain, match="gave 8 records, and 4 of them have an outcome"):
            self.added_up(share, first)

    def test_that_reads_other_records_is_refused(self) -> None:
        """The topic was compacted in between."""
        share, first, second = self.counts()
        second.received -= 1
        second.elsewhere -= 1
        with pytest.raises(TryAgain, match="gave 7 records, and 8"):
            self.added_up(share, first, second)

    def test_that_leaves_out_a_share_is_refused(self) -> None:
        share, first, _ = self.counts()
        with pytest.raises(TryAgain, match="no receipt covers"):
            tiles([share], [TaskReceipt([first], [WrittenFile("1", 3)])], [])


class TestTally:
    def test_totals_add_up(self) -> None:
        found = Tally({("t", 0): {LANDED: 3, Reason.EMPTY: 1}, ("t", 1): {TRIMMED: 2}})
        assert (found.received, found.total(LANDED), found.total(LANDED, TRIMMED)) == (6, 3, 5)
        assert found.dead == {Reason.EMPTY: 1}

    def test_of_several_shares_is_one(self) -> None:
        one = Tally({("t", 0): {LANDED: 3}}, 5, 9, 30, 4)
        two = Tally({("t", 0): {LANDED: 1, Reason.EMPTY: 2}, ("t", 1): {FILTERED: 4}}, 2, 7, 12, 6)
        assert Tally.sum([one, two, Tally()]) == Tally(
            {("t", 0): {LANDED: 4, Reason.EMPTY: 2}, ("t", 1): {FILTERED: 4}}, 2, 9, 42, 6
        )
        assert Tally.sum([]) == Tally()

    def test_of_what_is_discarded_is_still_received(self) -> None:
        tally = Tally({("t", 0): {LANDED: 3, Reason.EMPTY: 1, Reason.BROKEN: 2, FILTERED: 1}})
        found = tally.discarding()
        assert found.counts == {("t", 0): {LANDED: 3, DISCARDED: 3, FILTERED: 1}}
        assert found.received == tally.received
        assert found.dead == {}
