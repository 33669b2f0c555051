"""Starts of a pipeline that commit to one table with one request a batch."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from catalog import CatalogClient
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.tables.position import Position
from lakehouse_ingest.tables.publishing import WAYS, BatchFiles, Publication
from lakehouse_ingest.tables.turns import Turns
from tests.services.landings import LandingBench, without_waiting

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
