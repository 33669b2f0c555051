"""A real batch as telemetry sees it."""

import gc
import json
import threading
import time
from functools import partial
from itertools import zip_longest

import pyarrow as pa
import pytest

from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from telemetry import TelemetryOptions, start
from telemetry.testing import recorded
from tests.services.faulty import Faulty
from tests.services.flow import Heard
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events
from tests.services.otlp import OtlpReceiver
from tests.services.pipelines import until
from tests.services.readers import duckdb_at

pytestmark = pytest.mark.live


TABLES = ("order", "payment", "refund")
TREE = {
    "start": {("source.connect", ""), ("sink.connect", ""), ("source.read", "")},
    "stop": {("source.close", ""), ("sink.flush", ""), ("sink.close", ""), ("acknowledge", "")},
    "batch": {("write", ""), ("dead_letters", ""), ("record", ""), ("acknowledge", "")}
    | {(name, table) for name in ("commit", "verify") for table in (*TABLES, "dead_letters")},
    "write": {("plan", "")},
}
CALLS = {"source.read", "commit", "acknowledge"}  # somebody else is asked
OF_TASKS = ("read", "route", "decode", "shape", "write")  # stages without spans of their own


def _sent_in(number: int, flags: str = "01") -> bytes:
    return f"00-{number:032x}-{number:016x}-{flags}".encode()


class TestTrace:
    def test_of_a_batch_is_a_tree_of_spans_linked_to_its_start_and_producers(self, bench: Bench, topic: str) -> None:
        """As a collector gets it: one trace each for the start, the batch and the stop, with links. The batch also
        links
        to the spans in which its records were sent. Its id is in the tables."""
        create_topic(bench.broker, topic, 1)
        ours = [("traceparent", _sent_in(1)), ("other", b"x")]
        headers = [
            ours,
            [("traceparent", _sent_in(2))],
            [("traceparent", _sent_in(3, "00"))],
            [("traceparent", b"00-")],
        ]
        kinds = ["order", "payment", "refund", "order", "payment"]
        values = [*(f'{{"type": "{kind}", "n": {n}}}'.encode() for n, kind in enumerate(kinds)), b"{"]
        produce(bench.broker, topic, [(None, value, more) for value, more in zip_longest(values, headers)])
        settings = bench.settings(topic, stream={"type_from": "field:type"}, table={"table": "{type}"})
        with OtlpReceiver() as receiver:
            sink = start(TelemetryOptions(traces=True, metrics=True, endpoint=receiver.endpoint_grpc))
            bench.ingest(settings, telemetry=sink)
            assert sink.shutdown(30)
            spans = receiver.spans()
            assert receiver.metrics("lakehouse.batches")
        by_id = {span.span_id: span for span in spans}
        roots = {span.name: span for span in spans if not span.parent_id}
        assert roots.keys() == {"start", "batch", "stop"}
        tree: dict[str, set[tuple[str, str]]] = {}
        for span in spans:
            if span.parent_id:
                parent = by_id[span.parent_id]
                assert parent.trace_id == span.trace_id
                tree.setdefault(parent.name, set()).add((span.name, span.attributes.get("db.collection.name", "")))
        assert tree == TREE
        assert len(spans) == 3 + sum(map(len, TREE.values())), "each of them once"
        assert {span.status for span in spans} == {"unset"}
        assert {span.name: span.kind for span in spans} == {
            span.name: "client" if span.name in CALLS else "consumer" if span.name == "batch" else "internal"
            for span in spans
        }
        batch, begun = roots["batch"], (roots["start"].trace_id, roots["start"].span_id)
        assert roots["stop"].links == (begun,)
        assert {*batch.links} == {begun, *((f"{n:032x}", f"{n:016x}") for n in (1, 2))}
        said = {
            "messaging.system": "kafka",
            "messaging.destination.name": topic,
            "messaging.consumer.group.name": topic,
            "messaging.operation.type": "process",
            "messaging.batch.message_count": 6,
            "lakehouse.received": 6,
            "lakehouse.landed": 5,
            "lakehouse.dead": 1,
            "lakehouse.pipeline": topic,
        }
        assert said.items() <= batch.attributes.items()
        (write,) = (span for span in spans if span.name == "write")
        assert write.attributes["lakehouse.tasks"] == 1
        assert all(write.attributes[f"lakehouse.{stage}_s"] > 0 for stage in OF_TASKS)
        (commit,) = (
            span for span in spans if (span.name, span.attributes.get("db.collection.name")) == ("commit", "payment")
        )
        namespace = f"ns_{topic}"
        said = {
            "db.system.name": "iceberg",
            "db.namespace": namespace,
            "db.operation.name": "commit",
            "lakehouse.rows": 2,
            "lakehouse.files": 1,
            "lakehouse.snapshot": bench.table(f"{namespace}.payment").metadata.current_snapshot_id,
        }
        assert said.items() <= commit.attributes.items()
        for table in (*TABLES, "dead_letters"):
            assert bench.published(f"{namespace}.{table}")[0].summary["lakehouse.trace"] == batch.trace_id
        with duckdb_at(bench.uri) as duck:
            found = duck.sql(
                f"SELECT DISTINCT b.trace_id FROM lake.{namespace}.order r, lake.{namespace}.lakehouse_batches b,"
                " UNNEST(b.partitions) AS u(p) WHERE r.n = 3 AND p.topic = r._source.topic AND"
                ' p."partition" = r._source."partition" AND r._source."offset" BETWEEN p.start AND p."end" - 1'
            )
            assert found.fetchall() == [(batch.trace_id,)]

    def test_of_a_failed_batch_shows_the_error_and_no_secret(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(3), 1))

        def broken(_: pa.Table) -> pa.Table:
            raise SettingsRefused("nobody knows password=planted-4711")

        with recorded() as seen, pytest.raises(SettingsRefused):
            bench.ingest(bench.settings(topic), telemetry=seen.telemetry, transforms=[broken])
        statuses = {span.name: span.status for span in seen.spans}
        assert {name for name, status in statuses.items() if status == "error"} == {"write", "batch", "stop"}
        assert statuses["start"] == "unset"
        batch = seen.span("batch")
        assert batch.attributes["error.type"] == "SettingsRefused"
        ((_, details),) = batch.events
        assert details["exception.message"].endswith("nobody knows password=***")
        assert "planted" not in str(seen.spans)

    def test_of_a_failed_start_stands_alone(self, bench: Bench, topic: str) -> None:
        with recorded() as seen, pytest.raises(TryAgain):
            bench.ingest(bench.settings(topic, retry={"first": 0.1, "limit": 0}), telemetry=seen.telemetry)
        assert {span.name: (span.parent, span.status) for span in seen.spans} == {
            "source.connect": ("start", "error"),
            "start": (None, "error"),
        }

    def test_of_declared_columns_has_no_plan_and_at_most_32_producers(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(20), 1))
        declared = {"columns": [{"name": "n", "type": "long"}], "event_time_unit": "ms"}
        bench.ingest(bench.settings(topic, table=declared))  # the first batch makes the table
        produce(bench.broker, topic, events(range(20, 40), 1))
        produce(bench.broker, topic, [(None, b'{"n": 40}', [("traceparent", _sent_in(n))]) for n in range(1, 41)])
        with recorded() as seen:
            bench.ingest(bench.settings(topic, table=declared), telemetry=seen.telemetry)
        batch = seen.span("batch")
        assert "plan" not in {span.name for span in seen.spans}
        assert batch.links == (seen.span("start").span_id, *(f"{n:016x}" for n in range(1, 33))), "40 have been sent"


