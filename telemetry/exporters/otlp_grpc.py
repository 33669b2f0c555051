"""OTLP over gRPC: plain for http:// endpoints, TLS for https://."""

from typing import TypedDict

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

from telemetry.exporters import Exporters
from telemetry.settings import TelemetrySettings


class _Options(TypedDict):
    endpoint: str | None
    insecure: bool | None
    headers: dict[str, str] | None


def build(settings: TelemetrySettings) -> Exporters:
    options: _Options = {
        "endpoint": settings.endpoint,
        "insecure": settings.endpoint.startswith("http://") if settings.endpoint else None,
        # gRPC refuses a metadata key with a capital letter.
        "headers": {key.lower(): value for key, value in settings.headers.items()} or None,
    }
    return Exporters(
        spans=OTLPSpanExporter(**options) if settings.traces else None,
        metrics=OTLPMetricExporter(**options) if settings.metrics else None,
    )
