"""The same settings, except for `spark.master`, on several executors: each record is written once, despite kills."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest

from tests.services.feeding import fill
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic
from tests.services.pipelines import STARTING, Pipelines, Running, settings_text, until
from tests.services.readers import Reader
from tests.services.spark_cluster import HERE, Cluster, executors, tasks_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

PARTITIONS = 4
TWO_TASKS = 200_000  # records of a batch that becomes a task for each of two executors
LOOK = 0.005


@dataclass
class Machines:
    """Two executors, in processes that we have not started."""

    master: str
    executors: Callable[[Running], list[int]]


@pytest.fixture(params=["local-cluster", "standalone"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    if request.param == "local-cluster":
        yield Machines("local-cluster[2,1,1024]", lambda running: executors(running.pid))
        return
    with Cluster(tmp_path) as cluster:
        yield Machines(cluster.uri, lambda _: cluster.executors)


@pytest.fixture
def pipelines(tmp_path: Path, jars_folder: Path | None) -> Iterator[Pipelines]:
    # Spark's driver listens where the name of this machine leads to, unless it is told otherwise.
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    with Pipelines(tmp_path, jars_folder, environment={"SPARK_LOCAL_IP": HERE, "TMPDIR": str(scratch)}) as started:
        yield started


@pytest.fixture
def topic(broker: str) -> str:
    name = f"spread_{uuid4().hex[:8]}"
    create_topic(broker, name, PARTITIONS)
    return name


def settings(bench: Bench, topic: str, machines: Machines) -> str:
    text = settings_text(topic, bench.broker, bench.uri, topic, max_records=TWO_TASKS)
    return f'{text}[spark]\nmaster = "{machines.master}"\n'


def is_there_once(bench: Bench, topic: str, events: int) -> None:
    reader = Reader(bench.uri, topic)
    found = reader.by_pyiceberg("events", "dead_letters")
    assert {*found.values()} == {1}
    assert len(found) == events
    assert reader.by_duckdb("events", "dead_letters") == found


def killed_at_work(running: Running, machines: Machines) -> int:
    """Ends one executor as soon as it has a task; the id of the process."""
    found: list[int] = []

    def one_works() -> bool:
        found.extend(each for each in machines.executors(running) if tasks_of(each))
        return bool(found) or running.ended

    assert until(one_works, STARTING, LOOK), running.tail()
    assert found, running.tail()
    os.kill(found[0], SIGKILL)
    return found[0]


class TestClusterWithoutRoom:
    def test_is_told_once_and_shown_until_there_is_room(
        self, bench: Bench, topic: str, pipelines: Pipelines, tmp_path: Path
    ) -> None:
        events = fill(bench.broker, topic, 1000, PARTITIONS)
        with Cluster(tmp_path, workers=1) as cluster:
            text = settings(bench, topic, Machines(cluster.uri, lambda _: cluster.executors))
            more = '[spark.options]\n"spark.executor.memory" = "1500m"\n[health]\nport = 0\n'
            running = pipelines.start(text + more, "--until-latest")
            told = running.wait_for("tasks_wait")
            assert (told["master"], told["executors"]) == (cluster.uri, 0)
            assert "no worker has room for an executor of any number of cores and 1500m" in told["error"]
            page = running.wait_for("health_serves")["url"]
            assert "has given us 0 executors" in shown(page)["doing"][topic]["reason"]
            assert "tasks_wait" in {problem["event"] for problem in shown(page)["problems"]}
            cluster.add_worker("1500m")
            assert until(lambda: running.ended or "reason" not in shown(page)["doing"][topic], STARTING), running.tail()
            assert running.wait(STARTING) == 0, running.tail()
        assert len(running.events("tasks_wait")) == 1
        is_there_once(bench, topic, events)


def shown(page: str) -> Any:
    with urlopen(f"{page}/status.json", timeout=10) as answer:
        return json.load(answer)


class TestPipelineOnTwoExecutors:
    def test_lands_each_record_once_though_one_is_killed_in_the_middle_of_a_batch(
        self, machines: Machines, bench: Bench, topic: str, pipelines: Pipelines
    ) -> None:
        events = fill(bench.broker, topic, TWO_TASKS, PARTITIONS)
        running = pipelines.start(settings(bench, topic, machines), "--until-latest")
        killed_at_work(running, machines)
        if machines.master.startswith("local-cluster"):
            scratch = Path(pipelines.environment["TMPDIR"])
            assert [*scratch.glob("lakehouse-ingest-*/spark-home/work/app-*")], "its jars are elsewhere, and stay"
        assert not running.events("batch_landed")
        assert running.wait(STARTING) == 0, running.tail()
        assert "Lost executor" in running.log.read_text(errors="replace")
        is_there_once(bench, topic, events)
        assert until(lambda: not running.family(), 20), "a child was left behind"

    @pytest.mark.long
    def test_lands_each_record_once_though_they_are_killed_again_and_again(
        self, machines: Machines, bench: Bench, topic: str, pipelines: Pipelines
    ) -> None:
        events, kills, killed = 0, 8, set[int]()
        running = pipelines.start(settings(bench, topic, machines))
        for number in range(kills):
            events += fill(bench.broker, topic, TWO_TASKS, PARTITIONS)
            victim = killed_at_work(running, machines)
            killed.add(victim)
            print(f"kill {number} of {victim}: {len(running.events('batch_landed'))} batches have landed")
            reader, all_of_them = Reader(bench.uri, topic), events
            assert until(
                lambda: len(reader.by_pyiceberg("events", "dead_letters")) == all_of_them,  # noqa: B023 - called at once
                STARTING,
                0.5,
            ), running.tail()
        assert len(killed) == kills
        is_there_once(bench, topic, events)
