"""Random interleavings of a pipeline's starts, of a troubled catalog and of others at the same table."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.landings import LandingBench, doubled
from tests.services.one_request import Process, Start, bench
from tests.services.troubled import Troubled, behind, passed

__all__ = ["bench"]  # a fixture

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
