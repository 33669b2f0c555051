"""A port that Prometheus pulls from, at /metrics. Nothing is sent, so no receiver can be slow or dead."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from telemetry.exporters import Exporters, refuse_traces
from telemetry.http_pages import HttpAnswer, HttpPages
from telemetry.prometheus_text import PullReader
from telemetry.settings import TelemetryOptions

HOST, PORT = "localhost", 9464  # by OpenTelemetry's rules


class ServingReader(PullReader):
    """With a port of its own, which listens before anything is measured."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._pages = HttpPages(host, port, {"/metrics": self._page})
        self.url = f"{self._pages.start().url}/metrics"

    def _page(self, headers: Mapping[str, str]) -> HttpAnswer:
        return self.scrape(headers.get("accept", ""))

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._pages.close()
        super().shutdown(timeout_millis, **kwargs)


def build(settings: TelemetryOptions) -> Exporters:
    refuse_traces(settings)
    where = urlsplit(settings.endpoint or "")
    host = where.hostname or os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or HOST
    if not settings.metrics:
        return Exporters(spans=None, metrics=None)
    try:
        port = where.port if where.port is not None else int(os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or PORT)
        return Exporters(spans=None, metrics=None, reader=ServingReader(host, port))
    except (OSError, OverflowError, ValueError) as failure:
        said = failure.strerror if isinstance(failure, OSError) else failure
        raise ValueError(f"telemetry exporter 'prometheus': can't listen at {host}: {said}") from failure
