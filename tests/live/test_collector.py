"""A pipeline, and `verify` after it, push to a real collector, as deployed: the spans of a batch, and every number."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.operations.verify.findings import FindingKind
from telemetry import INSTRUMENTS
from telemetry.prometheus_names import prometheus_name
from tests.services.collector import Collector
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import MADE
from tests.services.pipelines import Pipelines, settings_text, until
from tests.services.prometheus import Prometheus
from tests.services.readers import Reader

pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]  # the first to ask fetches, or builds, what it asks for

PARTS = ("bucket", "sum", "count")
KINDS = ("order", "payment", "refund")


class TestCollector:
    def test_gets_the_spans_and_the_numbers_of_a_batch_and_of_verify(
        self, topic: str, broker: str, rest_uri: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        create_topic(broker, topic, 1)
        events = [json.dumps({"n": n, "ts_ms": MADE + n, "type": KINDS[n % 3]}).encode() for n in range(30)]
        produce(broker, topic, [(None, value) for value in [*events, b"{"]])
        namespace = f"ns_{topic}"
        settings = settings_text(topic, broker, rest_uri, namespace, type_from="field:type", table='table = "{type}"')
        with (
            Collector(tmp_path) as collector,
            Prometheus(tmp_path, {"lakehouse-collector": collector.target}) as prometheus,
            Pipelines(tmp_path, jars_folder) as pipelines,
        ):
            settings += f"""
[telemetry]
traces = true
metrics = true
exporter = "otlp_grpc"
endpoint = "{collector.grpc}"
"""
            pipelines.drain(settings)
            verified = pipelines.start(settings, verb="verify")
            assert verified.wait() == 0, verified.tail()
            # -- spans --------------------------------------------------------------------------------------------
            assert until(lambda: any(span["name"] == "batch" for span in collector.spans()), 30)
            spans = collector.spans()
            (batch,) = [span for span in spans if span["name"] == "batch"]
            assert (_said(batch, "landed"), _said(batch, "dead")) == ("30", "1")
            below = [span for span in spans if _is_below(span, batch, spans)]
            tables = {f"{namespace}.{name}" for name in (*KINDS, "dead_letters")}
            for stage in ("commit", "verify"):
                assert {_said(span, "table") for span in below if span["name"] == stage} == tables, stage
            assert {"write", "plan", "record"} <= {span["name"] for span in below}
            reader = Reader(rest_uri, namespace)
            for kind in KINDS:
                snapshot = reader.table(kind).current_snapshot()
                assert snapshot
                assert snapshot.summary
                assert snapshot.summary["lakehouse.trace"] == batch["traceId"], "from a row one finds its trace"
            # -- metrics ------------------------------------------------------------------------------------------
            assert until(lambda: bool(prometheus.ask("lakehouse_verify_findings")), 60), "it is gathered, then scraped"
            for kind in KINDS:
                rows = len(reader.table(kind).scan().to_arrow())
                at = f'lakehouse_table="{namespace}.{kind}",lakehouse_outcome="landed"'
                assert prometheus.value(f"lakehouse_records_total{{{at}}}") == rows == 10
            assert prometheus.value('lakehouse_records_total{lakehouse_reason="broken_json"}') == 1
            named = {
                prometheus_name(it.name, it.unit, counter=it.kind == "counter", gauge=it.kind == "gauge"): it.kind
                for it in INSTRUMENTS.values()
            }
            ours = {each["metric"]["__name__"] for each in prometheus.ask('{__name__=~"lakehouse_.+"}')}
            parts = {f"{name}_{part}" for name, kind in named.items() if kind == "histogram" for part in PARTS}
            assert ours <= {*named, *parts}, "by the same names as /metrics has"
            assert prometheus.value("sum(lakehouse_verify_findings)") == 0
            found = prometheus.ask("lakehouse_verify_findings")
            assert {each["metric"]["lakehouse_kind"] for each in found} == {*map(str, FindingKind)}, (
                "what was wrong ends"
            )
            assert {each["metric"]["instance"] for each in found} == {"verify"}, "and the next one takes its place"


def _said(span: Any, attribute: str) -> str:
    return str(span["attributes"].get(f"lakehouse.{attribute}"))


def _is_below(span: Any, above: Any, spans: list[Any]) -> bool:
    by_id = {each["spanId"]: each for each in spans}
    while span := by_id.get(span["parentSpanId"]):
        if span["spanId"] == above["spanId"]:
            return True
    return False
