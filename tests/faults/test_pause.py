"""SIGSTOP in the middle of a landing, a replacement, SIGCONT: who was replaced adds nothing, and ends."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from uuid import uuid4

import pytest

from tests.services.feeding import fill
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, freeze, settings_text, until
from tests.services.readers import Coordinates, Reader, data_files
from tests.services.records import kind_of
from tests.services.surroundings import PREFIX

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

EVENTS, PARTITIONS = 8_000, 2
TABLES = ("events", "dead_letters", "lakehouse_batches")
SUPERSEDED = 3
Moment = Callable[[Running, Reader, Path, set[Path]], bool]


@dataclass(frozen=True)
class Scene:
    """A topic with events, and a pipeline that has been stopped in the middle of landing them."""

    reader: Reader
    settings: str
    paused: Running

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
    """Spark has begun a data file, and nothing is staged yet. The JVM stops first."""
    assert until(lambda: bool(data_files(data) - known), 60, 0.001), running.tail()
    running.freeze()
    return not reader.staged("events") and bool(data_files(data) - known - reader.files_of_main("events"))


def staging(running: Running, reader: Reader, data: Path, known: set[Path]) -> bool:
    """A snapshot is staged, and main has not moved. Python stops first: the JVM ends what it does."""
    assert until(lambda: bool(data_files(data) - known), 60, 0.001), running.tail()
    freeze(running.pid)
    staged = until(lambda: bool(reader.staged("events")), 5)
    freeze(running.jvm())
    return staged


def paused_while(usual: Moment) -> pytest.MarkDecorator:
    """Every test takes one moment; `make test-long` every moment with every test, and each way to publish."""
    every = product([writing, staging], ["branch", "direct"])
    scenes = [*every] if "LAKEHOUSE_TEST_LONG" in os.environ else [(usual, "branch")]
    return pytest.mark.parametrize("scene", scenes, ids=lambda scene: f"{scene[0].__name__}, {scene[1]}", indirect=True)


@pytest.fixture
def scene(request: pytest.FixtureRequest, broker: str, rest_uri: str, warehouse: Path, pipelines: Pipelines) -> Scene:
    topic = f"pause-{uuid4().hex[:8]}"
    namespace = topic.replace("-", "_")
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, EVENTS, PARTITIONS)
    moment, pipelines.environment[f"{PREFIX}CATALOG__PUBLISH"] = request.param
    settings = settings_text(topic, broker, rest_uri, namespace, max_records=1_000)
    running, reader = pipelines.start(settings), Reader(rest_uri, namespace)
    running.wait_for("batch_landed", 2)
    data = warehouse / namespace / "events"
    for _ in range(5):
        known = data_files(data)
        if moment(running, reader, data, known):
            return Scene(reader, settings, running)
        running.thaw()  # a moment too late: with the next batch
    raise AssertionError(f"never stopped in the middle of a landing\n{running.tail()}")


@paused_while(staging)
def test_who_is_woken_after_its_replacement_landed_all_adds_nothing(
    scene: Scene, bench: Bench, pipelines: Pipelines
) -> None:
    drained(bench, scene.settings, pipelines.environment)
    assert scene.landed() == scene.landed("by_duckdb")
    assert set(scene.landed().values()) == {1}
    assert len(scene.landed()) == EVENTS
    _woken_adds_nothing(scene)


# The harder case: Spark makes a branch anew that was dropped while it wrote.
@paused_while(writing)
def test_who_is_woken_when_its_replacement_has_only_begun_adds_nothing(scene: Scene, pipelines: Pipelines) -> None:
    replacement = pipelines.start(scene.settings, "--until-latest")
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
