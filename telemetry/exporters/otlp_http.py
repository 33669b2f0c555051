"""OTLP as protobuf over HTTP: the endpoint is the collector's root, the signal's path is appended."""

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from telemetry.exporters import Exporters
from telemetry.settings import TelemetrySettings


def build(settings: TelemetrySettings) -> Exporters:
    def at(path: str) -> str | None:
        return f"{settings.endpoint.rstrip('/')}{path}" if settings.endpoint else None

    headers = dict(settings.headers) or None
    return Exporters(
        spans=OTLPSpanExporter(endpoint=at("/v1/traces"), headers=headers) if settings.traces else None,
        metrics=OTLPMetricExporter(endpoint=at("/v1/metrics"), headers=headers) if settings.metrics else None,
    )
