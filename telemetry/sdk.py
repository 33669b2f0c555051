"""The `Telemetry` that records, by OpenTelemetry's SDK.

Its providers are its own; an application around us keeps the process-wide ones.
"""

import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import structlog
from opentelemetry import context, trace
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation
from opentelemetry.metrics import _Gauge as Gauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from telemetry.exporters import Exporters
from telemetry.guarded_export import (
    BoundedSpans,
    Outage,
    WatchedMetrics,
    WatchedSpans,
    close_in_time,
    listen,
    number_from,
)
from telemetry.http_pages import HttpAnswer
from telemetry.instruments import DROPPED, Instrument, check, exported
from telemetry.masking import mask, masked, masked_text
from telemetry.prometheus_text import PullReader
from telemetry.settings import SERVICE_NAME, TelemetryOptions
from telemetry.spans import CURRENT, Kind, Span
from telemetry.start import Telemetry

SCOPE = "lakehouse-ingest"
HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS")
INTERVAL_MS = 10_000  # between two pushes of the metrics
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

Plain = str | bool | int | float | Sequence[str]


def _plain(name: str, value: object) -> Plain:
    value = masked(value, name)
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, list):
        return [str(item) for item in value]
    return str(value)


def _attributes(attributes: Mapping[str, object]) -> dict[str, Plain]:
    return {exported(name): _plain(name, value) for name, value in attributes.items() if value is not None}


def _remote(traceparent: str) -> SpanContext | None:
    """The span that it names, if its process has kept it."""
    found = TRACEPARENT.fullmatch(traceparent)
    if not found:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    there = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return there if there.is_valid and there.trace_flags.sampled else None


class LiveSpan(Span):
    __slots__ = ("_attributes", "_context", "_kind", "_name", "_outer", "_span", "_tracer", "span_id", "trace_id")

    def __init__(self, tracer: trace.Tracer, name: str, kind: Kind, attributes: Mapping[str, object]) -> None:
        self._tracer = tracer
        self._name = name
        self._kind = SpanKind[kind.upper()]
        self._attributes = attributes
        self.trace_id: str | None = None
        self.span_id: str | None = None

    def __enter__(self) -> Self:
        self._span = self._tracer.start_span(self._name, kind=self._kind, attributes=_attributes(self._attributes))
        ids = self._span.get_span_context()
        if ids.is_valid:
            self.trace_id, self.span_id = (
                trace.format_trace_id(ids.trace_id),
                trace.format_span_id(ids.span_id),
            )
        self._context = context.attach(trace.set_span_in_context(self._span))
        self._outer = CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        CURRENT.reset(self._outer)
        context.detach(self._context)
        if isinstance(error, Exception):
            self._failed(error)
        self._span.end()

    @property
    def recorded(self) -> bool:
        return self._span.is_recording()

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01" if self.recorded else ""

    def link(self, traceparent: str, /, **attributes: object) -> bool:
        there = _remote(traceparent)
        if there is not None:
            self._span.add_link(there, _attributes(attributes))
        return there is not None

    def set(self, **attributes: object) -> None:
        self._span.set_attributes(_attributes(attributes))

    def _failed(self, error: Exception) -> None:
        # Not the SDK's record_exception: it would carry a secret in the message out of the process.
        sentence = masked_text(str(error))
        details = {
            "exception.type": type(error).__qualname__,
            "exception.message": sentence,
            "exception.stacktrace": masked_text("".join(traceback.format_exception(error))),
        }
        self._span.add_event("exception", details)
        self._span.set_attribute("error.type", type(error).__qualname__)
        self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {sentence}"))


