"""A pipeline's commits with one request: marks of exactly the head that is built upon, turns, positions."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from catalog import TableState
from lakehouse_ingest.errors import Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import SETTINGS, TOKEN
from lakehouse_ingest.tables.publishing import WAYS, BatchFiles, RowsToWriteAgain
from tests.services.landings import LandingBench
from tests.services.one_request import Process, Start, bench
from tests.services.troubled import Troubled

__all__ = ["bench"]  # a fixture


def tokens(state: TableState) -> list[str]:
    return [each.summary[TOKEN] for each in state.ancestors() if TOKEN in each.summary]


@pytest.mark.parametrize("way", WAYS)
class TestLand:
    def test_commits_files_and_mark_together(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        for number in (1, 2):
            sent = bench.troubles.sent
            place = start.land(number, extra={f"{SETTINGS}plant": "{}"})
            assert bench.troubles.sent == sent + 1
            state = bench.state()
            newest = next(state.ancestors())
            assert (place.main, place.mark, place.held) == (state.main, start.mark(), start.mark().next)
            assert newest.summary[f"{SETTINGS}plant"] == "{}"
        assert tokens(bench.state()) == ["plant/1/1/2", "plant/1/1/1"]
        assert bench.ids() == [0, 1, 2]
        assert start.told == []

    def test_appends_rows_of_the_batch_log_in_the_same_way(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        bench.troubles.commits = [Troubled.answer_lost]
        start.append(1)
        start.append(2, {f"{SETTINGS}plant": "{}"})
        assert tokens(bench.state()) == ["plant/1/1/2", "plant/1/1/1"]
        assert bench.ids() == [0, 1, 2]

    @pytest.mark.parametrize("trouble", [Troubled.answer_lost, Troubled.request_lost, Troubled.repeated])
    def test_survives_lost_and_repeated_answers(self, bench: LandingBench, way: str, trouble: Any) -> None:
        start = Process(bench).start(way=way)
        for number in (1, 2):
            bench.troubles.commits = [trouble]
            start.land(number)
        assert bench.ids() == [0, 1, 2]
        assert start.place.mark == start.mark()

    def test_copies_the_marks_of_exactly_the_head_that_it_builds_upon(self, bench: LandingBench, way: str) -> None:
        """Another pipeline commits between the look and the commit: its newest mark goes on, not the older one."""
        start = Process(bench).start(way=way)
        other = Process(bench).start(pipeline="other", way=way)
        start.land(1)
        other.land(2)
        start.land(3)
        bench.troubles.commits = [Troubled.after(lambda: other.land(4))]
        start.land(5)
        summaries = [each.summary for each in bench.state().ancestors()]
        assert marks.from_summary(summaries[0], "other") == other.mark()
        assert marks.from_summary(summaries[0], "plant") == start.mark()
        assert bench.ids() == [0, 1, 2, 3, 4, 5]

    def test_reports_each_race_once(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        bench.troubles.commits = [Troubled.after(lambda: bench.append(7)), Troubled.request_lost]
        start.land(1)
        assert start.told == ["LostRace", "OutcomeUnknown"]
        bench.append(7)  # before the look: nothing was lost
        start.land(2)
        assert len(start.told) == 2

    def test_reports_no_race_with_another_stream_of_this_process(self, bench: LandingBench, way: str) -> None:
        process = Process(bench)
        start, sibling = process.start(way=way), process.start(pipeline="other", way=way)
        for number in range(1, 5):
            (start, sibling)[number % 2].land(number)
        assert start.told == sibling.told == []
        assert bench.ids() == [0, 1, 2, 3, 4]

    def test_waits_for_another_stream_of_this_process(self, bench: LandingBench, way: str) -> None:
        process = Process(bench)
        starts = [process.start(pipeline=name, way=way) for name in ("plant", "other")]

        def run(number: int) -> None:
            for batch in range(5):
                starts[number].land(10 * number + batch + 1)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(run, range(2)))
        assert bench.ids() == [0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
        assert [each.told for each in starts] == [[], []]

    def test_puts_files_that_fit_upon_a_changed_table(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        bench.troubles.commits = [Troubled.after(bench.add_column)]
        place = start.land(1)
        assert (place.schema, bench.ids()) == (bench.state().schema_id, [0, 1])

    def test_asks_for_rows_to_be_written_again_if_they_do_not_fit(self, bench: LandingBench, way: str) -> None:
        """The tries of the batch go with them."""
        start = Process(bench).start(way=way)
        batch = start.files(1)
        bench.troubles.commits = [Troubled.after(bench.recreate_column)]
        with pytest.raises(RowsToWriteAgain, match="its column site was dropped"):
            start.land(batch=batch)
        files, layout = bench.files(1)
        start.batch -= 1
        start.land(batch=BatchFiles(files, layout, batch.attempts))
        assert bench.ids() == [0, 1]

    def test_of_the_same_batch_twice_is_refused(self, bench: LandingBench, way: str) -> None:
        """A caller that lost its head: the mark of the table is no longer the one that the position shows."""
        start = Process(bench).start(way=way)
        place, batch = start.place, start.files(1)
        start.land(batch=batch)
        with pytest.raises((TableChanged, TryAgain)):
            start.way.land(place, BatchFiles(batch.files, batch.layout), start.mark(), {})
        assert bench.ids() == [0, 1]

    def test_stops_if_main_was_rolled_back(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        before = bench.state().main
        start.land(1)
        bench.roll_back(before)
        with pytest.raises(TableChanged, match="rolled back"):
            start.land(2)
        assert bench.ids() == [0]

    def test_stops_if_main_was_rolled_back_before_a_lost_answer_was_settled(
        self, bench: LandingBench, way: str
    ) -> None:
        """The batch took effect and is gone again. To go on with the next one would lose it without a word."""
        start = Process(bench).start(way=way)
        start.land(1)
        before = bench.state().main

        def rolled_back_meanwhile(send: Any) -> Any:
            send()
            bench.roll_back(before)
            raise requests.ReadTimeout("slow")

        bench.troubles.commits = [rolled_back_meanwhile]
        if way == "branch":
            with pytest.raises(TableChanged, match="rolled back"):
                start.land(2)
        else:
            # Nobody can tell it from a request that was lost, and the same batch is committed again.
            start.land(2)
            assert bench.ids() == [0, 1, 2]

    def test_of_a_recreated_table_stops(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        batch = start.files(1)
        bench.recreate()
        with pytest.raises(TableChanged, match="recreated"):
            start.land(batch=batch)
        assert bench.ids() == [0]

    def test_of_a_dropped_table_stops(self, bench: LandingBench, way: str) -> None:
        start = Process(bench).start(way=way)
        batch = start.files(1)
        bench.others.pyiceberg.drop_table(bench.name)
        with pytest.raises(TableChanged, match="was dropped during the run"):
            start.land(batch=batch)
        bench.create()

    def test_of_an_older_start_that_wakes_up_adds_nothing(self, bench: LandingBench, way: str) -> None:
        older = Process(bench).start(1, way=way)
        older.land(1)
        batch = older.files(2)
        newer = Process(bench).start(2, way=way)
        with pytest.raises(Superseded, match="epoch 2"):
            older.land(batch=batch)
        newer.land(3)
        with pytest.raises(Superseded):
            older.append(4)
        assert bench.ids() == [0, 1, 3]

    def test_of_an_older_start_that_is_fenced_between_look_and_commit_adds_nothing(
        self, bench: LandingBench, way: str
    ) -> None:
        older = Process(bench).start(1, way=way)
        newer: list[Start] = []
        bench.troubles.commits = [Troubled.after(lambda: newer.append(Process(bench).start(2, way=way)))]
        with pytest.raises(Superseded):
            older.land(1)
        newer[0].land(2)
        assert bench.ids() == [0, 2]

    @pytest.mark.parametrize("newer_way", WAYS)
    def test_of_an_older_start_is_refused_whichever_way_the_newer_one_publishes(
        self, bench: LandingBench, way: str, newer_way: str
    ) -> None:
        older = Process(bench).start(1, way=way)
        older.land(1)
        newer = Process(bench).start(2, way=newer_way)
        newer.land(2)
        with pytest.raises(Superseded):
            older.land(3)
        assert bench.ids() == [0, 1, 2]
        assert newer.place.mark == newer.mark()
