"""SIGSTOP in the middle of a batch, a replacement, SIGCONT: the replaced process adds nothing, and ends."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from signal import SIGSTOP
from uuid import uuid4

import pytest

from tests.services.feeding import fill
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, freeze, settings_text, until
from tests.services.readers import Coordinates, Reader, data_files, is_whole
from tests.services.records import kind_of
from tests.services.surroundings import PREFIX

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

EVENTS, PARTITIONS, AT_ONCE = 20_000, 2, 1_000
TABLES = ("events", "dead_letters", "lakehouse_batches")
SUPERSEDED = 3
SETTLES_S = 2.0
TRIES = 15
Moment = Callable[[Running, Reader, Path, set[Path]], bool]


@dataclass(frozen=True)
class Scene:
    """A topic with events, and a pipeline that has been stopped in the middle of landing them."""

    reader: Reader
    settings: str
    paused: Running

    @property
    def at_once(self) -> str:
        """The same settings for who lands what is left, which needs no moments in between."""
        return self.settings.replace(f"max_records = {AT_ONCE}", f"max_records = {EVENTS}")

    def tables(self) -> dict[str, tuple[list[int], int]]:
        """All that a reader can see: main's snapshots, and how many rows there are."""
        return {
            name: (self.reader.main(name), self.reader.table(name).scan().to_arrow().num_rows)
            for name in TABLES
            if self.reader.exists(name)
        }

    def landed(self, read: str = "by_pyiceberg") -> Coordinates:
        found: Coordinates = getattr(self.reader, read)("events", "dead_letters")
        return found


def writing(running: Running, reader: Reader, data: Path, known: set[Path]) -> bool:
    """A task has begun a data file. The workers stop first, and at once: a file is whole after milliseconds."""
    workers = running.workers()
    assert until(lambda: bool(data_files(data) - known), 60, 0.0005), running.tail()
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, SIGSTOP)
    running.freeze()
    begun = data_files(data) - known
    return any(not is_whole(file) for file in begun) and bool(begun - reader.files_of_main("events"))


def written(running: Running, reader: Reader, data: Path, known: set[Path]) -> bool:
    """The files are whole, and main has not moved. The driver stops first: the tasks end what they do."""
    assert until(lambda: bool(data_files(data) - known), 60, 0.001), running.tail()
    freeze(running.pid)
    until(lambda: False, SETTLES_S)  # what it has asked for is answered, and its tasks are done
    running.freeze()
    files = data_files(data) - known
    return all(is_whole(file) for file in files) and bool(files - reader.files_of_main("events"))


def paused_while(usual: Moment) -> pytest.MarkDecorator:
    """Every test takes one moment; `make test-long` every moment with every test, and each way to publish."""
    every = product([writing, written], ["branch", "direct"])
    scenes = [*every] if "LAKEHOUSE_TEST_LONG" in os.environ else [(usual, "branch")]
    return pytest.mark.parametrize("scene", scenes, ids=lambda scene: f"{scene[0].__name__}, {scene[1]}", indirect=True)


@pytest.fixture
def scene(request: pytest.FixtureRequest, broker: str, rest_uri: str, warehouse: Path, pipelines: Pipelines) -> Scene:
    topic = f"pause-{uuid4().hex[:8]}"
    namespace = topic.replace("-", "_")
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, EVENTS, PARTITIONS)
    moment, pipelines.environment[f"{PREFIX}CATALOG__PUBLISH"] = request.param
    settings = settings_text(topic, broker, rest_uri, namespace, max_records=AT_ONCE)
    running, reader = pipelines.start(settings), Reader(rest_uri, namespace)
    running.wait_for("batch_landed", 2)
    data = warehouse / namespace / "events"
    for _ in range(TRIES):
        known = data_files(data)
        if moment(running, reader, data, known):
            return Scene(reader, settings, running)
        running.thaw()  # a moment too late: with the next batch
    raise AssertionError(f"never stopped in the middle of a landing\n{running.tail()}")


class TestPausedProcess:
    @paused_while(written)
    def test_adds_nothing_after_its_replacement_has_committed_everything(
        self, scene: Scene, bench: Bench, pipelines: Pipelines
    ) -> None:
        drained(bench, scene.at_once, pipelines.environment)
        assert scene.landed() == scene.landed("by_duckdb")
        assert set(scene.landed().values()) == {1}
        assert len(scene.landed()) == EVENTS
        _woken_adds_nothing(scene)

    # The harder case: main is still where it was when they were written.
    @paused_while(writing)
    def test_adds_nothing_when_its_replacement_has_only_begun(self, scene: Scene, pipelines: Pipelines) -> None:
        replacement = pipelines.start(scene.at_once, "--until-latest")
        replacement.wait_for("started")
        replacement.freeze()
        assert not replacement.events("batch_landed"), "the replacement was too quick"
        _woken_adds_nothing(scene)
        replacement.thaw()
        assert replacement.wait(120) == 0, replacement.tail()
        assert len(scene.landed()) == EVENTS
        assert set(scene.landed().values()) == {1}
        assert scene.landed() == scene.landed("by_duckdb")


def _woken_adds_nothing(scene: Scene) -> None:
    before, recorded = scene.tables(), kind_of(scene.reader, "batch")
    scene.paused.thaw()
    assert scene.paused.wait(60) == SUPERSEDED, scene.paused.tail()
    said = scene.paused.last_words()
    assert len(said) == 1, said
    assert "has taken over" in said[0]
    assert not scene.paused.family(), "its JVM lives on"
    assert scene.tables() == before
    assert kind_of(scene.reader, "batch") == recorded
