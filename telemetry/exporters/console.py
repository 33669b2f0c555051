"""To stderr as JSON, to look at by eye; stdout belongs to the command's own answer."""

import sys

from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from telemetry.exporters import Exporters
from telemetry.settings import TelemetryOptions


def build(settings: TelemetryOptions) -> Exporters:
    return Exporters(
        spans=ConsoleSpanExporter(out=sys.stderr) if settings.traces else None,
        metrics=ConsoleMetricExporter(out=sys.stderr) if settings.metrics else None,
    )
