"""OTLP by the protocol that the standard variables name; gRPC where they name none."""

import os
from dataclasses import replace
from typing import Literal

from telemetry.exporters import Exporters
from telemetry.exporters import build as build_by
from telemetry.settings import TelemetryOptions

VARIABLE = "OTEL_EXPORTER_OTLP_PROTOCOL"
PROTOCOLS = {"grpc": "otlp_grpc", "http/protobuf": "otlp_http"}


def build(settings: TelemetryOptions) -> Exporters:
    """Each signal may have a protocol of its own; that of one that is off is no matter."""
    traces, metrics = settings.traces, settings.metrics
    return Exporters(
        spans=build_by(replace(settings, exporter=_exporter("TRACES"), metrics=False)).spans if traces else None,
        metrics=build_by(replace(settings, exporter=_exporter("METRICS"), traces=False)).metrics if metrics else None,
    )


def _exporter(signal: Literal["TRACES", "METRICS"]) -> str:
    own = VARIABLE.replace("OTLP_", f"OTLP_{signal}_")
    name = own if os.environ.get(own) else VARIABLE
    said = os.environ.get(name, "").strip().lower() or "grpc"
    if said not in PROTOCOLS:
        raise ValueError(f"{name} {said!r}: known are {' and '.join(PROTOCOLS)}")
    return PROTOCOLS[said]
