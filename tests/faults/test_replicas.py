"""Two replicas of one pipeline, each always restarted: both make progress, and every record is written once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, current_thread
from time import sleep

import pyarrow as pa
import pytest

from lakehouse_ingest.errors import Superseded
from lakehouse_ingest.resume import replicas
from lakehouse_ingest.resume.replicas import Process
from telemetry.testing import recorded
from tests.services.flow import is_proven
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(600)]

TOPIC, RECORDS, BATCHES = "two_replicas", 30, 3
BATCH_S = 6.0  # longer than a start takes
PATIENCE = 240.0


def as_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread is a host of its own, on which each start is another process with the same number."""
    began: Counter[str] = Counter()

    def process(pid: int) -> Process:
        del pid
        pod = current_thread().name
        began[pod] += 1
        return Process(pod, 7, str(began[pod]))

    monkeypatch.setattr(replicas, "of_this_host", process)


class TestReplicas:
    def test_that_replace_each_other_take_turns(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a wait each start would end the other's batch, and nothing would ever be committed."""
        as_pods(monkeypatch)
        create_topic(bench.broker, TOPIC)
        produce(bench.broker, TOPIC, [(None, f'{{"n": {number}}}'.encode()) for number in range(RECORDS)])
        settings = bench.settings(TOPIC, stream={"max_records": RECORDS // BATCHES}, ledger={"batch_every": 0})
        end, ended, one_by_one = Event(), Counter[type[BaseException]](), Lock()

        def slowly(rows: pa.Table) -> pa.Table:
            sleep(BATCH_S)
            return rows

        def supervised(name: str) -> None:
            current_thread().name = name
            while not end.is_set():
                with one_by_one:
                    pipeline = bench.pipeline(
                        settings, telemetry=seen.telemetry, drain=False, transforms=[slowly], stop=end
                    )
                try:
                    pipeline.run()
                except Superseded:
                    ended[Superseded] += 1

        with ThreadPoolExecutor(2) as threads, recorded() as seen:
            runs = [threads.submit(supervised, f"pod-{letter}") for letter in "ab"]
            try:
                assert until(lambda: landed(bench) == RECORDS or any(run.done() for run in runs), PATIENCE, 0.2), ended
            finally:
                end.set()
            for run in runs:
                run.result(PATIENCE)
            waits = seen.total("lakehouse.warnings", event="replicas_take_turns")
        print(f"{ended[Superseded]} starts were replaced, {waits} waited")
        assert waits
        assert ended[Superseded] > replicas.FIRST
        assert bench.places(f"ns_{TOPIC}.{TOPIC}") == Counter((TOPIC, 0, offset) for offset in range(RECORDS))
        is_proven(settings)


def landed(bench: Bench) -> int:
    name = f"ns_{TOPIC}.{TOPIC}"
    head = bench.table(name).current_snapshot() if bench.lake.table_exists(name) else None
    return int(head.summary["total-records"] or 0) if head and head.summary else 0
