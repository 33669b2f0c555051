"""A broker or a catalog goes away: the pipeline says so, waits, and goes on by itself, or gives up after the limit."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from uuid import uuid4

import pytest

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.server import Server
from tests.services.doors import known
from tests.services.feeding import fill
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, settings_text, until
from tests.services.readers import Coordinates, Reader

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(400)]

EVENTS = 6_000
AWAY_S = 5.0
GAVE_UP = 4
KINDS: dict[str, type[EmbeddedBroker | EmbeddedCatalog]] = {"broker": EmbeddedBroker, "catalog": EmbeddedCatalog}


class Machine:
    """A broker and a catalog of these tests' own, to be killed and started again at the same place."""

    def __init__(self, folder: Path, jars: Path | None) -> None:
        self._folder, self._jars = folder, jars
        self._servers: dict[str, Server] = {}
        self.addresses: dict[str, str] = {}

    def start(self, which: str) -> None:
        port = None if which in self.addresses else 0  # None: that of the last time
        server = KINDS[which](self._folder / which, port, jars=self._jars)
        self._servers[which] = server
        address = server.start()
        if isinstance(server, EmbeddedCatalog):
            known(server)
        assert self.addresses.setdefault(which, address) == address

    def kill(self, which: str) -> None:
        server = self._servers[which]
        assert server.java
        os.kill(server.java, SIGKILL)
        server.stop()

    def whole(self) -> None:
        """Starts what a test has left killed."""
        for which in KINDS:
            if which not in self._servers or not self._servers[which].running:
                self.start(which)

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


@dataclass(frozen=True)
class Scene:
    """A topic with events on this machine, and the namespace of the same name."""

    machine: Machine
    topic: str

    def fill(self) -> None:
        fill(self.machine.addresses["broker"], self.topic, EVENTS, 2)

    def settings(self, retry: str = "120s") -> str:
        broker, catalog = self.machine.addresses["broker"], self.machine.addresses["catalog"]
        return settings_text(self.topic, broker, catalog, self.topic, max_records=1_500, retry=retry)

    def landed(self, read: str = "by_pyiceberg") -> Coordinates:
        reader = Reader(self.machine.addresses["catalog"], self.topic)
        found: Coordinates = getattr(reader, read)("events", "dead_letters")
        return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("away"), jars_folder)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def scene(own: Machine) -> Scene:
    own.whole()
    scene = Scene(own, f"away_{uuid4().hex[:8]}")
    create_topic(own.addresses["broker"], scene.topic, 2)
    scene.fill()
    return scene


class TestOutage:
    def test_that_ends_is_waited_for(self, scene: Scene, pipelines: Pipelines) -> None:
        """The broker, and after it the catalog; each in the middle of the events."""
        running = pipelines.start(scene.settings())
        for number, which in enumerate(KINDS):
            if number:
                scene.fill()
            landed, tried = len(running.events("batch_landed")), len(running.events("retrying"))
            running.wait_for("batch_landed", landed + 2)
            scene.machine.kill(which)
            running.wait_for("retrying", tried + 1)
            time.sleep(AWAY_S)
            scene.machine.start(which)
            scene.fill()
            events = 2 * EVENTS * (number + 1)
            assert until(lambda: len(scene.landed()) == events, 120, 1), running.tail()  # noqa: B023 - called at once
        running.send(SIGTERM)
        assert running.wait() == 0, running.tail()
        assert set(scene.landed().values()) == {1}
        assert scene.landed() == scene.landed("by_duckdb")
        told = running.events("retrying")
        attempts = 0
        for event in running.events():
            if event["event"] == "batch_landed":
                attempts = 0
            elif event["event"] == "retrying":
                attempts += 1
                assert event["attempt"] == attempts
        assert all(event["error"] for event in told)

    @pytest.mark.parametrize("which", KINDS)
    def test_that_lasts_is_given_up_in_one_sentence(
        self, which: str, scene: Scene, bench: Bench, pipelines: Pipelines
    ) -> None:
        running = pipelines.start(scene.settings(retry="3s"))
        running.wait_for("batch_landed", 2)
        scene.machine.kill(which)
        assert running.wait(120) == GAVE_UP, running.tail()
        assert running.events("retrying"), "it gave up without having tried"
        (said,) = running.last_words()
        assert "given up after 3 s" in said
        assert not running.family()
        scene.machine.start(which)
        drained(bench, scene.settings())
        assert len(scene.landed()) == EVENTS
        assert set(scene.landed().values()) == {1}