class TestMetrics:
    def test_of_a_batch_cover_every_stage(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        began = time.time()
        produce(bench.broker, topic, [*events(range(20), 1), (None, b"{")])
        produced = time.time()
        with recorded() as seen:
            bench.ingest(bench.settings(topic), telemetry=seen.telemetry)
        ended = time.time()
        name = f"ns_{topic}.{topic}"
        at = {"pipeline": topic, "stream": topic}
        assert seen.total("lakehouse.records", outcome="landed", table=name, **at) == 20
        assert seen.total("lakehouse.records", outcome="dead", reason="broken_json", **at) == 1
        assert seen.total("lakehouse.batches", outcome="landed", **at) == 1
        stages = {point.attributes["lakehouse.stage"] for point in seen.points("lakehouse.stage.duration")}
        assert stages == {*OF_TASKS, "plan", "dead_letters", "record"}
        assert seen.points("lakehouse.commit.duration")
        written = bench.published(name)[0].timestamp_ms / 1000  # and seen a little later
        assert written - produced < seen.total("lakehouse.freshness", **at) < ended - began

    @pytest.mark.usefixtures("_looks_often")
    def test_give_the_lag_as_the_brokers_end_minus_the_ledger(self, bench: Bench, topic: str) -> None:
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


def kafka_clients() -> int:
    gc.collect()
    return sum(isinstance(each, Kafka) for each in gc.get_objects())


class TestPipeline:
    def test_leaves_no_threads_clients_or_checkpoints_after_a_start(self, bench: Bench, topic: str) -> None:
        """Nor a checkpoint, however often a stream begins again."""
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

        # One is that by which Java says what Python may forget.
        assert until(lambda: len(left()) <= 1, 30), left()
        assert kafka_clients() <= clients
        assert not [*bench.scratch.rglob(f"checkpoint-{settings.name}-*")]

    def test_leaves_no_clients_after_failed_batches(self, bench: Bench, topic: str) -> None:
        """Nor anything else from the frames that their errors went through: pyspark keeps these."""
        create_topic(bench.broker, topic, 1)
        with Faulty(bench.uri) as proxy:
            at = {"uri": proxy.uri, "namespace": f"ns_{topic}"}
            pipeline = bench.pipeline(bench.settings(topic, catalog=at), drain=False)
            heard = Heard.of(pipeline)
            with running(pipeline):
                clients = 0
                for number in range(4):
                    before = len(heard.retries)
                    if number:
                        proxy.fail(503, method="POST|GET", path=rf"/tables/{topic}$", times=10_000)
                    produce(bench.broker, topic, events(range(number, number + 1), 1))
                    if number:
                        assert until(partial(lambda before: len(heard.retries) > before, before), 90), (
                            "none has ended by it"
                        )
                        proxy.heal()
                    assert until(partial(lambda wanted: pipeline.landed == wanted, number + 1), 90)
                    clients = clients or kafka_clients()
                # One is that of the last error, which the stream still has in hand.
                assert until(lambda: kafka_clients() <= clients + 1, 30), kafka_clients()

    def test_reports_what_spark_logs_as_an_error(self, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
        """And no more than that: each of its lines comes to `say` of the session, here `print`."""
        java = bench.spark._jvm
        assert java is not None
        logger = java.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.scheduler.DAGScheduler")
        logger.info("more than is needed")
        logger.error("an executor is gone")
        said = [""]

        def heard() -> bool:
            said[0] += capsys.readouterr().out
            return "DAGScheduler: an executor is gone" in said[0]

        assert until(heard, 20)
        assert "more than is needed" not in said[0]
