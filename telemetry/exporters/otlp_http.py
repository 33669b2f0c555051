"""OTLP as protobuf over HTTP: the endpoint is the collector's root, the signal's path is appended."""

from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from telemetry.exporters import Exporters
from telemetry.settings import TelemetryOptions


class _Session(requests.Session):
    """The authority that OTEL_EXPORTER_OTLP_CERTIFICATE names goes before the one that REQUESTS_CA_BUNDLE names."""

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        return super().merge_environment_settings(url, proxies, stream, self.verify if verify is None else verify, cert)


def build(settings: TelemetryOptions) -> Exporters:
    def at(path: str) -> str | None:
        return f"{settings.endpoint.rstrip('/')}{path}" if settings.endpoint else None

    headers = dict(settings.headers) or None
    return Exporters(
        spans=OTLPSpanExporter(endpoint=at("/v1/traces"), headers=headers, session=_Session())
        if settings.traces
        else None,
        metrics=OTLPMetricExporter(endpoint=at("/v1/metrics"), headers=headers, session=_Session())
        if settings.metrics
        else None,
    )
