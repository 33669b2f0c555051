"""The door to telemetry: spans, events and figures of one pipeline, wrapped around its stages from outside.

A span leaves the process when it ends, so nothing that may last for weeks is a span. A start of a stream is a trace
that ends as soon as its query runs. Each batch is a trace of its own, and so is the stop; both link to their start.
What happened in a start that failed stands in its own spans.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Any, cast

import structlog

import telemetry
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, fitted
from lakehouse_ingest.observe import span_names
from lakehouse_ingest.observe.events import FailedBatch, HealthServes, LogLevelChanged, SettingsNotReadAgain, SparkLine
from lakehouse_ingest.observe.health import Board, State
from lakehouse_ingest.observe.pages import StatusPages
from lakehouse_ingest.observe.recent_activity import RecentActivity
from lakehouse_ingest.settings import HealthSettings, Settings
from lakehouse_ingest.settings.secret_words import WORDS, secrets_of
from telemetry import Event, Events, Listener, LogLines, Meter, Metrics, Span, carried, metrics, metrics_page

__all__ = ["Event", "Listener", "Span", "Watch", "carried", "metrics", "metrics_page", "pushing", "watch"]

PULLED = ("none", "prometheus")  # exporters that wait to be asked
NOTHING: Mapping[str, object] = {}


class Watch:
    """One pipeline as seen from outside."""

    def __init__(self, pipeline: str, sink: telemetry.Telemetry) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._meter = Meter(sink, pipeline=pipeline)
        log = structlog.get_logger("pipeline").bind(pipeline=pipeline)
        self._events = Events(LogLines(log), Metrics(self._meter))
        self.board = Board()
        self.activity = RecentActivity(shown=telemetry.masked_text)
        self._served = False
        self._partitions: dict[tuple[str, str], Mapping[tuple[str, int], int]] = {}  # by instrument and stream
        self._starts: dict[str, tuple[span_names.Attributes, str]] = {}  # by stream: its source, and the last start

    @property
    def measures(self) -> bool:
        """Whether somebody gets the metrics, so that costly figures are worth finding out."""
        return self._sink is not telemetry.OFF

    @property
    def served(self) -> bool:
        """Whether there is a page to look at."""
        return self._served

    @property
    def looked_at(self) -> bool:
        """Whether anyone asks what the streams are doing."""
        return self._served or self.measures

    def hide(self, secret: str) -> None:
        """A secret that is in no settings; logs and traces hide it like those."""
        telemetry.mask(secret)

    # -- events -------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        self._events.emit(event)

    def add_listener(self, listener: Listener) -> None:
        self._events.add(listener)

    def heard_by(self, listener: Listener) -> AbstractContextManager[None]:
        """While the block runs, the listener gets each event, after the log and the metrics."""
        return self._events.heard_by(listener)

    def relay(self, level: str, logger: str, line: str) -> None:
        """What Spark's Java process says, in the shape of our own lines."""
        self.emit(SparkLine(severity=cast("telemetry.Level", level), logger=logger, text=line))

    # -- streams, batches and their spans ------------------------------------------------------------------

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        """From its first start to its end, good or bad."""
        self.board.report(stream, State.STARTING)
        try:
            yield
        except BaseException as end:
            self.report(stream, State.FAILED, end)
            raise
        self.report(stream, State.ENDED)

    def report(self, stream: str, state: State, error: BaseException | None = None) -> None:
        self.board.report(stream, state, _shown(error) if error else "")
        self.gauge("lakehouse.running", 1 if state is State.RUNNING else 0, stream=stream)

    @contextmanager
    def batch(self, stream: str, number: int) -> Iterator[Span]:
        self.board.batch_began(stream, number)
        landed = False
        try:
            with self.span("batch", stream, batch=number) as span:
                span.link(self._starts.get(stream, ({}, ""))[1], begun_by="start")
                yield span
            landed = True
        except Exception as failure:
            self.emit(FailedBatch(stream=stream, batch=number, error=failure))
            raise
        finally:
            self.board.batch_ended(stream, landed=landed)

    @contextmanager
    def stage(self, name: str, stream: str, table: str | None = None, /, **attributes: object) -> Iterator[Span]:
        """A child span of the batch, and its duration."""
        began = monotonic()
        with self.span(name, stream, table, **attributes) as span:
            yield span
        self.stages(stream, {name: monotonic() - began})

    def stages(self, stream: str, seconds: Mapping[str, float]) -> None:
        """The durations of stages without spans of their own."""
        self.board.moved(stream)
        for name, duration in seconds.items():
            self._meter.record("lakehouse.stage.duration", duration, stream=stream, stage=name)

    @contextmanager
    def commit(self, table: str, stream: str) -> Iterator[Span]:
        began = monotonic()
        with self.span("commit", stream, table) as span:
            yield span
        self.board.moved(stream)
        self._meter.record("lakehouse.commit.duration", monotonic() - began, table=table)

    def span(self, name: str, stream: str, table: str | None = None, /, **attributes: object) -> Span:
        """Some work on a table or on the source."""
        source, _ = self._starts.get(stream, ({}, ""))
        said = {
            **attributes,
            **span_names.of_source(name, source),
            **(span_names.of_table(name, table) if table else {}),
        }
        return self._sink.span(
            name, span_names.kind_of(name), pipeline=self._pipeline, stream=stream, table=table, **said
        )

    @contextmanager
    def start(self, stream: str, source: span_names.Attributes) -> Iterator[Span]:
        """Until the stream's query runs or has failed to."""
        self._starts[stream] = source, ""
        with self.span("start", stream, **source) as span:
            self._starts[stream] = source, span.traceparent
            yield span

    @contextmanager
    def stop(self, stream: str) -> Iterator[Span]:
        """From the moment when no further batch begins."""
        with self.span("stop", stream) as span:
            span.link(self._starts.get(stream, ({}, ""))[1], begun_by="start")
            yield span

    def table(
        self,
        table: str,
        *,
        rows: int,
        files: int,
        size: int,
        snapshots: int,
        partitions: int,
        snapshot: int | None = None,
    ) -> None:
        """As it is after a batch, which wrote to so many `partitions`."""
        figures = {"rows": rows, "files": files, "size": size, "snapshots": snapshots, "partitions": partitions}
        for what, value in figures.items():
            self.gauge(f"lakehouse.table.{what}", value, table=table)
        if self._served:
            self.activity.table(table, rows, files, size, snapshots, snapshot)

    def dead(self, stream: str, samples: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> None:
        """One dead-letter record of each reason, with its bytes. The `names` of known fields may be shown."""
        if self._served:
            self.activity.dead(stream, samples, names)

    def lag(self, stream: str, lag: Mapping[tuple[str, int], int], seconds: float) -> None:
        self._of_partitions("lakehouse.lag", stream, lag)
        self.gauge("lakehouse.lag.time", seconds, stream=stream)
        if self._served:
            self.activity.lag(stream, sum(lag.values()), seconds)

    def uncommitted(self, stream: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._of_partitions("lakehouse.uncommitted", stream, offsets)

    def _of_partitions(self, instrument: str, stream: str, counts: Mapping[tuple[str, int], int]) -> None:
        # A gauge keeps its last value, and in a partition that is no longer read nothing waits.
        gone = dict.fromkeys(self._partitions.get((instrument, stream), {}).keys() - counts.keys(), 0)
        self._partitions[instrument, stream] = counts
        for (topic, number), records in {**gone, **counts}.items():
            self.gauge(instrument, records, stream=stream, topic=topic, partition=number)

    def gauge(self, instrument: str, value: float, **attributes: object) -> None:
        self._meter.gauge(instrument, value, **attributes)

    def count(self, instrument: str, value: float, **attributes: object) -> None:
        self._meter.count(instrument, value, **attributes)

    def reload_log_level(self, before: Settings, reread: Callable[[], Settings]) -> None:
        """Takes the level of the log from the settings as they are now, and nothing else while we run."""
        try:
            now = reread()
        except LakehouseError as refusal:
            self.emit(SettingsNotReadAgain(error=str(refusal)))
            return
        telemetry.set_level(now.log.level)
        others = before.model_copy(update={"log": before.log.model_copy(update={"level": now.log.level})}) != now
        self.emit(LogLevelChanged(to=now.log.level, other_changes="taken at the next start" if others else None))

    # -- for pages and verbs ------------------------------------------------------------------------------

    @contextmanager
    def serving(self, settings: HealthSettings, about: Mapping[str, object] = NOTHING) -> Iterator[str | None]:
        """The pages of health, as long as the block runs; gives their address. `about`: what the pipeline is."""
        if settings.port is None:
            yield None
            return
        shown = StatusPages(self._pipeline, about, settings, self.board, self.activity, self._sink.scrape)
        pages = shown.open(settings.port)
        self._served = True
        pages.start()
        self.emit(HealthServes(url=pages.url))
        try:
            # Nobody looks at what happened before there was a page.
            with self.heard_by(self.activity):
                yield pages.url
        finally:
            pages.close()

    def close(self) -> None:
        self._sink.shutdown(timeout_s=5)


def _shown(error: BaseException) -> str:
    """Its sentence, on one line and without secrets."""
    return fitted(telemetry.masked_text(" ".join(f"{type(error).__qualname__}: {error}".split())))


def watch(settings: Settings, *, instance: str = "") -> Watch:
    """Configures the log and starts telemetry, as the settings say. Without `instance` a process names itself."""
    telemetry.configure_logs(telemetry.LogOptions(settings.log.level, settings.log.format))
    telemetry.mask_names(WORDS)
    for secret in secrets_of(settings):
        telemetry.mask(secret)
    wanted = settings.telemetry
    try:
        sink = telemetry.start(
            telemetry.TelemetryOptions(
                traces=wanted.traces,
                metrics=wanted.metrics,
                exporter=wanted.exporter,
                endpoint=wanted.endpoint,
                headers={key: value.get_secret_value() for key, value in wanted.headers.items()},
                pull=settings.health.port is not None,
                resource={"service.instance.id": instance} if instance else {},
            ),
            log=structlog.get_logger("telemetry"),
        )
    except (telemetry.TelemetryUnavailable, ValueError) as refusal:
        raise SettingsRefused(f"{refusal}; see `telemetry.exporter` and `telemetry.endpoint`") from None
    return Watch(settings.name, sink)


@contextmanager
def pushing(settings: Settings, by: str) -> Iterator[Watch | None]:
    """For a command that ends soon, so that nobody can ask for its metrics. None where they can't be sent either."""
    wanted = settings.telemetry
    if not wanted.metrics or wanted.exporter in PULLED:
        yield None
        return
    without = {"telemetry": wanted.model_copy(update={"traces": False}), "health": HealthSettings()}
    # Each run has the same instance name, so its findings replace those of the run before.
    one = watch(settings.model_copy(update=without), instance=by)
    try:
        yield one
    finally:
        one.close()
