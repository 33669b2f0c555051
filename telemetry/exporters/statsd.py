"""statsd over UDP, with tags as DogStatsD writes them (Telegraf, Vector and statsd_exporter read them as well).

It sends every few seconds what was added since: counters as `|c` and gauges as `|g`. The single values of a histogram
are gone by then, so it sends the histogram's count and sum as counters, and its least and greatest value as gauges.
Sending a datagram never waits. What cannot be sent is counted; what was sent and never received is not known.
"""

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics import Counter, Histogram, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    Sum,
)

from telemetry.exporters import Exporters, refuse_traces
from telemetry.settings import TelemetryOptions

HOST, PORT = "localhost", 8125
LONGEST = 1432  # bytes of a datagram that fits through an Ethernet
RESERVED = re.compile(r"[|:,#@\s]")


class StatsdExporter(MetricExporter):
    def __init__(self, host: str, port: int) -> None:
        delta = AggregationTemporality.DELTA
        super().__init__(preferred_temporality={Counter: delta, ObservableCounter: delta, Histogram: delta})
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:  # noqa: ARG002
        failure = self._heard()  # of what was sent the last time
        for datagram in datagrams(lines(metrics_data)):
            try:
                self._connected().send(datagram)
            except OSError as refused:  # nobody listens there, or the kernel has no room; nobody waits for it
                failure = refused
                self._forget()
        if failure := failure or self._heard():
            raise failure
        return MetricExportResult.SUCCESS

    def _connected(self) -> socket.socket:
        """The name is looked up here, in the thread that sends, because that may take its time."""
        if self._socket is None:
            family, *_, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
            found = socket.socket(family, socket.SOCK_DGRAM)
            found.setblocking(False)
            # A connected socket learns from the other machine that nobody listens.
            found.connect(address)
            self._socket = found
        return self._socket

    def _heard(self) -> OSError | None:
        """Whether the other machine has answered by now that nobody listens."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if self._socket else 0
        if not code:
            return None
        self._forget()
        return OSError(code, os.strerror(code))

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:  # noqa: ARG002
        self._forget()


def lines(data: MetricsData) -> Iterator[bytes]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = "c" if isinstance(metric.data, Sum) and metric.data.is_monotonic else "g"
                for point in metric.data.data_points:
                    for suffix, value, type_ in _values(point, kind):
                        yield f"{metric.name}{suffix}:{_number(value)}|{type_}{_tags(point.attributes)}".encode()


def _values(point: Any, kind: str) -> Iterator[tuple[str, float, str]]:
    if not isinstance(point, HistogramDataPoint):
        yield "", point.value, kind
    elif point.count:
        yield from (
            (".count", point.count, "c"),
            (".sum", point.sum, "c"),
            (".min", point.min, "g"),
            (".max", point.max, "g"),
        )


def _number(value: float) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(value)


def _tags(attributes: Mapping[str, Any] | None) -> str:
    said = ",".join(f"{_safe(name)}:{_safe(value)}" for name, value in sorted((attributes or {}).items()))
    return f"|#{said}" if said else ""


def _safe(said: object) -> str:
    return RESERVED.sub("_", str(said))


def datagrams(said: Iterable[bytes]) -> Iterator[bytes]:
    """As many lines in one as fit."""
    held = b""
    for line in said:
        if held and len(held) + 1 + len(line) > LONGEST:
            yield held
            held = b""
        held = held + b"\n" + line if held else line
    if held:
        yield held


def build(settings: TelemetryOptions) -> Exporters:
    refuse_traces(settings)
    where = urlsplit(settings.endpoint or "")
    exporter = StatsdExporter(where.hostname or HOST, where.port or PORT) if settings.metrics else None
    return Exporters(spans=None, metrics=exporter)
