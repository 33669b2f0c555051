"""A real batch as telemetry sees it."""

import gc
import json
import threading
from functools import partial

import pytest
from pyspark.sql import DataFrame

from lakehouse_ingest import looking, stream
from lakehouse_ingest.sources import of_stream
from lakehouse_ingest.sources.kafka import Kafka
from telemetry import INSTRUMENTS
from telemetry.instruments import DROPPED
from telemetry.testing import recorded
from tests.live.test_ledger import events
from tests.services.faulty import AFTER, Faulty
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live


def test_a_batch_is_a_span_with_its_stages(bench: Bench, topic: str) -> None:
    """A span a batch; below it plan, write, publish and record; the trace id stands in the commit and in the record."""
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, [*events(range(20), 1), (None, b"{")])
    with recorded() as seen:
        bench.ingest(bench.settings(topic), telemetry=seen.telemetry)
    batch = seen.span("batch")
    assert batch.attributes["lakehouse.received"] == 21
    assert batch.attributes["lakehouse.landed"] == 20
    assert batch.attributes["lakehouse.dead"] == 1
    assert batch.attributes["lakehouse.shape"] == "in memory"
    below = [span.name for span in seen.spans if span.parent == batch.name]
    assert sorted(below) == ["plan", "publish", "publish", "record", "write", "write"]
    name = f"ns_{topic}.{topic}"
    assert bench.published(name)[0].summary["lakehouse.trace"] == batch.trace_id
    assert batch.trace_id in {row["trace_id"] for row in bench.rows(f"ns_{topic}.lakehouse_batches")}
    at = {"pipeline": topic, "stream": topic}
    assert seen.total("lakehouse.records", outcome="landed", table=name, **at) == 20
    assert seen.total("lakehouse.records", outcome="dead", reason="broken_json", **at) == 1
    assert seen.total("lakehouse.batches", outcome="landed", **at) == 1
    stages = {point.attributes["lakehouse.stage"] for point in seen.points("lakehouse.stage.duration")}
    assert stages == {"plan", "write", "record"}
    assert seen.points("lakehouse.commit.duration")


def test_declared_columns_and_one_table_are_one_pass(bench: Bench, topic: str) -> None:
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, events(range(20), 1))
    declared = {"columns": [{"name": "n", "type": "long"}], "event_time_unit": "ms"}
    bench.ingest(bench.settings(topic, table=declared))  # the first batch makes the table
    produce(bench.broker, topic, events(range(20, 40), 1))
    with recorded() as seen:
        bench.ingest(bench.settings(topic, table=declared), telemetry=seen.telemetry)
    assert seen.span("batch").attributes["lakehouse.shape"] == "one pass"
    assert "plan" not in {span.name for span in seen.spans}


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOK_S", 0.2)
    monkeypatch.setattr(stream, "BEAT_S", 0.1)


