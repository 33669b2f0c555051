"""Where the next batch ends."""

from random import Random

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline.next_batch import next_end

LANDED = {("t", 0): 5, ("t", 1): 0}


class TestNextBatch:
    def test_ends_where_the_source_does(self) -> None:
        assert next_end(LANDED, {("t", 0): 9, ("t", 1): 3, ("t", 2): 7}, 100) == {("t", 0): 9, ("t", 1): 3}

    def test_never_goes_back(self) -> None:
        with pytest.raises(TryAgain, match="topic t partition 0 ends at 4, and 5 was read already"):
            next_end(LANDED, {("t", 0): 4, ("t", 1): 3}, 100)

    def test_has_nothing_of_a_partition_that_the_source_does_not_tell_of(self) -> None:
        assert next_end(LANDED, {("t", 1): 3}, 100) == {("t", 0): 5, ("t", 1): 3}

    @pytest.mark.parametrize("seed", range(50))
    def test_has_as_many_records_as_it_may(self, seed: int) -> None:
        dice = Random(seed)
        landed = {("t", number): dice.randrange(100) for number in range(dice.randint(1, 5))}
        ends = {at: offset + dice.randrange(100) for at, offset in landed.items()}
        most = dice.randint(1, 200)
        found = next_end(landed, ends, most)
        assert all(landed[at] <= found[at] <= ends[at] for at in landed), seed
        taken, waiting = (sum(each.values()) - sum(landed.values()) for each in (found, ends))
        assert taken == min(most, waiting), seed
