"""What a running pipeline shows of itself: traces, metrics, the status page, the log."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from lakehouse_ingest.settings.field_types import HostName, Seconds, Secret
from lakehouse_ingest.settings.models.base import SettingsModel


class TelemetrySettings(SettingsModel):
    """Traces and metrics."""

    traces: bool = Field(default=False, description="Send a trace of each batch.")
    metrics: bool = Field(default=False, description="Measure: counters, gauges and durations.")
    exporter: str = Field(
        default="otlp",
        description="Where traces and metrics go: otlp_grpc, otlp_http, otlp (the one of them that"
        " OTEL_EXPORTER_OTLP_PROTOCOL names), console, prometheus, statsd, none, or the name of an entry point in the"
        " group telemetry.exporters. prometheus, statsd and none carry metrics only. With none, metrics are served only"
        " at the port of `health`.",
    )
    endpoint: str | None = Field(
        examples=["http://localhost:4317"],
        default=None,
        description="Address of the collector. Without it the standard OTEL_* variables decide. For statsd:"
        " udp://localhost:8125. For prometheus, where to listen: http://localhost:9464.",
    )
    headers: Mapping[str, Secret] = Field(default={}, description="Headers of every request to the collector.")


class HealthSettings(SettingsModel):
    """The port for people and for probes."""

    port: int | None = Field(
        examples=[8080],
        default=None,
        ge=0,
        le=65_535,
        description="Port of the status page, of /live and /ready and, with `telemetry.metrics`, of /metrics. Without"
        " it nothing is served. 0: any free port, which the log names.",
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. 0.0.0.0: all addresses of this machine, without any login.",
    )
    hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Further host names under which the port may be requested, such as the name of a proxy before it."
        " Empty: on 127.0.0.1 only localhost and IP addresses are accepted, on other addresses every name.",
    )
    fresh: Seconds = Field(
        gt=0,
        default=120.0,
        description="/ready fails if a stream has made no progress for this time. A stream without new records counts"
        " as making progress.",
    )
    stuck: Seconds = Field(
        gt=0,
        default=900.0,
        description="/live fails if a stream that should work has made no progress for this time.",
    )


class LogSettings(SettingsModel):
    """The log of the process."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="Format of the log. auto: text on a terminal, JSON elsewhere."
    )
