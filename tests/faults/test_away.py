"""A broker or a catalog goes away: the pipeline waits for it, says so, and goes on by itself, or gives up in time."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.embedded.server import Server
from tests.services.doors import known
from tests.services.feeding import fill
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, settings_text, until
from tests.services.readers import Coordinates, Reader

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(400)]

EVENTS, TOPIC, NAMESPACE = 6_000, "away", "away"
AWAY_S = 5.0
GAVE_UP = 4
KINDS: dict[str, type[EmbeddedBroker | EmbeddedCatalog]] = {"broker": EmbeddedBroker, "catalog": EmbeddedCatalog}


class Machine:
    """A broker and a catalog of the test's own, with events, to be killed and started again at the same place."""

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

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()

    def fill(self) -> None:
        fill(self.addresses["broker"], TOPIC, EVENTS, 2)

    def settings(self, retry: str = "120s") -> str:
        broker, catalog = self.addresses["broker"], self.addresses["catalog"]
        return settings_text(TOPIC, broker, catalog, NAMESPACE, max_records=1_000, retry=retry)

    def landed(self, read: str = "by_pyiceberg") -> Coordinates:
        found: Coordinates = getattr(Reader(self.addresses["catalog"], NAMESPACE), read)("events", "dead_letters")
        return found


@pytest.fixture
def machine(tmp_path: Path, jars_folder: Path | None) -> Iterator[Machine]:
    made = Machine(tmp_path, jars_folder)
    try:
        for which in KINDS:
            made.start(which)
        create_topic(made.addresses["broker"], TOPIC, 2)
        made.fill()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("which", KINDS)
def test_what_comes_back_is_waited_for(which: str, machine: Machine, pipelines: Pipelines) -> None:
    running = pipelines.start(machine.settings())
    running.wait_for("batch_landed", 2)
    machine.kill(which)
    running.wait_for("retrying")
    time.sleep(AWAY_S)
    machine.start(which)
    machine.fill()
    assert until(lambda: len(machine.landed()) == 2 * EVENTS, 120, 1), running.tail()
    running.send(SIGTERM)
    assert running.wait() == 0, running.tail()
    assert set(machine.landed().values()) == {1}
    assert machine.landed() == machine.landed("by_duckdb")
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
def test_what_stays_away_is_given_up_in_one_sentence(which: str, machine: Machine, pipelines: Pipelines) -> None:
    running = pipelines.start(machine.settings(retry="3s"))
    running.wait_for("batch_landed", 2)
    machine.kill(which)
    assert running.wait(120) == GAVE_UP, running.tail()
    assert running.events("retrying"), "it gave up without having tried"
    (said,) = running.last_words()
    assert "given up after 3 s" in said
    assert not running.family()
    machine.start(which)
    pipelines.drain(machine.settings())
    assert len(machine.landed()) == EVENTS
    assert set(machine.landed().values()) == {1}
