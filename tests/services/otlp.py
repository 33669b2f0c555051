"""A collector of the tests' own: receives OTLP over gRPC and HTTP, and says what arrived as plain values.

with OtlpReceiver() as receiver:
    ... endpoint=receiver.endpoint_grpc ...
    receiver.wait(lambda: receiver.spans())
"""

import gzip
import ssl
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

STATUS = ("unset", "ok", "error")
KINDS = ("", "internal", "server", "client", "producer", "consumer")


@dataclass(frozen=True)
class ReceivedSpan:
    """`parent_id` is empty for a root."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    status: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    kind: str
    links: tuple[tuple[str, str], ...]  # trace and span


@dataclass(frozen=True)
class ReceivedPoint:
    """The newest state of one series; for a histogram `value` is the sum and `count` the number of values."""

    name: str
    kind: str
    unit: str
    value: float
    count: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


@dataclass
class _Arrived:
    lock: Lock = field(default_factory=Lock)
    spans: list[ReceivedSpan] = field(default_factory=list)
    points: dict[tuple[str, str], ReceivedPoint] = field(default_factory=dict)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    # Set: answers at once. Cleared: every answer is held back, as by a collector that hangs.
    answering: Event = field(default_factory=Event)
    refusing: Event = field(default_factory=Event)

    def admit(self, context: Any) -> None:
        self.answering.wait(60)
        if self.refusing.is_set():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused by the test")

    def traces(self, request: Any, headers: Mapping[str, str]) -> None:
        with self.lock:
            self.headers.append(headers)
            self.spans += _spans(request)

    def metrics(self, request: Any, headers: Mapping[str, str]) -> None:
        with self.lock:
            self.headers.append(headers)
            for point in _points(request):
                self.points[point.name, repr(sorted(point.attributes.items()))] = point


class OtlpReceiver:
    """`keys`: a folder with ca.crt, and receiver.key and receiver.crt for itself; then it asks for certificates."""

    def __init__(self, keys: Path | None = None) -> None:
        self._arrived = _Arrived()
        self._arrived.answering.set()
        self._grpc = grpc.server(ThreadPoolExecutor(max_workers=4, thread_name_prefix="otlp-receiver"))
        add_TraceServiceServicer_to_server(_Traces(self._arrived), self._grpc)  # type: ignore[no-untyped-call]
        add_MetricsServiceServicer_to_server(_Metrics(self._arrived), self._grpc)  # type: ignore[no-untyped-call]
        self._http = _HttpServer(self._arrived)
        scheme, port = "http", 0
        if keys is None:
            port = self._grpc.add_insecure_port("127.0.0.1:0")
        else:
            scheme, port = "https", self._grpc.add_secure_port("127.0.0.1:0", _credentials(keys))
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.crt"))
            context.load_cert_chain(keys / "receiver.crt", keys / "receiver.key")
            context.verify_mode = ssl.CERT_REQUIRED
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.endpoint_grpc = f"{scheme}://127.0.0.1:{port}"
        self.endpoint_http = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._grpc.start()
        self._serving = Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        self._grpc.stop(grace=None).wait()
        self._http.shutdown()
        self._http.server_close()
        self._serving.join()

    def spans(self, name: str | None = None) -> list[ReceivedSpan]:
        with self._arrived.lock:
            return [span for span in self._arrived.spans if name in (None, span.name)]

    def metrics(self, name: str | None = None) -> list[ReceivedPoint]:
        with self._arrived.lock:
            return [point for point in self._arrived.points.values() if name in (None, point.name)]

    def headers(self) -> list[Mapping[str, str]]:
        """Of each request, with lower-case names."""
        with self._arrived.lock:
            return list(self._arrived.headers)

    def hang(self) -> None:
        """From now on requests are taken and not answered."""
        self._arrived.answering.clear()

    def refuse(self) -> None:
        """From now on requests are answered with an error that is not worth a retry."""
        self._arrived.refusing.set()

    def go_on(self) -> None:
        self._arrived.refusing.clear()
        self._arrived.answering.set()

    def wait(self, until: Callable[[], object], timeout_s: float = 60) -> None:
        end = time.monotonic() + timeout_s
        while not until():
            assert time.monotonic() < end, f"not received within {timeout_s} s"
            time.sleep(0.02)


def _credentials(keys: Path) -> Any:
    pair = ((keys / "receiver.key").read_bytes(), (keys / "receiver.crt").read_bytes())
    return grpc.ssl_server_credentials([pair], (keys / "ca.crt").read_bytes(), require_client_auth=True)


class _Traces(TraceServiceServicer):
    def __init__(self, arrived: _Arrived) -> None:
        self._arrived = arrived

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  the protocol's name
        self._arrived.admit(context)
        self._arrived.traces(request, dict(context.invocation_metadata()))
        return ExportTraceServiceResponse()


class _Metrics(MetricsServiceServicer):
    def __init__(self, arrived: _Arrived) -> None:
        self._arrived = arrived

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  the protocol's name
        self._arrived.admit(context)
        self._arrived.metrics(request, dict(context.invocation_metadata()))
        return ExportMetricsServiceResponse()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a connection that is kept alive would hold the end up

    def __init__(self, arrived: _Arrived) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrived = arrived


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        elif self.headers.get("content-encoding") == "deflate":
            body = zlib.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        arrived = self.server.arrived
        arrived.answering.wait(60)
        if arrived.refusing.is_set():
            self.send_error(400)
        elif self.path == "/v1/traces":
            arrived.traces(ExportTraceServiceRequest.FromString(body), headers)
            self._received()
        elif self.path == "/v1/metrics":
            arrived.metrics(ExportMetricsServiceRequest.FromString(body), headers)
            self._received()
        else:
            self.send_error(404)

    def _received(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def _plain(attributes: Iterable[Any]) -> dict[str, Any]:
    return {it.key: _value(it.value) for it in attributes}


def _spans(request: Any) -> Iterable[ReceivedSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    status=STATUS[span.status.code],
                    attributes=_plain(span.attributes),
                    resource=_plain(resource.resource.attributes),
                    events=tuple((event.name, _plain(event.attributes)) for event in span.events),
                    kind=KINDS[span.kind],
                    links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                )


def _points(request: Any) -> Iterable[ReceivedPoint]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points:
                    value = point.sum if kind == "histogram" else getattr(point, point.WhichOneof("value"))
                    yield ReceivedPoint(
                        name=metric.name,
                        kind=kind,
                        unit=metric.unit,
                        value=value,
                        count=point.count if kind == "histogram" else 1,
                        attributes=_plain(point.attributes),
                        resource=_plain(resource.resource.attributes),
                    )


def main() -> None:
    """As a process of its own: says where it listens, and ends when its standard input does."""
    with OtlpReceiver() as receiver:
        print(receiver.endpoint_grpc, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
