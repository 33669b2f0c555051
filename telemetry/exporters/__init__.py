"""Where spans and metrics go: one file each, one line here, imported only when chosen.

Another distribution offers its own by an entry point of the group below: a function from the settings to `Exporters`.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
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

GROUP = "telemetry.exporters"


class Exporters(NamedTuple):
    spans: "SpanExporter | None"
    metrics: "MetricExporter | None"


def build(settings: TelemetrySettings) -> Exporters:
    """Only what is switched on. Nothing connects before the first export."""
    return _builder(settings.exporter)(settings)


def _builder(name: str) -> "Callable[[TelemetrySettings], Exporters]":
    if path := EXPORTERS.get(name):
        module, _, function = path.partition(":")
        return cast("Callable[[TelemetrySettings], Exporters]", getattr(import_module(module), function))
    offered = {each.name: each for each in entry_points(group=GROUP)}
    if name not in offered:
        raise ValueError(f"telemetry exporter {name!r}: known are {', '.join((*EXPORTERS, *offered))}")
    return cast("Callable[[TelemetrySettings], Exporters]", offered[name].load())
