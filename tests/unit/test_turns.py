"""Streams of one process at one table: who waits for whom, and which races are told of."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

import catalog
from lakehouse_ingest.tables import turns
from lakehouse_ingest.tables.publishing import Race
from lakehouse_ingest.tables.turns import Turns


class TestTurn:
    def test_is_waited_for_at_the_same_table_only(self) -> None:
        shared, order = Turns(), list[str]()
        begun = Event()

        def other(table: str) -> None:
            begun.set()
            with shared.at(table).taken():
                order.append(table)

        with ThreadPoolExecutor(2) as threads:
            with shared.at("n.t").taken(), shared.at("n.t").taken():
                waits = threads.submit(other, "n.t")
                assert begun.wait(10)
                threads.submit(other, "n.u").result(10)
                order.append("mine")
            waits.result(10)
        assert order == ["n.u", "mine", "n.t"]

    def test_is_not_waited_for_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever has it may wait long for a catalog that is away: the others go ahead, and compare-and-set decides."""
        monkeypatch.setattr(turns, "LONGEST_S", 0.05)
        turn, went = Turns().at("n.t"), list[int]()

        def ahead() -> None:
            with turn.taken():
                went.append(1)

        with ThreadPoolExecutor(1) as threads, turn.taken():
            threads.submit(ahead).result(10)
        assert went == [1]
        with turn.taken():
            pass


class TestRace:
    def test_is_reported_only_against_other_processes(self) -> None:
        told: list[tuple[int, str]] = []
        race = Race(lambda _table, attempt, error: told.append((attempt, type(error).__name__)), "n.t")
        race.look(5)
        race.failed(1, catalog.Conflict("the number of the snapshot was taken"))
        race.look(5)
        assert told == []
        race.failed(2, catalog.Conflict("main has moved"))
        race.look(6)
        race.failed(3, catalog.OutcomeUnknown("no answer"))
        race.look(6)
        assert told == [(1, "LostRace"), (2, "OutcomeUnknown")]
