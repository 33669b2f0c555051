"""Python workers of Spark are killed, as if for their memory: their batch is repeated, and the reason is logged."""

import os
from contextlib import suppress
from itertools import product
from pathlib import Path
from signal import SIGKILL, SIGTERM
from uuid import uuid4

import pytest

from lakehouse_ingest.fail_points import VARIABLE, FailPoint
from tests.services.feeding import fill
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic
from tests.services.pipelines import STARTING, Pipelines, Running, arguments, descendants, settings_text, until
from tests.services.readers import Reader, data_files

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(400)]

EVENTS, PARTITIONS, AT_ONCE = 12_000, 2, 2_000
SENTENCE = "a Python worker of Spark ended in the middle of its work"


@pytest.fixture
def topic(broker: str) -> str:
    name = f"workers_{uuid4().hex[:8]}"
    create_topic(broker, name, PARTITIONS)
    fill(broker, name, EVENTS, PARTITIONS)
    return name


def all_once(reader: Reader, events: int) -> bool:
    found = reader.by_pyiceberg("events", "dead_letters")  # none as long as the tables are not there
    assert set(found.values()) <= {1}
    return len(found) == events


def a_worker(running: Running) -> list[int]:
    return running.workers()


def their_parent(running: Running) -> list[int]:
    """Which imports for all."""
    children = [
        pid for pid in descendants(running.jvm()) if b"lakehouse_ingest.pipeline.python_daemon" in arguments(pid)
    ]
    return [pid for pid in children if pid not in running.workers()]


class TestPythonWorkers:
    def test_that_die_again_and_again_hold_nothing_up(self, topic: str, bench: Bench, pipelines: Pipelines) -> None:
        """Each at its third share. The rows of the first two are committed or written again."""
        settings = settings_text(topic, bench.broker, bench.uri, topic, max_records=AT_ONCE)
        running = pipelines.start(settings, "--until-latest", environment={VARIABLE: f"{FailPoint.IN_TASK}:3+0"})
        assert running.wait(300) == 0, running.tail()
        told = running.events("retrying")
        assert told
        assert {SENTENCE in each["error"] for each in told} == {True}, told
        reader = Reader(bench.uri, topic)
        assert all_once(reader, EVENTS)
        assert reader.by_duckdb("events", "dead_letters") == reader.by_pyiceberg("events", "dead_letters")

    def test_and_their_parent_may_be_killed_at_any_time(
        self, topic: str, bench: Bench, warehouse: Path, pipelines: Pipelines
    ) -> None:
        settings = settings_text(topic, bench.broker, bench.uri, topic, max_records=AT_ONCE)
        running, reader, events = pipelines.start(settings), Reader(bench.uri, topic), EVENTS
        for victims, busy in product((a_worker, their_parent), (True, False)):
            assert until(lambda: all_once(reader, events), STARTING, 0.5), running.tail()  # noqa: B023 - called at once
            if busy:
                known = data_files(warehouse / topic / "events")
                events += fill(bench.broker, topic, EVENTS, PARTITIONS)
                assert until(lambda: bool(data_files(warehouse / topic / "events") - known), 60, 0.002)  # noqa: B023
            for pid in victims(running):
                with suppress(ProcessLookupError):
                    os.kill(pid, SIGKILL)
            events += fill(bench.broker, topic, EVENTS, PARTITIONS)
        assert until(lambda: all_once(reader, events), STARTING, 0.5), running.tail()
        told = [each["error"] for each in running.events("retrying")]
        print("\n".join(told))
        running.send(SIGTERM)
        assert running.wait() == 0, running.tail()
        assert all(SENTENCE in each for each in told)
        assert until(lambda: not running.family(), 20), "a child was left behind"
        assert reader.by_duckdb("events", "dead_letters") == reader.by_pyiceberg("events", "dead_letters")
