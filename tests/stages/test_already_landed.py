"""Records that the tables hold are left out and counted; all others stay, in their order."""

import pickle

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.routing import held_in, without
from tests.stages.making import records_of

BIG = 2**40
OFFSETS = st.sets(st.integers(BIG - 20, BIG + 40), max_size=40)


class TestHeldRecords:
    @given(OFFSETS, OFFSETS)
    def test_are_left_out(self, offsets: set[int], held: set[int]) -> None:
        """With gaps, at both ends, all or none of them."""
        there = sorted(offsets)
        records = records_of([b""] * len(there), offsets=there, log="a", partition=3)
        kept, trimmed = without(records, {("a", 3): BitMap64(held)})
        expected = [row for row, offset in enumerate(there) if offset not in held]
        assert kept.to_pylist() == expected
        assert trimmed == len(there) - len(expected) == len(offsets & held)

    def test_of_another_log_or_partition_are_not_these(self) -> None:
        records = records_of([b"", b""], log="a", partition=3)
        held = {("b", 3): BitMap64([0, 1]), ("a", 4): BitMap64([0, 1])}
        kept, trimmed = without(records, held)
        assert (kept.to_pylist(), trimmed) == ([0, 1], 0)

    def test_may_be_very_many(self) -> None:
        """A topic that is read again from its beginning."""
        held = {("a", 0): BitMap64(range(10**9))}
        kept, trimmed = without(records_of([b""] * 3, offsets=[10**9 - 2, 10**9 - 1, 10**9], log="a"), held)
        assert (kept.to_pylist(), trimmed) == ([2], 2)
        assert len(pickle.dumps(held_in(held, [Share("t", 0, 10**9 - 100_000, 10**9, "a")]))) < 100_000


class TestHeldInShares:
    @given(OFFSETS, st.integers(BIG - 20, BIG + 40), st.integers(0, 30), st.integers(0, 30))
    def test_are_theirs_only_and_can_be_sent(self, held: set[int], start: int, first: int, second: int) -> None:
        shares = [Share("t", 1, start, start + first, "a"), Share("t", 1, start + first, start + first + second, "a")]
        found = pickle.loads(pickle.dumps(held_in({("a", 1): BitMap64(held), ("a", 2): BitMap64(held)}, shares)))
        wanted = {offset for offset in held if start <= offset < start + first + second}
        assert {at: {*offsets} for at, offsets in found.items()} == ({("a", 1): wanted} if wanted else {})
