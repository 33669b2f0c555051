"""Between the SDK and an exporter: nobody waits, what is lost is counted, and an outage is reported once.

The SDK alone would log every failed push of every signal, and drop data silently in between.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Lock, Thread, local
from typing import Any, Literal

from opentelemetry.context import Context
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from telemetry.masking import masked_text

# Unless the standard OTEL_BSP_* variables say otherwise.
QUEUE = 8192
PUSH = 512
DELAY_MS = 1000
# A collector that comes and goes is worth one warning, not one a minute.
SILENCE_S = 300.0
SDK_LOGGERS = ("opentelemetry.sdk", "opentelemetry.exporter")

Signal = Literal["traces", "metrics"]
Job = Callable[[], object]


def number_from(variable: str, default: int) -> int:
    """OpenTelemetry says: a value that is no number above 0 counts as not set."""
    said = os.environ.get(variable, "").strip()
    return int(said) if said.isascii() and said.isdigit() and int(said) else default


class Outage:
    """Which signals don't get through now, and how much was lost by it so far."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._lock = Lock()
        self._down: set[Signal] = set()
        self._warned = False
        self._quiet_until = 0.0
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._dropped)

    def lost(self, signal: Signal, items: int) -> None:
        with self._lock:
            self._dropped[signal] += items

    def failed(self, signal: Signal, items: int, reason: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._dropped[signal] += items
            self._down.add(signal)
            first = not self._warned and now >= self._quiet_until
            if first:
                self._warned, self._quiet_until = True, now + SILENCE_S
        if first:
            self._log.warning("telemetry_not_delivered", signal=signal, reason=masked_text(reason))

    def delivered(self, signal: Signal) -> None:
        with self._lock:
            self._down.discard(signal)
            over = self._warned and not self._down
            if over:
                self._warned = False
            dropped = dict(self._dropped)
        if over:
            self._log.info("telemetry_delivered_again", dropped=dropped)


class _Heard(local):
    """What the SDK has logged in this thread since our push began; None outside of a push."""

    first: str | None = None
    listening = False


_HEARD = _Heard()


class _Listener(logging.Handler):
    """Keeps what the SDK logs about our own pushes, for the one warning. Other lines go on as before."""

    def emit(self, record: logging.LogRecord) -> None:
        if _HEARD.listening:
            _HEARD.first = _HEARD.first or record.getMessage()
        else:
            logging.getLogger("opentelemetry").callHandlers(record)


_LISTENER = _Listener()


def listen() -> None:
    for name in SDK_LOGGERS:
        logger = logging.getLogger(name)
        if _LISTENER not in logger.handlers:
            logger.addHandler(_LISTENER)
            logger.propagate = False


class _Push:
    """One attempt to hand something over; never raises."""

    def __init__(self, outage: Outage, signal: Signal) -> None:
        self._outage = outage
        self._signal = signal

    def __call__(self, items: int, send: Any, *args: Any, **kwargs: Any) -> bool:
        _HEARD.first, _HEARD.listening = None, True
        try:
            sent = bool(send(*args, **kwargs).name == "SUCCESS")
            reason = _HEARD.first or "refused"
        except Exception as error:  # noqa: BLE001  the pipeline goes on, whatever an exporter does
            sent, reason = False, f"{type(error).__name__}: {error}"
        finally:
            _HEARD.listening = False
        if sent:
            self._outage.delivered(self._signal)
        else:
            self._outage.failed(self._signal, items, reason)
        return sent


class _Closing:
    """An exporter may be closed twice: once by the SDK, once when the time is up. The second time does nothing."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._lock = Lock()
        self._closed = False

    def __call__(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._exporter.shutdown()


class WatchedSpans(SpanExporter):
    def __init__(self, exporter: SpanExporter, outage: Outage) -> None:
        self._exporter = exporter
        self._push = _Push(outage, "traces")
        self._close = _Closing(exporter)
        self._lock = Lock()
        self.room = number_from("OTEL_BSP_MAX_QUEUE_SIZE", QUEUE)
        self.waiting = 0

    def admit(self) -> bool:
        """Whether there is room for one more. Otherwise the newest span is dropped here, where it can be counted."""
        with self._lock:
            if self.waiting >= self.room:
                return False
            self.waiting += 1
            return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            sent = self._push(len(spans), self._exporter.export, spans)
        finally:
            with self._lock:
                self.waiting -= len(spans)
        return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class WatchedMetrics(MetricExporter):
    def __init__(self, exporter: MetricExporter, outage: Outage) -> None:
        # The reader asks an exporter for these by private names; the SDK has no public ones.
        super().__init__(
            preferred_temporality=exporter._preferred_temporality,  # noqa: SLF001
            preferred_aggregation=exporter._preferred_aggregation,  # noqa: SLF001
        )
        self._exporter = exporter
        self._push = _Push(outage, "metrics")
        self._close = _Closing(exporter)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_kwargs: Any) -> MetricExportResult:
        sent = self._push(1, self._exporter.export, metrics_data, timeout_millis=timeout_millis)
        return MetricExportResult.SUCCESS if sent else MetricExportResult.FAILURE

    def shutdown(self, timeout_millis: float = 30_000, **_kwargs: Any) -> None:  # noqa: ARG002
        self._close()

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class BoundedSpans(SpanProcessor):
    """The SDK's batching, with a bound in front that counts the spans it drops."""

    def __init__(self, exporter: WatchedSpans, outage: Outage) -> None:
        self._exporter = exporter
        self._outage = outage
        self._batches = BatchSpanProcessor(
            exporter,
            max_queue_size=exporter.room,
            max_export_batch_size=min(number_from("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", PUSH), exporter.room),
            schedule_delay_millis=number_from("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS),
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._batches.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._exporter.admit():
            self._batches.on_end(span)
        else:
            self._outage.lost("traces", 1)

    def shutdown(self) -> None:
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)


def close_in_time(timeout_s: float, close: Sequence[Job], abort: Sequence[Job]) -> bool:
    """Closes within the time. The SDK's own limits don't hold while a push hangs, so past ours pushes are cut off."""
    grace_s = min(0.5, timeout_s / 4)
    until = time.monotonic() + timeout_s
    closing = _side_by_side(close)
    if _ended(closing, until - grace_s):
        return True
    # All are daemons: a push that cannot even be cut off ends with the process.
    _ended([*_side_by_side(abort), *closing], until)
    return False


def _side_by_side(jobs: Sequence[Job]) -> list[Thread]:
    threads = [Thread(target=job, name="telemetry-shutdown", daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    return threads


def _ended(threads: Sequence[Thread], until: float) -> bool:
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