class LiveTelemetry(Telemetry):
    __slots__ = ("_abort", "_close", "_instruments", "_made", "_outage", "_pulled", "_shut", "_tracer")

    def __init__(
        self,
        *,
        tracer: trace.Tracer | None,
        meter: Meter | None,
        outage: Outage,
        instruments: Mapping[str, Instrument],
        close: Iterable[Callable[[], object]] = (),
        abort: Iterable[Callable[[], object]] = (),
        pulled: PullReader | None = None,
    ) -> None:
        self._tracer = tracer
        self._outage = outage
        self._instruments = instruments
        self._made = {} if meter is None else _make(meter, instruments, outage)
        self._close = tuple(close)
        self._abort = tuple(abort)
        self._pulled = pulled
        self._shut: bool | None = None

    def span(self, name: str, kind: Kind = "internal", /, **attributes: object) -> Span:
        return super().span(name) if self._tracer is None else LiveSpan(self._tracer, name, kind, attributes)

    def count(self, instrument: str, /, value: float = 1, **attributes: object) -> None:
        check(self._instruments, instrument, "counter", attributes)
        made = self._made.get(instrument)
        if isinstance(made, Counter):
            made.add(value, _attributes(attributes))

    def record(self, instrument: str, /, value: float, **attributes: object) -> None:
        check(self._instruments, instrument, "histogram", attributes)
        made = self._made.get(instrument)
        if isinstance(made, Histogram):
            made.record(value, _attributes(attributes))

    def gauge(self, instrument: str, /, value: float, **attributes: object) -> None:
        check(self._instruments, instrument, "gauge", attributes)
        made = self._made.get(instrument)
        if isinstance(made, Gauge):
            made.set(value, _attributes(attributes))

    def scrape(self, accept: str = "", /) -> HttpAnswer | None:
        return None if self._pulled is None or self._shut is not None else self._pulled.scrape(accept)

    @property
    def dropped(self) -> Mapping[str, int]:
        return self._outage.dropped

    def shutdown(self, timeout_s: float = 5) -> bool:
        if self._shut is None:
            before = self.dropped
            self._shut = close_in_time(timeout_s, self._close, self._abort) and self.dropped == before
        return self._shut


def _make(
    meter: Meter, instruments: Mapping[str, Instrument], outage: Outage
) -> dict[str, Counter | Histogram | Gauge]:
    def dropped(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(n, {exported("signal"): signal}) for signal, n in outage.dropped.items()]

    made: dict[str, Counter | Histogram | Gauge] = {}
    for name, it in instruments.items():
        if name == DROPPED:
            meter.create_observable_counter(name, [dropped], unit=it.unit, description=it.meaning)
        elif it.kind == "counter":
            made[name] = meter.create_counter(name, unit=it.unit, description=it.meaning)
        elif it.kind == "gauge":
            made[name] = meter.create_gauge(name, unit=it.unit, description=it.meaning)
        else:
            made[name] = meter.create_histogram(
                name,
                unit=it.unit,
                description=it.meaning,
                explicit_bucket_boundaries_advisory=it.buckets or None,
            )
    return made


def _resource(settings: TelemetryOptions) -> Resource:
    found = Resource.create(dict(settings.resource))
    named = not str(found.attributes.get("service.name", "")).startswith("unknown_service")
    # OTEL_SERVICE_NAME wins over our default, and a name in the settings wins over both.
    if named and settings.service_name == SERVICE_NAME:
        return found
    return found.merge(Resource({"service.name": settings.service_name}))


def _hide(settings: TelemetryOptions) -> None:
    for value in (*settings.headers.values(), *_standard_headers()):
        mask(value)
        mask(value.rpartition(" ")[2])


def _standard_headers() -> Iterable[str]:
    for variable in HEADERS:
        for pair in os.environ.get(variable, "").split(","):
            yield unquote(pair.partition("=")[2])


def start(
    settings: TelemetryOptions, exporters: Exporters, log: Any, instruments: Mapping[str, Instrument]
) -> LiveTelemetry:
    _hide(settings)
    listen()
    outage = Outage(log or structlog.get_logger("telemetry"))
    resource = _resource(settings)
    tracer: trace.Tracer | None = None
    meter: Meter | None = None
    close: list[Callable[[], object]] = []
    abort: list[Callable[[], object]] = []
    # The SDK's own exit handlers wait half a minute each, so the owner calls shutdown instead.
    if exporters.spans is not None:
        spans = WatchedSpans(exporters.spans, outage)
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BoundedSpans(spans, outage))
        tracer = tracers.get_tracer(SCOPE)
        close.append(tracers.shutdown)
        abort.append(spans.shutdown)
    readers: list[MetricReader] = [] if exporters.reader is None else [exporters.reader]
    if exporters.metrics is not None:
        metrics = WatchedMetrics(exporters.metrics, outage)
        ours = settings.metric_interval_s
        interval = number_from("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS) if ours is None else ours * 1000
        readers.append(PeriodicExportingMetricReader(metrics, export_interval_millis=interval))
        abort.append(metrics.shutdown)
    pulled = PullReader() if settings.pull and settings.metrics else None
    if pulled is not None:
        readers.append(pulled)
    if readers:
        meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        meter = meters.get_meter(SCOPE)
        close.append(meters.shutdown)
    return LiveTelemetry(
        tracer=tracer,
        meter=meter,
        outage=outage,
        instruments=instruments,
        close=close,
        abort=abort,
        pulled=pulled,
    )
