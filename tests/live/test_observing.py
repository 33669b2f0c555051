"""A real batch as telemetry sees it."""

import gc
import json
import threading

import pytest

from lakehouse_ingest.sources.kafka import Kafka
from telemetry.testing import recorded
from tests.live.test_ledger import events
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
