"""Spans, metrics and log lines of a long-running pipeline. Only plain values cross this door.

telemetry = start(TelemetrySettings(traces=True, metrics=True, endpoint="http://localhost:4317"))
with telemetry.span("batch", pipeline="plant-7", stream="sensors") as span:
    telemetry.count("lakehouse.records", 500, pipeline="plant-7", stream="sensors", outcome="landed")
    span.set(rows=500)
telemetry.shutdown(timeout_s=5)
"""

from telemetry.catalogue import entries as metrics
from telemetry.catalogue import markdown as metrics_page
from telemetry.events import Events
from telemetry.instruments import INSTRUMENTS, Instrument, UnknownInstrument
from telemetry.logs import configure as configure_logs
from telemetry.logs import set_level
from telemetry.masking import mask, mask_names, masked_text
from telemetry.serving import Answer, Pages, as_json
from telemetry.settings import LogSettings, TelemetrySettings
from telemetry.spans import Span, carried, current
from telemetry.start import OFF, Telemetry, TelemetryUnavailable, start

__all__ = [
    "INSTRUMENTS",
    "OFF",
    "Answer",
    "Events",
    "Instrument",
    "LogSettings",
    "Pages",
    "Span",
    "Telemetry",
    "TelemetrySettings",
    "TelemetryUnavailable",
    "UnknownInstrument",
    "as_json",
    "carried",
    "configure_logs",
    "current",
    "mask",
    "mask_names",
    "masked_text",
    "metrics",
    "metrics_page",
    "set_level",
    "start",
]
