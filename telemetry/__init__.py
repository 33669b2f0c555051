"""Spans, metrics and log lines of a long-running pipeline. Only plain values cross this door.

telemetry = start(TelemetryOptions(traces=True, metrics=True, endpoint="http://localhost:4317"))
with telemetry.span("batch", pipeline="plant-7", stream="sensors") as span:
    telemetry.count("lakehouse.records", 500, pipeline="plant-7", stream="sensors", outcome="landed")
    span.set(rows=500)
telemetry.shutdown(timeout_s=5)
"""

from telemetry.events import Event, Events, Listener, LogLines, Meter, Metrics
from telemetry.http_pages import HttpAnswer, HttpPages, as_json
from telemetry.instruments import INSTRUMENTS, Instrument, UnknownInstrument
from telemetry.logs import configure as configure_logs
from telemetry.logs import set_level
from telemetry.masking import mask, mask_names, masked_text
from telemetry.metric_reference import entries as metrics
from telemetry.metric_reference import markdown as metrics_page
from telemetry.settings import Level, LogOptions, TelemetryOptions
from telemetry.spans import Span, carried, current
from telemetry.start import OFF, Telemetry, TelemetryUnavailable, start

__all__ = [
    "INSTRUMENTS",
    "OFF",
    "Event",
    "Events",
    "HttpAnswer",
    "HttpPages",
    "Instrument",
    "Level",
    "Listener",
    "LogLines",
    "LogOptions",
    "Meter",
    "Metrics",
    "Span",
    "Telemetry",
    "TelemetryOptions",
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
