"""How large the first batch of a start is, by what the start before it has left."""

import pytest

from lakehouse_ingest.ledger import keys
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.tables import Position, batch_size

MOST = 1_000_000


def left(said: str | None, *, batch: int) -> Position:
    """The batch record after a start whose last commit was that of this batch; -1: it landed none."""
    carried = {} if said is None else {f"{keys.SIZE}plant": said}
    mark = Mark(Token("plant", 1, 3, batch), SourceIdentity(), {}, {}, {})
    return Position("ns.batches", "ingest_plant_4", 1, mark, carried, known=True)


class TestFirstStart:
    def test_takes_all_that_a_batch_may_take(self) -> None:
        nobody = Position("ns.batches", "ingest_plant_1", None, None, {}, known=True)
        assert batch_size.of_start(nobody, "plant", MOST) == MOST


class TestStartAfterOneThatLandedNothing:
    @pytest.mark.parametrize(
        ("size", "waiting", "expected"),
        [(MOST, 5_000_000, 250_000), (MOST, 24_000, 6_000), (4, 24_000, 1), (1, 24_000, 1)],
    )
    def test_takes_a_quarter_of_what_that_one_took(self, size: int, waiting: int, expected: int) -> None:
        assert batch_size.of_start(left(batch_size.left_by(size, waiting), batch=-1), "plant", MOST) == expected

    @pytest.mark.parametrize("size", [4_000, MOST])
    def test_takes_as_much_as_before_where_nothing_waited(self, size: int) -> None:
        """A pipeline without traffic is started and stopped, and nothing was wrong with any of its starts."""
        assert batch_size.of_start(left(batch_size.left_by(size, 0), batch=-1), "plant", MOST) == size

    @pytest.mark.parametrize("size", [4_000, MOST])
    def test_takes_as_much_as_its_replica(self, size: int) -> None:
        """That one had not failed: this start has replaced it. What made batches smaller before still holds."""
        place = left(batch_size.left_by(size, 24_000), batch=-1)
        assert batch_size.of_start(place, "plant", MOST, replaces_replica=True) == size

    @pytest.mark.parametrize("said", [None, "", "many", "-3/4", "4", "4/5/6", f"{10**30}/1"])
    def test_does_not_trust_what_it_can_not_read(self, said: str | None) -> None:
        assert batch_size.of_start(left(said, batch=-1), "plant", MOST) == MOST // batch_size.STEP

    def test_comes_down_to_single_records_and_back_again(self) -> None:
        size, sizes = MOST, list[int]()
        for _ in range(12):
            size = batch_size.of_start(left(batch_size.left_by(size, 5_000_000), batch=-1), "plant", MOST)
        assert size == 1
        while size < MOST:
            size = batch_size.after_landing(size, MOST)
            sizes.append(size)
        assert sizes[-1] == MOST
        assert len(sizes) == 10


class TestStartAfterALanding:
    def test_begins_with_the_size_that_landed(self) -> None:
        assert batch_size.of_start(left("64/24000", batch=0), "plant", MOST) == 64

    def test_respects_a_smaller_setting(self) -> None:
        assert batch_size.of_start(left("1000000/24000", batch=7), "plant", 500) == 500

    def test_begins_with_the_next_size_where_it_has_replaced_a_replica(self) -> None:
        """Two replicas that replace each other after each batch would land batches of this size for ever."""
        assert batch_size.of_start(left("1/24000", batch=0), "plant", MOST, replaces_replica=True) == batch_size.STEP
