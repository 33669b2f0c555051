"""A requested stop: the batch in progress is committed or left alone, the exit code is 0, and no process stays."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from tests.services.doors import known
from tests.services.feeding import fill
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic
from tests.services.pipelines import STARTING, Pipelines, Running, is_spark, settings_text, until
from tests.services.readers import Reader, data_files

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(300)]

EVENTS, PARTITIONS, AT_ONCE = 12_000, 2, 2_000
HEARS_S = 0.5  # by then it has heard of a stop
STOPS = {
    "SIGTERM": lambda running: running.send(signal.SIGTERM),
    "SIGTERM to the group": lambda running: running.send_to_group(signal.SIGTERM),  # systemd and `timeout` do so
    "Ctrl-C": lambda running: running.send_to_group(signal.SIGINT),
}


@pytest.fixture
def topic(broker: str) -> str:
    name = f"stop-{uuid4().hex[:8]}"
    create_topic(broker, name, PARTITIONS)
    fill(broker, name, EVENTS, PARTITIONS)
    return name


class TestStop:
    @pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
    def test_in_the_middle_of_a_batch_loses_and_doubles_nothing(
        self, topic: str, bench: Bench, warehouse: Path, pipelines: Pipelines, stop: Callable[[Running], None]
    ) -> None:
        namespace = topic.replace("-", "_")
        settings = settings_text(topic, bench.broker, bench.uri, namespace, max_records=AT_ONCE)
        running, reader = pipelines.start(settings), Reader(bench.uri, namespace)
        _stop_while_writing(running, warehouse / namespace / "events", stop)
        assert reader.unpublished("events") == set(), "the batch under way was not landed"
        assert len(reader.by_pyiceberg("events", "dead_letters")) == AT_ONCE * len(running.events("batch_landed"))
        drained(bench, settings)
        _check_all_once(reader)

    def test_by_ctrl_c_keeps_the_embedded_catalog_until_the_last_commit(
        self, topic: str, broker: str, tmp_path: Path, pipelines: Pipelines, jars_folder: Path | None
    ) -> None:
        warehouse, namespace = tmp_path / "lake", topic.replace("-", "_")
        settings = settings_text(topic, broker, None, namespace, max_records=AT_ONCE)
        running = pipelines.start(settings, "--warehouse", str(warehouse))
        _stop_while_writing(running, warehouse / namespace / "events", STOPS["Ctrl-C"])
        again = pipelines.start(settings, "--warehouse", str(warehouse), "--until-latest")
        assert again.wait(120) == 0, again.tail()
        with EmbeddedCatalog(warehouse, port=0, jars=jars_folder) as catalog:
            reader = Reader(known(catalog), namespace)
            assert reader.unpublished("events") == set()
            _check_all_once(reader)

    def test_while_spark_starts_leaves_nothing_behind(
        self, topic: str, broker: str, rest_uri: str, tmp_path: Path, pipelines: Pipelines
    ) -> None:
        """There is no pipeline yet that could be stopped, and yet all that was begun ends in order."""
        here = tmp_path / "temporary"
        here.mkdir()
        settings = settings_text(topic, broker, rest_uri, topic.replace("-", "_"))
        running = pipelines.start(settings, environment={"TMPDIR": str(here)})
        assert until(lambda: any(map(is_spark, running.family())), STARTING), running.tail()
        running.send(signal.SIGTERM)
        assert running.wait(60) == 0, running.tail()
        assert not running.events("started")
        assert running.last_words() == []
        assert until(lambda: not running.family(), 20), "a child was left behind"
        assert [each.name for each in here.iterdir() if each.name.startswith("lakehouse-ingest-")] == []


def _stop_while_writing(running: Running, data: Path, stop: Callable[[Running], None]) -> None:
    running.wait_for("batch_landed")
    before = len(running.events("batch_landed"))
    known = data_files(data)
    assert until(lambda: bool(data_files(data) - known), 60, 0.002), running.tail()
    stop(running)
    time.sleep(HEARS_S)
    heard = len(running.events("batch_landed"))
    assert running.wait(60) == 0, running.tail()
    assert running.last_words() == []
    landed = len(running.events("batch_landed"))
    # What it is at when it hears of the stop is landed before it ends, and nothing more.
    assert before < landed <= heard + 1
    (said,) = running.events("stopped")
    assert said["batches"] == landed
    assert until(lambda: not running.family(), 20), "a child was left behind"


def _check_all_once(reader: Reader) -> None:
    found = reader.by_pyiceberg("events", "dead_letters")
    assert len(found) == EVENTS
    assert set(found.values()) == {1}
    assert reader.by_duckdb("events", "dead_letters") == found
