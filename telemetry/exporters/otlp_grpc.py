"""OTLP over gRPC: plain for http:// endpoints, TLS for https://."""

import os
from typing import Literal, TypedDict

import grpc  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

from telemetry.exporters import Exporters
from telemetry.settings import TelemetryOptions

VARIABLE = "OTEL_EXPORTER_OTLP_COMPRESSION"
# The SDK's exporter knows gzip alone, and is ended by the standard's own word for nothing.
COMPRESSIONS = {
    "": grpc.Compression.NoCompression,
    "none": grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}


class _Options(TypedDict):
    endpoint: str | None
    insecure: bool | None
    headers: dict[str, str] | None


def build(settings: TelemetryOptions) -> Exporters:
    options: _Options = {
        "endpoint": settings.endpoint,
        "insecure": settings.endpoint.startswith("http://") if settings.endpoint else None,
        # gRPC refuses a metadata key with a capital letter.
        "headers": {key.lower(): value for key, value in settings.headers.items()} or None,
    }
    return Exporters(
        spans=OTLPSpanExporter(**options, compression=_compression("TRACES")) if settings.traces else None,
        metrics=OTLPMetricExporter(**options, compression=_compression("METRICS")) if settings.metrics else None,
    )


def _compression(signal: Literal["TRACES", "METRICS"]) -> grpc.Compression:
    own = VARIABLE.replace("OTLP_", f"OTLP_{signal}_")
    name = own if own in os.environ else VARIABLE
    said = os.environ.get(name, "").strip().lower()
    if said not in COMPRESSIONS:
        raise ValueError(f"{name} {said!r}: known are none, gzip and deflate")
    return COMPRESSIONS[said]
