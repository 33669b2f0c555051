"""For tests: a `Telemetry` that keeps all as plain values, and one that is off but knows the catalogue."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from telemetry.instruments import INSTRUMENTS, Instrument, check, exported
from telemetry.start import Telemetry


class Checked(Telemetry):
    """Records nothing, and refuses what isn't in the catalogue: a typing error fails the test."""

    __slots__ = ("_instruments",)

    def __init__(self, instruments: Mapping[str, Instrument] = INSTRUMENTS) -> None:
        self._instruments = instruments

    def count(self, instrument: str, /, value: float = 1, **attributes: object) -> None:  # noqa: ARG002
        check(self._instruments, instrument, "counter", attributes)

    def record(self, instrument: str, /, value: float, **attributes: object) -> None:  # noqa: ARG002
        check(self._instruments, instrument, "histogram", attributes)

    def gauge(self, instrument: str, /, value: float, **attributes: object) -> None:  # noqa: ARG002
        check(self._instruments, instrument, "gauge", attributes)


@dataclass(frozen=True)
class RecordedSpan:
    """A finished span; `parent` is the parent's name, `status` is unset, ok or error."""

    name: str
    attributes: Mapping[str, Any]
    parent: str | None
    status: str
    trace_id: str
    span_id: str
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    kind: str = "internal"
    links: tuple[str, ...] = ()  # the ids of the spans that it leads to


@dataclass(frozen=True)
class Point:
    """`value` is the sum of a histogram; `count` is how many values it holds."""

    value: float
    attributes: Mapping[str, Any]
    count: int = 1


class Recording:
    def __init__(self, telemetry: Telemetry, spans: Any, reader: Any) -> None:
        self.telemetry = telemetry
        self._spans = spans
        self._reader = reader

    @property
    def spans(self) -> list[RecordedSpan]:
        """In the order in which they ended: children before their parents."""
        finished = self._spans.get_finished_spans()
        names = {span.context.span_id: span.name for span in finished}
        return [
            RecordedSpan(
                name=span.name,
                attributes=dict(span.attributes),
                parent=names.get(span.parent.span_id) if span.parent else None,
                status=span.status.status_code.name.lower(),
                trace_id=format(span.context.trace_id, "032x"),
                span_id=format(span.context.span_id, "016x"),
                events=tuple((event.name, dict(event.attributes or {})) for event in span.events),
                kind=span.kind.name.lower(),
                links=tuple(format(link.context.span_id, "016x") for link in span.links),
            )
            for span in finished
        ]

    def span(self, name: str) -> RecordedSpan:
        """The only span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def points(self, instrument: str) -> list[Point]:
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return [_point(it) for metric in metrics if metric.name == instrument for it in metric.data.data_points]

    def total(self, instrument: str, **attributes: object) -> float:
        """The sum over all points that have these attributes."""
        wanted = {exported(name): value for name, value in attributes.items()}
        points = self.points(instrument)
        return sum(point.value for point in points if wanted.items() <= point.attributes.items())


def _point(it: Any) -> Point:
    if hasattr(it, "sum"):
        return Point(it.sum, dict(it.attributes), it.count)
    return Point(it.value, dict(it.attributes))


@contextmanager
def recorded(instruments: Mapping[str, Instrument] = INSTRUMENTS) -> Iterator[Recording]:
    """Traces and metrics on, kept in memory, nothing sent and no thread started. Needs the extra `otlp`."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415  an extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    from telemetry.guarded_export import Outage  # noqa: PLC0415
    from telemetry.prometheus_text import PullReader  # noqa: PLC0415
    from telemetry.sdk import SCOPE, LiveTelemetry  # noqa: PLC0415

    spans, reader = InMemorySpanExporter(), PullReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = LiveTelemetry(
        tracer=tracers.get_tracer(SCOPE),
        meter=meters.get_meter(SCOPE),
        outage=Outage(log=None),
        instruments=instruments,
        pulled=reader,
    )
    try:
        yield Recording(telemetry, spans, reader)
    finally:
        tracers.shutdown()
        meters.shutdown()
