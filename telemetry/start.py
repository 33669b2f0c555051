"""The door of this package: options in, a `Telemetry` out.

Switched off, it has no provider and no thread, and has not imported the SDK. Switched on, no call waits for a
collector.
"""

from collections.abc import Mapping
from typing import Any

from telemetry.http_pages import HttpAnswer
from telemetry.instruments import INSTRUMENTS, Instrument
from telemetry.settings import TelemetryOptions
from telemetry.spans import NO_SPAN, Kind, Span


class TelemetryUnavailable(ImportError):
    """Switched on, but the packages that it needs are not installed."""


class Telemetry:
    """Switched off. The recording one derives from it, and so does the one that tests use."""

    __slots__ = ()

    def span(self, _name: str, _kind: Kind = "internal", /, **_attributes: object) -> Span:
        """Name the work, not its object: the object is an attribute."""
        return NO_SPAN

    def count(self, _instrument: str, /, value: float = 1, **_attributes: object) -> None:
        pass

    def record(self, _instrument: str, /, value: float, **_attributes: object) -> None:
        pass

    def gauge(self, _instrument: str, /, value: float, **_attributes: object) -> None:
        pass

    def scrape(self, _accept: str = "", /) -> HttpAnswer | None:
        """All metrics as text for Prometheus; None where they cannot be pulled."""
        return None

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many the collector never got: spans under `traces`, pushes under `metrics`."""
        return {}

    def shutdown(self, timeout_s: float = 5) -> bool:  # noqa: ARG002  the recording one needs it
        """Sends what is left, in this time at most. Returns whether all of it was sent."""
        return True


OFF = Telemetry()


def start(
    settings: TelemetryOptions, *, log: Any = None, instruments: Mapping[str, Instrument] = INSTRUMENTS
) -> Telemetry:
    """Warnings about a collector that can't be reached go to `log`, a structlog logger."""
    if not settings.on:
        return OFF
    try:
        from telemetry import sdk  # noqa: PLC0415  the SDK is an extra, and half a second of imports
        from telemetry.exporters import build  # noqa: PLC0415

        exporters = build(settings)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("opentelemetry", "grpc", "requests", "prometheus_client"):
            raise
        raise TelemetryUnavailable(
            f"telemetry is switched on, but {error.name} is not installed: install lakehouse-ingest[otlp]"
        ) from error
    return sdk.start(settings, exporters, log, instruments)
