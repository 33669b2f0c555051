"""What a caller may choose. Nothing here reads files or the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SERVICE_NAME = "lakehouse-ingest"
Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class TelemetryOptions:
    """Off by default. For what is None, the OTEL_* variables decide, then a default.

    `pull`: the metrics can be had by `Telemetry.scrape` as well, whatever the exporter does with them.
    """

    traces: bool = False
    metrics: bool = False
    exporter: str = "otlp"
    endpoint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    service_name: str = SERVICE_NAME
    resource: Mapping[str, str] = field(default_factory=dict)
    metric_interval_s: float | None = None
    pull: bool = False

    def __post_init__(self) -> None:
        # Without a scheme the SDK guesses TLS, and a plain collector then looks dead.
        schemes = ("udp://",) if self.exporter == "statsd" else ("http://", "https://")
        if self.endpoint is not None and not self.endpoint.startswith(schemes):
            raise ValueError(f"telemetry endpoint {self.endpoint!r}: must begin with {' or '.join(schemes)}")
        if self.metric_interval_s is not None and self.metric_interval_s <= 0:
            raise ValueError(f"telemetry metric_interval_s {self.metric_interval_s!r}: must be above 0")

    @property
    def on(self) -> bool:
        return self.traces or self.metrics


@dataclass(frozen=True)
class LogOptions:
    """`auto`: text on a terminal, json elsewhere."""

    level: Level = "info"
    format: Literal["auto", "json", "text"] = "auto"
