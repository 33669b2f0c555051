"""A transaction hangs when nothing could be read behind its beginning for ten minutes, and that is told once."""

from lakehouse_ingest.records import Offsets
from lakehouse_ingest.stages.sources.kafka.open_transactions import HANGS_S, OpenTransactions, uncommitted

HIGH = {("t", 0): 56, ("t", 1): 10}


def ends(first: int, second: int = 10) -> Offsets:
    return {("t", 0): first, ("t", 1): second}


class TestUncommittedOffsets:
    def test_lie_between_last_stable_offset_and_high_watermark(self) -> None:
        assert uncommitted(ends(5), HIGH) == {("t", 0): 51, ("t", 1): 0}
        # Asked later than the high watermark, and of a partition that came in between.
        assert uncommitted({**ends(60), ("t", 2): 3}, HIGH) == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}


class TestHangingTransaction:
    def test_is_reported_once(self) -> None:
        seen = OpenTransactions()
        assert seen.see(0, ends(5), HIGH) == []
        assert seen.see(HANGS_S - 1, ends(5), HIGH) == []
        (found,) = seen.see(HANGS_S, ends(5), {**HIGH, ("t", 0): 100})
        assert (found.topic, found.partition, found.stable, found.offsets, found.open_s) == ("t", 0, 5, 95, HANGS_S)
        assert seen.see(3 * HANGS_S, ends(5), HIGH) == []

    def test_after_another_is_reported_as_well(self) -> None:
        seen = OpenTransactions()
        seen.see(0, ends(5), HIGH)
        assert len(seen.see(HANGS_S, ends(5), HIGH)) == 1
        assert seen.see(HANGS_S + 1, ends(40), HIGH) == []
        assert [found.stable for found in seen.see(2 * HANGS_S + 1, ends(40), HIGH)] == [40]

    def test_is_not_reported_while_the_stable_offset_moves(self) -> None:
        """As in a topic that is full of short transactions."""
        seen = OpenTransactions()
        for minute in range(100):
            assert seen.see(60 * minute, ends(minute), HIGH) == []

    def test_is_forgotten_once_all_was_read(self) -> None:
        seen = OpenTransactions()
        seen.see(0, ends(5), HIGH)
        seen.see(10, ends(56), HIGH)
        assert seen.see(2 * HANGS_S, ends(56), {**HIGH, ("t", 0): 57}) == []

    def test_is_reported_with_the_commands_that_find_and_end_it(self) -> None:
        seen = OpenTransactions()
        seen.see(0, ends(5), HIGH)
        (found,) = seen.see(HANGS_S, ends(5), HIGH)
        assert found.sentence("kafka:9092") == (
            "topic t partition 0 can't be read beyond offset 5: a transaction that began there has been open for 10"
            " minutes, and 51 offsets wait for its end; run `kafka-transactions.sh --bootstrap-server kafka:9092"
            " find-hanging --topic t`, and if its producer is gone `kafka-transactions.sh --bootstrap-server kafka:9092"
            " abort --topic t --partition 0 --start-offset 5`"
        )
