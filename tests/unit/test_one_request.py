"""A pipeline's commits with one request: marks of exactly the head that is built upon, turns, fences, positions."""

import random
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests

from catalog import CatalogClient, TableState
from lakehouse_ingest.errors import LakehouseError, Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import SETTINGS, TOKEN
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.publishing import WAYS, BatchFiles, OnBranch, Publication, RowsToWriteAgain
from lakehouse_ingest.tables.turns import Turns
from tests.services.landings import LandingBench, doubled, without_waiting
from tests.services.troubled import Troubled, behind, cut, passed

BRANCH = "ingest_plant_1"


@pytest.fixture
def bench(file_lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> LandingBench:
    without_waiting(monkeypatch)
    return LandingBench(file_lake, f"ns.t{uuid.uuid4().hex[:12]}")


@dataclass
class Start:
    """One start of a pipeline at one table; batch n brings row n."""

    bench: LandingBench
    way: Publication
    epoch: int
    place: Position
    told: list[str]
    batch: int = 0

    def mark(self) -> Mark:
        offsets = {("t", 0): 100 * self.epoch + self.batch}
        token = Token(self.place.branch.removeprefix("ingest_").rpartition("_")[0], 1, self.epoch, self.batch)
        return Mark(token, SourceIdentity("c", {"t": "id"}), offsets, offsets, offsets)

    def files(self, *ids: int) -> BatchFiles:
        return BatchFiles(*self.bench.files(*ids))

    def land(self, *ids: int, batch: BatchFiles | None = None, extra: Mapping[str, str] | None = None) -> Position:
        self.batch += 1
        self.place = self.way.land(self.place, batch or self.files(*ids), self.mark(), extra or {})
        return self.place

    def append(self, number: int, extra: Mapping[str, str] | None = None) -> Position:
        self.batch += 1
        rows = [{"id": number, "site": "log"}]
        self.place = self.way.append(self.place, rows, self.mark(), extra or {})
        return self.place


@dataclass
class Process:
    """Starts of one process share their turns."""

    bench: LandingBench
    turns: Turns = field(default_factory=Turns)

    def start(self, epoch: int = 1, pipeline: str = "plant", way: str = "branch") -> Start:
        told: list[str] = []

        def tell(_table: str, _attempt: int, error: Exception, /) -> None:
            told.append(type(error).__name__)

        publication = WAYS[way](self.bench.lake, pipeline, tell, self.turns)
        place = publication.place(publication.open(self.bench.name, epoch, claiming=False), epoch)
        return Start(self.bench, publication, epoch, place, told)


@pytest.fixture
def start(bench: LandingBench) -> Start:
    return Process(bench).start()


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


# -- everything together ----------------------------------------------------------------------------------

SCENARIOS, STEPS = 6, 9


class TestInterleavings:
    """Bounded and repeatable: a failure names the seed of its scenario."""

    @pytest.mark.parametrize("number", range(SCENARIOS))
    def test_random_ones_double_and_lose_nothing(self, bench: LandingBench, number: int) -> None:
        seed = random.randrange(2**32) if number else 20260
        print(f"seed {seed}")
        Scenario(bench, random.Random(seed)).run()


@dataclass
class Scenario:
    """One pipeline whose starts replace each other and wake up, a troubled catalog, and others at the same table."""

    bench: LandingBench
    chance: random.Random
    starts: list[Start] = field(default_factory=list)
    reported: set[int] = field(default_factory=set)
    rows: int = 100
    rolled_back: bool = False

    def run(self) -> None:
        self._newer()
        for _ in range(STEPS):
            self.bench.troubles.commits = [self._trouble() for _ in range(self.chance.randrange(4))]
            self.bench.troubles.loads = [self._load() for _ in range(self.chance.randrange(5))]
            self._step()
            self.bench.troubles.arrive()
            self._check()
        self.bench.troubles.commits, self.bench.troubles.loads = [], []
        self._newer()
        assert self._land(self.starts[-1]), "the newest start must get through once nothing is troubled"
        self.bench.troubles.arrive()
        self._check()

    def _check(self) -> None:
        ids = self.bench.ids()
        assert [each for each in doubled(ids) if each >= 100] == []
        if not self.rolled_back:
            assert self.reported - {*ids} == set()

    def _step(self) -> None:
        kinds = ["land"] * 6 + ["wake"] * 2 + ["newer", "idle", "others"]
        match self.chance.choice(kinds):
            case "land":
                self._land(self.starts[-1])
            case "wake":
                self._land(self.chance.choice(self.starts))
            case "newer":
                self._newer()
            case "idle":
                self._idle(self.starts[-1])
            case "others":
                self._others()

    def _land(self, start: Start) -> bool:
        self.rows += 1
        row = self.rows
        try:
            start.land(row)
        except LakehouseError:
            # A process would end here, and its next start go on.
            if start is self.starts[-1]:
                self._newer()
            return False
        self.reported.add(row)
        return True

    def _idle(self, start: Start) -> None:
        assert isinstance(start.way, OnBranch)
        try:
            start.place = start.way.move_up(start.place)
        except LakehouseError:
            self._newer()

    def _newer(self) -> None:
        self.bench.troubles.commits, self.bench.troubles.loads = [], []
        self.starts.append(Process(self.bench).start(len(self.starts) + 1))

    def _trouble(self) -> Any:
        troubles = self.bench.troubles
        harmless = [troubles.answer_lost, troubles.request_lost, troubles.repeated, troubles.refused, troubles.held]
        acts = [Troubled.after(self._others), Troubled.after(troubles.arrive), Troubled.after(self._newer)]
        return self.chance.choice([*harmless, *harmless, *acts])

    def _load(self) -> Any:
        return self.chance.choice([passed, passed, behind(self.bench.table())])

    def _others(self) -> None:
        match self.chance.randrange(6):
            case 0 | 1:
                self.bench.append(7)
            case 2:
                self.bench.compact()
            case 3:
                self.bench.compact()
                self.bench.expire()
            case 4:
                self.bench.troubles.arrive()
            case 5:
                # The pipeline stops at this, and a person decides; nothing may be doubled by it.
                self.bench.roll_back(self.chance.choice([each.id for each in self.bench.state().ancestors()]))
                self.rolled_back = True
