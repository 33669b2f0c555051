"""Prometheus pulls and statsd is pushed to, over real sockets; whoever is slow or dead there slows nobody here."""

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from lakehouse_ingest.environment.embedded.claim import any_free_port
from telemetry import Telemetry, TelemetryOptions, start
from telemetry.exporters import build
from telemetry.exporters.statsd import LONGEST, datagrams
from telemetry.http_pages import AT_ONCE, SILENCE_S
from tests.services.openmetrics import read

AT = {"pipeline": "plant-7", "stream": "sensors"}
QUICK_S = 2.0  # of this thread's own work; where others have the processors, a clock on the wall shows them


def _record(telemetry: Telemetry, times: int = 1) -> None:
    for _ in range(times):
        telemetry.count("lakehouse.records", 500, table="a|b:c,d#e f", outcome="landed", **AT)
        telemetry.record("lakehouse.batch.duration", 0.5, **AT)
        telemetry.record("lakehouse.batch.duration", 1.5, **AT)
        telemetry.gauge("lakehouse.lag.time", 2.25, **AT)


# -- Prometheus -------------------------------------------------------------------------------------------


@pytest.fixture
def port() -> int:
    return any_free_port()


@pytest.fixture
def prometheus(port: int) -> Iterator[Telemetry]:
    endpoint = f"http://127.0.0.1:{port}"
    telemetry = start(TelemetryOptions(metrics=True, exporter="prometheus", endpoint=endpoint))
    yield telemetry
    telemetry.shutdown(5)


def _pull(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = read(answer.read().decode(), opened=False)
    return found["lakehouse_records_total"].value(lakehouse_outcome="landed")


class TestPrometheus:
    def test_pulls_the_current_counts(self, prometheus: Telemetry, port: int) -> None:
        _record(prometheus)
        assert _pull(port) == 500
        _record(prometheus, 2)
        assert _pull(port) == 1500

    def test_port_that_is_in_use_is_refused_with_its_address(self, port: int) -> None:
        with closing(socket.create_server(("127.0.0.1", port))), pytest.raises(ValueError, match="can't listen at 127"):
            start(TelemetryOptions(metrics=True, exporter="prometheus", endpoint=f"http://127.0.0.1:{port}"))

    def test_port_is_free_after_shutdown(self, port: int) -> None:
        for _ in range(2):
            endpoint = f"http://127.0.0.1:{port}"
            assert start(TelemetryOptions(metrics=True, exporter="prometheus", endpoint=endpoint)).shutdown(5)

    def test_address_comes_from_the_standard_variables_if_ours_is_not_set(
        self, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
        telemetry = start(TelemetryOptions(metrics=True, exporter="prometheus"))
        _record(telemetry)
        assert _pull(port) == 500
        telemetry.shutdown(5)

    def test_scrapers_that_stall_slow_down_nobody(self, prometheus: Telemetry, port: int) -> None:
        """More of them than there are threads: what is recorded meanwhile waits for none, and another scraper is
        served."""
        before = threading.active_count()
        stalled = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * AT_ONCE)]
        for each in stalled[::2]:
            each.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
        began, worked = time.monotonic(), time.thread_time()
        _record(prometheus, 1000)
        assert time.thread_time() - worked < QUICK_S
        assert time.monotonic() - began < SILENCE_S
        began = time.monotonic()
        assert _pull(port) == 500_000
        assert time.monotonic() - began < SILENCE_S, "it waited for one to be cut off"
        assert threading.active_count() - before < 3 * AT_ONCE
        for each in stalled:
            each.close()


# -- statsd -----------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        found.settimeout(10)
        yield found


def _statsd(port: int, interval_s: float = 60) -> Telemetry:
    endpoint = f"udp://127.0.0.1:{port}"
    return start(TelemetryOptions(metrics=True, exporter="statsd", endpoint=endpoint, metric_interval_s=interval_s))


def _received(receiver: socket.socket) -> list[str]:
    lines: list[str] = []
    receiver.settimeout(10)
    while True:
        try:
            datagram = receiver.recv(65_536)
        except TimeoutError:
            return lines
        assert len(datagram) <= LONGEST
        lines += datagram.decode().split("\n")
        receiver.settimeout(0.3)


