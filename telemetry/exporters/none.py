"""Sends nothing: the metrics can only be pulled, by `Telemetry.scrape`."""

from telemetry.exporters import Exporters, refuse_traces
from telemetry.settings import TelemetryOptions


def build(settings: TelemetryOptions) -> Exporters:
    refuse_traces(settings)
    return Exporters(spans=None, metrics=None)
