"""Where spans and metrics go: one file each, one line here, imported only when chosen.

Another distribution offers its own by an entry point of the group below: a function from the settings to `Exporters`.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple, cast

from telemetry.settings import TelemetryOptions

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter

EXPORTERS = {
    "otlp": "telemetry.exporters.otlp:build",
    "otlp_grpc": "telemetry.exporters.otlp_grpc:build",
    "otlp_http": "telemetry.exporters.otlp_http:build",
    "console": "telemetry.exporters.console:build",
    "prometheus": "telemetry.exporters.prometheus:build",
    "statsd": "telemetry.exporters.statsd:build",
    "none": "telemetry.exporters.none:build",
}

GROUP = "telemetry.exporters"


class Exporters(NamedTuple):
    """`metrics` are pushed every few seconds; a `reader` collects them by itself."""

    spans: "SpanExporter | None"
    metrics: "MetricExporter | None"
    reader: "MetricReader | None" = None


def build(settings: TelemetryOptions) -> Exporters:
    """Only what is switched on. Nothing connects before the first export."""
    return _builder(settings.exporter)(settings)


def refuse_traces(settings: TelemetryOptions) -> None:
    """For an exporter that sends metrics only: traces that somebody asked for must not be dropped in silence."""
    if settings.traces:
        raise ValueError(f"telemetry exporter {settings.exporter!r}: carries metrics only, so traces can't be on")


def _builder(name: str) -> "Callable[[TelemetryOptions], Exporters]":
    if path := EXPORTERS.get(name):
        module, _, function = path.partition(":")
        return cast("Callable[[TelemetryOptions], Exporters]", getattr(import_module(module), function))
    offered = {each.name: each for each in entry_points(group=GROUP)}
    if name not in offered:
        raise ValueError(f"telemetry exporter {name!r}: known are {', '.join((*EXPORTERS, *offered))}")
    return cast("Callable[[TelemetryOptions], Exporters]", offered[name].load())
