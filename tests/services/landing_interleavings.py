"""Random interleavings of writers that replace each other, a troubled catalog, and others at the same table.

There are no marks here: a new writer opens its fence, reads which rows main holds, and commits the missing ones. So
nothing but the requirements of the requests keeps a late or an older one from committing a row a second time.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog import Attempts, CatalogError
from tests.services.landings import LandingBench, LandingWriter, doubled
from tests.services.troubled import Troubled, behind, passed

__all__ = ["TestInterleavings"]

SCENARIOS, STEPS, FIRST = 16, 10, 100
FOREIGN = 7


class TestInterleavings:
    """Bounded and repeatable: a failure names the seed of its scenario."""

    @pytest.mark.parametrize("number", range(SCENARIOS))
    def test_double_and_lose_nothing(self, bench: LandingBench, number: int) -> None:
        version = bench.formats[number % len(bench.formats)]
        if version != bench.format_version:
            # Without sequence numbers fewer of the catalog's own checks stand behind ours.
            bench.others.pyiceberg.drop_table(bench.name)
            bench.format_version = version
            bench.create()
        seed = random.randrange(2**32)
        print(f"seed {seed}, format {version}")
        Interleaving(bench, random.Random(seed)).run()


@dataclass
class Interleaving:
    """The model: each row that was ever given to a writer is in main once, when all is over."""

    bench: LandingBench
    chance: random.Random
    writers: list[tuple[LandingWriter, Attempts, int]] = field(default_factory=list)  # with what each tried last
    missing: list[int] = field(default_factory=list)
    newest: int = FIRST - 1
    reported: set[int] = field(default_factory=set)
    foreign: int = 0  # rows of others

    def run(self) -> None:
        troubles = self.bench.troubles
        self._replace()
        for _ in range(STEPS):
            troubles.commits = [self._trouble() for _ in range(self.chance.randrange(4))]
            troubles.loads = [self._load() for _ in range(self.chance.randrange(4))]
            self.chance.choice([self._commit, self._commit, self._commit, self._wake, self._others, self._replace])()
            self._check()
        troubles.commits, troubles.loads = [], []
        self._replace()
        troubles.arrive()
        while self.missing:
            self._commit()
        self._check()
        assert self._rows() == [*range(FIRST, self.newest + 1)]

    def _rows(self) -> list[int]:
        return [each for each in self.bench.ids() if each >= FIRST]

    def _check(self) -> None:
        ids = self.bench.ids()
        assert doubled([each for each in ids if each >= FIRST]) == []
        assert self.reported - {*ids} == set()
        assert ids.count(FOREIGN) == self.foreign

    def _replace(self) -> None:
        """A new start: it fences the older one before it reads what is there."""
        troubles = self.bench.troubles
        number = len(self.writers) + 1
        writer = self.bench.writer(f"ours_{number}", [f"ours_{number - 1}"])
        self.writers.append((writer, Attempts(), 0))
        troubles.loads = []  # of a replica that is behind nobody reads what is there
        self.missing = sorted({*range(FIRST, self.newest + 1)} - {*self._rows()})

    def _commit(self) -> None:
        if not self.missing:
            self.newest += 1
            self.missing = [self.newest]
        writer, row, attempts = self.writers[-1][0], self.missing[0], Attempts()
        self.writers[-1] = (writer, attempts, row)
        before = len(self.writers)
        try:
            writer.land(row, attempts=attempts)
        except CatalogError:
            if len(self.writers) == before:
                self._replace()
            return
        self.reported.add(row)
        if len(self.writers) == before:
            self.missing.remove(row)

    def _wake(self) -> None:
        """An older writer goes on with what it tried last, or with what it believes to come next."""
        writer, attempts, row = self.chance.choice(self.writers[:-1] or [(None, None, None)])
        if writer is None or attempts is None or not row:
            return
        files = self.bench.files(self.chance.choice([row, self.newest]))
        with pytest.raises((CatalogError, ValueError)):  # the latter if its last batch was done
            writer.land(files=files, attempts=self.chance.choice([attempts, Attempts()]))

    def _trouble(self) -> Any:
        troubles = self.bench.troubles
        lost = [troubles.answer_lost, troubles.request_lost, troubles.repeated, troubles.refused]
        acts = [Troubled.after(act) for act in (self._others, troubles.arrive, self._replace, self._late_and_back)]
        return self.chance.choice([*lost, *[troubles.held] * 3, *acts])

    def _load(self) -> Any:
        return self.chance.choice([passed, passed, behind(self.bench.table())])

    def _others(self) -> None:
        acts = [self._append, self.bench.compact, self._cut, self.bench.troubles.arrive]
        self.chance.choice(acts)()

    def _append(self) -> None:
        self.bench.append(FOREIGN)
        self.foreign += 1

    def _cut(self) -> None:
        self.bench.compact()
        self.bench.expire()

    def _late_and_back(self) -> None:
        """Main leaves its place for a moment and comes back to it, and late requests arrive."""
        before = self.bench.state().main
        self.bench.append(FOREIGN)
        self.bench.roll_back(before)
        self.bench.troubles.arrive()
