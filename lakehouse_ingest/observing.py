"""The door to telemetry, and its only importer: spans and events are wrapped around stages from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import structlog

import telemetry
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.hiding import secrets_of
from lakehouse_ingest.settings import Settings
from telemetry import Span, carried

__all__ = ["Watch", "carried", "watch"]


class Watch:
    """One pipeline as seen from outside."""

    def __init__(self, pipeline: str, sink: telemetry.Telemetry) -> None:
        self.log = structlog.get_logger("pipeline")
        self.events = telemetry.Events(self.log, sink, pipeline)
        self._sink = sink
        self._pipeline = pipeline

    @contextmanager
    def batch(self, stream: str, number: int, shape: str) -> Iterator[Span]:
        with self._sink.span("batch", pipeline=self._pipeline, stream=stream, batch=number, shape=shape) as span:
            yield span

    @contextmanager
    def stage(self, name: str, stream: str, **attributes: object) -> Iterator[Span]:
        """A child span of the batch, and its duration."""
        began = monotonic()
        with self._sink.span(name, pipeline=self._pipeline, stream=stream, **attributes) as span:
            yield span
        self._sink.record(
            "lakehouse.stage.duration",
            monotonic() - began,
            pipeline=self._pipeline,
            stream=stream,
            stage=name,
        )

    @contextmanager
    def commit(self, table: str) -> Iterator[Span]:
        began = monotonic()
        with self._sink.span("publish", pipeline=self._pipeline, table=table) as span:
            yield span
        self._sink.record("lakehouse.commit.duration", monotonic() - began, pipeline=self._pipeline, table=table)

    def close(self) -> None:
        self._sink.shutdown(timeout_s=5)


def watch(settings: Settings) -> Watch:
    """Logs configured and telemetry started as the settings say."""
    telemetry.configure_logs(telemetry.LogSettings(settings.log.level, settings.log.format))
    for secret in secrets_of(settings):
        telemetry.mask(secret)
    wanted = settings.telemetry
    try:
        sink = telemetry.start(
            telemetry.TelemetrySettings(
                traces=wanted.traces,
                metrics=wanted.metrics,
                exporter=wanted.exporter,
                endpoint=wanted.endpoint,
                headers={key: value.get_secret_value() for key, value in wanted.headers.items()},
            ),
            log=structlog.get_logger("telemetry"),
        )
    except (telemetry.TelemetryUnavailable, ValueError) as refusal:
        raise SettingsRefused(f"{refusal}; see `telemetry.exporter` and `telemetry.endpoint`") from None
    return Watch(settings.name, sink)
