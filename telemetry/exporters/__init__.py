"""Where spans and metrics go: one file each, one line here, imported only when chosen."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

EXPORTERS = {
    "otlp_grpc": "telemetry.exporters.otlp_grpc:build",
    "otlp_http": "telemetry.exporters.otlp_http:build",
    "console": "telemetry.exporters.console:build",
}


class Exporters(NamedTuple):
    spans: "SpanExporter | None"
    metrics: "MetricExporter | None"


def build(settings: TelemetrySettings) -> Exporters:
    """Only what is switched on. Nothing connects before the first export."""
    path = EXPORTERS.get(settings.exporter)
    if path is None:
        raise ValueError(f"telemetry exporter {settings.exporter!r}: known are {', '.join(EXPORTERS)}")
    module, _, name = path.partition(":")
    builder = cast("Callable[[TelemetrySettings], Exporters]", getattr(import_module(module), name))
    return builder(settings)
