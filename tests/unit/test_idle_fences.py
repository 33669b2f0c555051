"""Rule 1: the fence of a table that gets no rows is moved up each hour, one table at a time."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from lakehouse_ingest.pipeline import idle_fences
from lakehouse_ingest.pipeline.idle_fences import EVERY_S, PAUSE_S, IdleFences
from lakehouse_ingest.tables import Position


@dataclass
class Held:
    place: Position


class Catalog:
    """Counts which tables were looked at; every fence is moved to 99."""

    def __init__(self, *tables: str, fence: int | None = 1) -> None:
        place: dict[str, Any] = {"main": 1, "mark": None, "carried": {}, "known": True, "fence": fence}
        self.held = [Held(Position(table, "ingest_plant_1", **place)) for table in tables]
        self.now = 0.0
        self.asked: list[str] = []
        self.fences = IdleFences(lambda: self.held, self.move_up, clock=lambda: self.now)

    def move_up(self, place: Position) -> Position:
        self.asked.append(place.table)
        return replace(place, fence=99)

    def pass_by(self, seconds: float) -> list[str]:
        """The tables that are looked at until then; the stream's thread asks ten times a second."""
        self.asked, until = [], self.now + seconds
        while self.now < until:
            self.now += PAUSE_S / 10
            self.fences.look()
        return self.asked


class TestIdleFences:
    def test_are_moved_up_each_hour(self) -> None:
        there = Catalog("a", "b")
        assert there.pass_by(EVERY_S - 1) == []
        assert there.pass_by(10) == ["a", "b"]
        assert [each.place.fence for each in there.held] == [99, 99]
        assert there.pass_by(EVERY_S - 10) == []
        assert sorted(there.pass_by(20)) == ["a", "b"]

    def test_that_moved_with_a_commit_wait_for_another_hour(self) -> None:
        there = Catalog("a", "b")
        there.pass_by(EVERY_S - 10)
        there.held[0].place = replace(there.held[0].place, fence=2)
        assert there.pass_by(20) == ["b"]
        assert there.pass_by(EVERY_S - 60) == []

    def test_are_looked_at_one_in_a_second(self) -> None:
        there = Catalog(*"abcdefghij")
        there.pass_by(EVERY_S - 1)
        assert 3 <= len(there.pass_by(1 + 5 * PAUSE_S)) <= 6

    def test_all_get_their_turn_even_if_there_are_more_of_them_than_seconds_in_an_hour(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idle_fences, "EVERY_S", 3 * PAUSE_S)
        there = Catalog(*"abcdefghij")
        assert {*there.pass_by(20 * PAUSE_S)} == {*"abcdefghij"}

    def test_are_not_missed_where_main_is_the_only_ref(self) -> None:
        assert Catalog("a", fence=None).pass_by(3 * EVERY_S) == []

    def test_whose_move_failed_are_tried_again_after_an_hour(self) -> None:
        there = Catalog("a")
        there.fences.move_up = lambda place: there.asked.append(place.table) or place  # type: ignore[func-returns-value]
        assert there.pass_by(2 * EVERY_S + 60) == ["a", "a"]
