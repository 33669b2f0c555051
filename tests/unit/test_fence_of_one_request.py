"""The fence moves with every commit of one request, and tells what became of it."""

from typing import Any

import pytest
import requests

from lakehouse_ingest.errors import Superseded, TableChanged, TryAgain
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.landings import LandingBench
from tests.services.one_request import BRANCH, Process, Start, bench, start
from tests.services.troubled import Troubled, behind, cut, passed

__all__ = ["bench", "start"]  # fixtures


class TestFence:
    def test_moves_with_each_commit(self, bench: LandingBench, start: Start) -> None:
        for number in (1, 2):
            place = start.land(number)
            assert bench.refs() == {"main": place.main, BRANCH: place.fence}
            assert place.main == place.fence

    def test_that_others_dropped_is_created_again_by_the_next_start(self, bench: LandingBench, start: Start) -> None:
        start.land(1)
        bench.drop_branch(BRANCH)
        with pytest.raises(TryAgain, match="another program dropped the branch"):
            start.land(2)
        again = Process(bench).start(2)
        again.land(3)
        assert bench.ids() == [0, 1, 3]

    def test_that_was_gone_in_the_answer_is_never_taken_for_none(self, bench: LandingBench, start: Start) -> None:
        """Without a snapshot to require, the request would require that there is no such branch."""
        place = start.way.place(bench.state(), 7)
        assert place.fence is None
        with pytest.raises(TryAgain, match="another program dropped the branch ingest_plant_7"):
            start.way.land(place, start.files(1), start.mark(), {})
        assert bench.ids() == [0]

    def test_of_an_idle_table_is_moved_up(self, bench: LandingBench, start: Start) -> None:
        start.land(1)
        bench.compact()
        assert isinstance(start.way, OnBranch)
        start.place = start.way.move_up(start.place)
        assert bench.refs()[BRANCH] == bench.state().main == start.place.fence
        start.land(2)
        assert bench.ids() == [0, 1, 2]

    def test_is_not_moved_up_by_an_older_start(self, bench: LandingBench, start: Start) -> None:
        Process(bench).start(2)
        bench.append(7)
        assert isinstance(start.way, OnBranch)
        with pytest.raises(Superseded):
            start.way.move_up(start.place)

    def test_stays_with_what_others_have_rolled_back(self, bench: LandingBench, start: Start) -> None:
        """It is all that keeps these files until a person has decided."""
        before = bench.state().main
        assert before
        start.land(1)
        bench.roll_back(before)
        assert isinstance(start.way, OnBranch)
        with pytest.raises(TableChanged):
            start.way.move_up(start.place)
        assert bench.refs()[BRANCH] == start.place.main

    def test_that_outlives_the_history_of_main_still_tells(self, bench: LandingBench, start: Start) -> None:
        """The answer is lost, and others compact and expire before we look: the mark that we know holds."""

        def cut_meanwhile(send: Any) -> Any:
            send()
            bench.compact()
            bench.expire()
            raise requests.ReadTimeout("slow")

        start.land(1)
        bench.troubles.commits, bench.troubles.loads = [cut_meanwhile], [passed, cut]
        place = start.land(2)
        assert place.mark == start.mark()
        bench.troubles.loads = [cut]
        start.land(3)
        assert bench.ids() == [0, 1, 2, 3]

    def test_shows_a_replica_that_is_behind(self, bench: LandingBench, start: Start) -> None:
        """Its table has an older mark. That is no sign of another writer, and stops nobody."""
        before = bench.table()
        start.land(1)
        bench.troubles.loads = [behind(before), behind(before)]
        start.land(2)
        old = bench.table()
        bench.troubles.commits = [Troubled.answer_lost]
        bench.troubles.loads = [passed, behind(old)]
        start.land(3)
        assert bench.ids() == [0, 1, 2, 3]