@pytest.mark.usefixtures("_looks_often")
def test_a_run_emits_every_metric_of_the_catalogue_and_no_other(bench: Bench, topic: str) -> None:
    """It meets a dead letter, a new column, a neighbour's commit, an outage, a lost answer, and many snapshots."""
    create_topic(bench.broker, topic, 2)
    name, calls, outages = f"ns_{topic}.{topic}", [], []
    proxy = Faulty(bench.uri)

    def meddle(rows: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) == 2:  # until a start has ended by it
            outages.append(proxy.fail(503, method="GET", path=rf"/tables/{topic}$", times=10_000))
        if len(calls) == 3:  # between our look at the table and our commit
            table = bench.table(name)
            table.append(table.scan(limit=1).to_arrow().slice(0, 1))
        return rows

    def has_landed(count: int) -> bool:
        if seen.total("lakehouse.restarts"):
            outages[0].times = 0
        return seen.total("lakehouse.offset") == count

    with proxy, recorded() as seen:
        at = {"uri": proxy.uri, "namespace": f"ns_{topic}"}
        settings = bench.settings(topic, catalog=at, ledger={"keep_snapshots": 2, "batch_every": 0})
        proxy.fail(503, when=AFTER, path=rf"/tables/{topic}$", body='"ref-name":"main"')
        pipeline = bench.pipeline(settings, telemetry=seen.telemetry, drain=False, transforms=[meddle])
        with running(pipeline):
            values = [
                *(value for _, value, *_ in events(range(10), 1)),
                b"{",
                b'{"n": 11, "ts_ms": 1780000000000, "new": "column"}',
            ]
            for number, value in enumerate(values):
                produce(bench.broker, topic, [(None, value, None, None, number % 2)])
                if number in (3, 6, 9):
                    assert until(partial(has_landed, number + 1), 120)
            assert until(partial(has_landed, len(values)), 120)
            assert sum(of_stream(settings.source, settings.streams[0]).ends().values()) == len(values)
            assert until(lambda: bool(seen.points("lakehouse.spark.phase.duration")), 30)
        emitted = {it.name for it in INSTRUMENTS.values() if seen.points(it.name)}
        assert emitted == set(INSTRUMENTS) - {DROPPED}, "what can be lost is counted by tests/live/test_telemetry_otlp"
        rows = len(bench.rows(name)) - 1  # without the neighbour's
        assert seen.total("lakehouse.records", outcome="landed", table=name) == rows == 11
        assert seen.total("lakehouse.records", outcome="dead", reason="broken_json") == 1
        assert seen.total("lakehouse.received") == sum(map(len, values))
        assert seen.total("lakehouse.lag") == 0
        assert seen.total("lakehouse.lag.time") == 0
        files = bench.table(name).inspect.files()
        assert seen.total("lakehouse.table.files", table=name) == len(files)
        assert seen.total("lakehouse.table.size", table=name) == sum(files["file_size_in_bytes"].to_pylist())
        assert seen.total("lakehouse.table.rows", table=name) == rows + 1
        assert seen.total("lakehouse.errors") == seen.total("lakehouse.restarts") >= 1
        assert seen.total("lakehouse.batches", outcome="failed") == 1
        assert seen.total("lakehouse.commit.reconciled", table=name) == 1
        assert seen.total("lakehouse.batches", outcome="landed") == pipeline.landed
        assert seen.total("lakehouse.running") == 0


@pytest.mark.usefixtures("_looks_often")
def test_lag_is_the_brokers_end_less_what_the_ledger_has(bench: Bench, topic: str) -> None:
    create_topic(bench.broker, topic, 2)
    produce(bench.broker, topic, events(range(5), 2))
    settings = bench.settings(topic, stream={"every": 300})
    with recorded() as seen:
        pipeline = bench.pipeline(settings, telemetry=seen.telemetry, drain=False)
        with running(pipeline):
            assert until(lambda: pipeline.landed == 1, 60)
            produce(bench.broker, topic, events(range(5, 12), 2))
            assert until(lambda: seen.total("lakehouse.lag") == 7, 30)
            assert seen.total("lakehouse.offset") == 5
            assert seen.total("lakehouse.lag", topic=topic, partition=1) == 4
            assert until(lambda: seen.total("lakehouse.lag.time") > 0.1, 30)
            assert seen.total("lakehouse.lag.time") < 60
            shown = pipeline.watch.board.shown()[topic]
            assert (shown["state"], shown["batches"]) == ("running", 1), json.dumps(shown)
            assert pipeline.watch.board.ready(30).good, "while the next batch is not due it looks at the broker"
        assert pipeline.watch.board.shown()[topic]["state"] == "ended"


def test_a_start_that_has_ended_leaves_neither_threads_nor_clients(bench: Bench, topic: str) -> None:
    """However often a stream begins again."""
    create_topic(bench.broker, topic, 1)
    settings, known, clients = bench.settings(topic), set[threading.Thread](), 0
    for number in range(4):
        produce(bench.broker, topic, events(range(number, number + 1), 1))
        bench.ingest(settings)
        if not known:  # the first one starts what stays
            known, clients = {*threading.enumerate()}, kafka_clients()
    gc.collect()

    def left() -> list[threading.Thread]:  # pyiceberg's own pool grows up to its limit
        new = (each for each in threading.enumerate() if each not in known)
        return [each for each in new if not each.name.startswith("ThreadPoolExecutor")]

    assert until(lambda: not left(), 30), left()
    assert kafka_clients() <= clients


def kafka_clients() -> int:
    gc.collect()
    return sum(isinstance(each, Kafka) for each in gc.get_objects())