class TestStatsd:
    def test_gets_counters_gauges_and_summaries_of_histograms(self, receiver: socket.socket) -> None:
        telemetry = _statsd(receiver.getsockname()[1])
        _record(telemetry, 3)
        assert telemetry.shutdown(5)
        tags = "|#lakehouse.pipeline:plant-7,lakehouse.stream:sensors"
        outcome, table = "lakehouse.outcome:landed", "lakehouse.table:a_b_c_d_e_f"
        assert set(_received(receiver)) == {
            f"lakehouse.records:1500|c|#{outcome},{tags.removeprefix('|#')},{table}",
            f"lakehouse.batch.duration.count:6|c{tags}",
            f"lakehouse.batch.duration.sum:6.0|c{tags}",
            f"lakehouse.batch.duration.min:0.5|g{tags}",
            f"lakehouse.batch.duration.max:1.5|g{tags}",
            f"lakehouse.lag.time:2.25|g{tags}",
        }

    def test_gets_only_what_was_added_since_the_last_time(self, receiver: socket.socket) -> None:
        telemetry = _statsd(receiver.getsockname()[1], interval_s=0.1)
        for _ in range(3):
            _record(telemetry)
            seen, until = 0, time.monotonic() + 10
            while seen < 500 and time.monotonic() < until:
                lines = receiver.recv(65_536).decode().split("\n")
                seen += sum(int(line.split(":")[1].split("|")[0]) for line in lines if ".records:" in line)
            assert seen == 500
        telemetry.shutdown(5)

    def test_that_is_down_costs_one_warning_and_is_counted(self) -> None:
        with capture_logs() as lines:
            telemetry = _statsd(any_free_port(), interval_s=0.05)
            began = time.monotonic()
            while telemetry.dropped.get("metrics", 0) < 3 and time.monotonic() - began < 10:
                before, worked = time.monotonic(), time.thread_time()
                _record(telemetry, 100)
                assert time.thread_time() - worked < 0.5
                assert time.monotonic() - before < SILENCE_S
                time.sleep(0.05)
            began = time.monotonic()
            telemetry.shutdown(2)
            assert time.monotonic() - began < 8
        assert telemetry.dropped["metrics"] >= 3
        (line,) = [each for each in lines if each["event"] == "telemetry_not_delivered"]
        assert line["log_level"] == "warning"
        assert "refused" in line["reason"].lower()

    def test_receiver_that_never_reads_slows_down_nobody(self, receiver: socket.socket) -> None:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        telemetry = _statsd(receiver.getsockname()[1], interval_s=0.01)
        began, worked = time.monotonic(), time.thread_time()
        _record(telemetry, 2000)
        assert time.thread_time() - worked < QUICK_S
        assert time.monotonic() - began < 10 * QUICK_S
        began = time.monotonic()
        telemetry.shutdown(2)
        assert time.monotonic() - began < 8

    def test_datagrams_hold_whole_lines_within_the_size_limit(self) -> None:
        lines = [f"metric.{number}:{'1' * (number % 50)}|c".encode() for number in range(500)]
        packed = list(datagrams(lines))
        assert b"\n".join(packed).split(b"\n") == lines
        assert 10 < len(packed) < 30
        assert max(map(len, packed)) <= LONGEST

    def test_needs_a_udp_address(self) -> None:
        with pytest.raises(ValueError, match="must begin with udp://"):
            TelemetryOptions(exporter="statsd", endpoint="http://127.0.0.1:8125")


class TestExporter:
    @pytest.mark.parametrize("exporter", ["prometheus", "statsd", "none"])
    def test_for_metrics_only_refuses_traces(self, exporter: str) -> None:
        with pytest.raises(ValueError, match=f"{exporter}.*carries metrics only"):
            start(TelemetryOptions(traces=True, metrics=True, exporter=exporter))


class TestOtlpProtocol:
    @pytest.mark.parametrize(
        ("variables", "ways"),
        [
            ({}, ("grpc", "grpc")),
            ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ("http", "http")),
            (
                {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"},
                ("grpc", "http"),
            ),
            ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, ("http", "grpc")),
        ],
    )
    def test_comes_from_the_standard_variables(
        self, variables: dict[str, str], ways: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _without_protocols(monkeypatch)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made = build(TelemetryOptions(traces=True, metrics=True, exporter="otlp"))
        assert made.spans
        assert made.metrics
        assert tuple(type(each).__module__.split(".")[4] for each in (made.spans, made.metrics)) == ways
        made.spans.shutdown()
        made.metrics.shutdown()

    def test_that_is_unknown_is_refused_with_the_known_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _without_protocols(monkeypatch)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        with pytest.raises(
            ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL 'http/json': known are grpc and http/protobuf"
        ):
            start(TelemetryOptions(metrics=True))

    def test_of_a_signal_that_is_off_is_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _without_protocols(monkeypatch)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
        made = build(TelemetryOptions(metrics=True, exporter="otlp"))
        assert made.spans is None
        assert made.metrics
        made.metrics.shutdown()


def _without_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in ("", "TRACES_", "METRICS_"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL", raising=False)
