"""Spans and metrics reach a real collector over both protocols, and a dead or hanging one costs nothing."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from telemetry import TelemetryOptions, start
from tests.services.otlp import OtlpReceiver
from tests.services.secured_kafka import Authority

pytestmark = pytest.mark.live

AT = {"pipeline": "plant-7", "stream": "sensors"}
PROTOCOLS = ("otlp_grpc", "otlp_http")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def noise() -> Iterator[list[str]]:
    """What reaches the root logger, as an application would set it up; caplog also sees what does not."""
    seen: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    listener = Listener()
    logging.getLogger().addHandler(listener)
    yield seen
    logging.getLogger().removeHandler(listener)


def _settings(exporter: str, endpoint: str, interval_s: float = 60) -> TelemetryOptions:
    return TelemetryOptions(
        traces=True,
        metrics=True,
        exporter=exporter,
        endpoint=endpoint,
        headers={"X-Scope-OrgID": "tenant-1"},
        resource={"deployment.environment.name": "test"},
        metric_interval_s=interval_s,
    )


def _endpoint(receiver: OtlpReceiver, exporter: str) -> str:
    return receiver.endpoint_grpc if exporter == "otlp_grpc" else receiver.endpoint_http


def _nobody_listens() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class TestExport:
    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_delivers_spans_with_parents_attributes_and_errors(self, receiver: OtlpReceiver, exporter: str) -> None:
        telemetry = start(_settings(exporter, _endpoint(receiver, exporter)))
        with telemetry.span("batch", batch=7, **AT) as batch:
            with telemetry.span("decode"):
                pass
            with pytest.raises(ValueError, match="broken"), telemetry.span("land"):
                raise ValueError("broken")
        assert telemetry.shutdown(10)

        (root,) = receiver.spans("batch")
        (decode,) = receiver.spans("decode")
        (land,) = receiver.spans("land")
        assert (root.trace_id, root.span_id, root.parent_id) == (batch.trace_id, batch.span_id, "")
        assert decode.parent_id == land.parent_id == root.span_id
        assert decode.trace_id == land.trace_id == root.trace_id
        assert root.attributes["lakehouse.batch"] == 7
        assert root.resource["service.name"] == "lakehouse-ingest"
        assert root.resource["deployment.environment.name"] == "test"
        assert (root.status, decode.status, land.status) == ("unset", "unset", "error")
        assert [name for name, _ in land.events] == ["exception"]
        assert all(headers["x-scope-orgid"] == "tenant-1" for headers in receiver.headers())

    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_delivers_metrics_with_unit_kind_and_attributes(self, receiver: OtlpReceiver, exporter: str) -> None:
        telemetry = start(_settings(exporter, _endpoint(receiver, exporter)))
        telemetry.count("lakehouse.records", 500, table="sensors", outcome="landed", **AT)
        telemetry.count("lakehouse.records", 100, table="sensors", outcome="landed", **AT)
        telemetry.record("lakehouse.batch.duration", 1.5, **AT)
        telemetry.record("lakehouse.batch.duration", 2.5, **AT)
        assert telemetry.shutdown(10)

        (records,) = receiver.metrics("lakehouse.records")
        (duration,) = receiver.metrics("lakehouse.batch.duration")
        assert (records.kind, records.unit, records.value) == ("sum", "{record}", 600)
        assert records.attributes["lakehouse.table"] == "sensors"
        assert (duration.kind, duration.unit, duration.value, duration.count) == ("histogram", "s", 4, 2)

    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_pushes_everything_before_the_shutdown(self, receiver: OtlpReceiver, exporter: str) -> None:
        telemetry = start(_settings(exporter, _endpoint(receiver, exporter), interval_s=0.1))
        with telemetry.span("batch"):
            telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
        receiver.wait(lambda: receiver.spans("batch") and receiver.metrics("lakehouse.batches"))
        assert telemetry.shutdown(10)

    def test_lets_a_process_end_at_once_without_a_shutdown(self) -> None:
        program = (
            "from telemetry import TelemetryOptions, start\n"
            f"t = start(TelemetryOptions(traces=True, metrics=True, endpoint={_nobody_listens()!r}))\n"
            "with t.span('batch'): pass\n"
            "import time; print(time.monotonic())\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert time.monotonic() - float(ended.stdout) < 10, "by the machine's clock, which is the same for both"


class TestStandardVariables:
    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_are_used_where_our_settings_are_silent(
        self, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, exporter: str
    ) -> None:
        for name, value in {
            "OTEL_EXPORTER_OTLP_ENDPOINT": _endpoint(receiver, exporter),
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-scope-orgid=tenant%201,authorization=Bearer%20planted-0815",
            "OTEL_SERVICE_NAME": "named-outside",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=plant,service.version=7",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }.items():
            monkeypatch.setenv(name, value)
        telemetry = start(TelemetryOptions(traces=True, metrics=True, exporter=exporter))
        with telemetry.span("batch", said="a planted-0815 in it"):
            telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
        receiver.wait(lambda: receiver.spans("batch") and receiver.metrics("lakehouse.batches"))
        assert telemetry.shutdown(10)
        (span,) = receiver.spans("batch")
        assert span.resource["service.name"] == "named-outside"
        assert span.resource["deployment.environment.name"] == "plant"
        assert span.resource["service.version"] == "7"
        assert span.attributes["lakehouse.said"] == "a *** in it"
        (metric,) = receiver.metrics("lakehouse.batches")
        assert metric.resource["service.name"] == "named-outside"
        for headers in receiver.headers():
            assert headers["x-scope-orgid"] == "tenant 1"
            assert headers.get("content-encoding", "gzip") == "gzip"

    @pytest.mark.parametrize("exporter", PROTOCOLS)
    @pytest.mark.parametrize("compression", ["gzip", "deflate"])
    def test_reach_a_collector_that_asks_for_a_certificate(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: str, compression: str
    ) -> None:
        """The collector has its own authority and asks for a client certificate. Without one nothing arrives."""
        authority = Authority(tmp_path)
        authority.sign("receiver", "IP:127.0.0.1")
        authority.sign("ingest")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.path("ca.crt"))
        with OtlpReceiver(tmp_path) as receiver, capture_logs() as lines:
            stranger = start(_settings(exporter, _endpoint(receiver, exporter)))
            with stranger.span("batch"):
                pass
            assert not stranger.shutdown(2)
            assert [line["event"] for line in lines] == ["telemetry_not_delivered"]
            assert receiver.spans() == []
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", authority.path("ingest.key"))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", authority.path("ingest.crt"))
            telemetry = start(_settings(exporter, _endpoint(receiver, exporter)))
            with telemetry.span("batch"):
                telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
            assert telemetry.shutdown(10)
            assert receiver.spans("batch")
            assert receiver.metrics("lakehouse.batches")

    def test_with_an_unknown_compression_are_refused_in_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "zip")
        assert start(TelemetryOptions(traces=True)).shutdown(5)
        with pytest.raises(ValueError, match=r"OTEL_EXPORTER_OTLP_METRICS_COMPRESSION 'zip': known are none, gzip"):
            start(TelemetryOptions(metrics=True))

    def test_set_the_length_of_the_queue(self, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "none of this")
        receiver.hang()
        telemetry = start(_settings("otlp_http", receiver.endpoint_http))
        for _ in range(15):
            with telemetry.span("batch"):
                pass
        assert telemetry.dropped["traces"] == 5
        receiver.go_on()
        telemetry.shutdown(10)
        assert len(receiver.spans()) == 10

    def test_can_turn_everything_off(self, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        telemetry = start(_settings("otlp_http", receiver.endpoint_http))
        with telemetry.span("batch") as span:
            span.set(rows=1)
            telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
            assert (span.trace_id, span.recorded, span.traceparent) == (None, False, "")
        assert telemetry.shutdown(5)
        assert (receiver.spans(), receiver.metrics()) == ([], [])

    def test_can_leave_spans_unrecorded(self, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        telemetry = start(_settings("otlp_http", receiver.endpoint_http))
        with telemetry.span("batch") as span:
            assert not span.recorded
        assert telemetry.shutdown(5)
        assert receiver.spans() == []


class TestCollector:
    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_that_is_dead_costs_one_warning_and_a_bounded_shutdown(
        self, exporter: str, capfd: pytest.CaptureFixture[str], noise: list[str]
    ) -> None:
        with capture_logs() as lines:
            telemetry = start(_settings(exporter, _nobody_listens(), interval_s=0.1))
            began, worked = time.monotonic(), time.thread_time()
            for _ in range(2000):
                with telemetry.span("batch"):
                    telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
            assert time.thread_time() - worked < 2
            assert time.monotonic() - began < 5, "it waited for an export, which gives up after six seconds"
            time.sleep(1)
            began = time.monotonic()
            assert not telemetry.shutdown(2)
            assert time.monotonic() - began < 10

        (line,) = lines
        assert (line["event"], line["log_level"]) == ("telemetry_not_delivered", "warning")
        assert telemetry.dropped["traces"] == 2000
        assert telemetry.dropped["metrics"] >= 1
        assert noise == []
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("exporter", PROTOCOLS)
    def test_that_hangs_slows_no_caller_and_lost_spans_are_counted(self, receiver: OtlpReceiver, exporter: str) -> None:
        receiver.hang()
        before = threading.active_count()
        with capture_logs() as lines:
            telemetry = start(_settings(exporter, _endpoint(receiver, exporter)))
            began, worked = time.monotonic(), time.thread_time()
            for _ in range(12_000):
                with telemetry.span("batch"):
                    pass
            assert time.thread_time() - worked < 6
            assert time.monotonic() - began < 9, "it waited for an export"
            turned_away = telemetry.dropped["traces"]
            assert turned_away == 12_000 - 8192
            began = time.monotonic()
            assert not telemetry.shutdown(1)
            assert time.monotonic() - began < 10
        assert len(lines) <= 1
        receiver.go_on()
        receiver.wait(lambda: threading.active_count() <= before + 4)

    def test_that_comes_back_is_logged_and_gets_the_loss_as_a_metric(self, receiver: OtlpReceiver) -> None:
        with capture_logs() as lines:
            telemetry = start(_settings("otlp_http", receiver.endpoint_http, interval_s=0.1))
            receiver.refuse()
            with telemetry.span("batch"):
                telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
            receiver.wait(lambda: telemetry.dropped.get("traces"))
            receiver.go_on()
            with telemetry.span("batch"):
                pass
            receiver.wait(lambda: any(line["event"] == "telemetry_delivered_again" for line in lines))
            receiver.wait(lambda: receiver.metrics("lakehouse.telemetry.dropped"))
            telemetry.shutdown(5)
        assert [line["event"] for line in lines] == ["telemetry_not_delivered", "telemetry_delivered_again"]
        traces = {"lakehouse.signal": "traces"}
        assert [it.value for it in receiver.metrics("lakehouse.telemetry.dropped") if it.attributes == traces] == [1]
