"""The door to telemetry, and its only importer: spans and events are wrapped around stages from outside.

A span leaves the process when it ends, so nothing that may last for weeks is one. A start of a stream is a trace that
ends as soon as its query runs; each batch is one of its own, and so is the stop: both link to their start. What is
told of a start that failed stands in its own spans.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from time import monotonic
from typing import Any

import structlog

import telemetry
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, fitted
from lakehouse_ingest.observe import span_names
from lakehouse_ingest.observe.health import Board, State
from lakehouse_ingest.observe.recent_activity import History, Told
from lakehouse_ingest.printable import all_printable
from lakehouse_ingest.settings import HealthSettings, Settings
from lakehouse_ingest.settings.secret_words import WORDS, secrets_of
from telemetry import Answer, Pages, Span, as_json, carried, metrics, metrics_page

__all__ = ["Span", "Watch", "carried", "metrics", "metrics_page", "pushing", "watch"]

PAGE = files("lakehouse_ingest").joinpath("observe", "status.html")
# It loads nothing from anywhere, and nobody shows it within a page of his own.
ALONE = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}
PULLED = ("none", "prometheus")  # exporters that wait to be asked
NOTHING: Mapping[str, object] = {}
NO_METRICS = "there are none to show: set `telemetry.metrics`"


class Watch:
    """One pipeline as seen from outside."""

    def __init__(self, pipeline: str, sink: telemetry.Telemetry) -> None:
        self.log = Told(structlog.get_logger("pipeline"), self._heard)
        self.events = telemetry.Events(self.log, sink, pipeline)
        self.board = Board()
        self._counted: dict[tuple[str, str], Mapping[tuple[str, int], int]] = {}  # by instrument and stream, last
        self.history = History(shown=telemetry.masked_text)
        self._sink = sink
        self._pipeline = pipeline
        self._served = False
        self._starts: dict[str, tuple[span_names.Attributes, str]] = {}  # by stream: its source, and the last start

    @property
    def measures(self) -> bool:
        """Whether what costs something to find out is of use to anybody."""
        return self._sink is not telemetry.OFF

    @property
    def served(self) -> bool:
        """Whether there is a page to look at."""
        return self._served

    @property
    def looked_at(self) -> bool:
        """Whether anybody asks what the streams are doing."""
        return self._served or self.measures

    def hide(self, secret: str) -> None:
        """One that is in no settings; logs and traces show it no more than those."""
        telemetry.mask(secret)

    # -- what happens -------------------------------------------------------------------------------------

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        """From its first start to its end, whatever that is."""
        self.board.tell(stream, State.STARTING)
        try:
            yield
        except BaseException as end:
            self.tell(stream, State.FAILED, end)
            raise
        self.tell(stream, State.ENDED)

    def tell(self, stream: str, state: State, error: BaseException | None = None) -> None:
        self.board.tell(stream, state, _shown(error) if error else "")
        self.gauge("lakehouse.running", 1 if state is State.RUNNING else 0, stream=stream)

    @contextmanager
    def batch(self, stream: str, number: int, shape: str) -> Iterator[Span]:
        self.board.batch_began(stream, number)
        landed = False
        try:
            with self.span("batch", stream, batch=number, shape=shape) as span:
                span.link(self._starts.get(stream, ({}, ""))[1], begun_by="start")
                yield span
            landed = True
        except Exception as failure:
            self.events.batch_failed(stream=stream, batch=number, error=failure)
            raise
        finally:
            self.board.batch_ended(stream, landed=landed)

    @contextmanager
    def stage(self, name: str, stream: str, table: str | None = None, /, **attributes: object) -> Iterator[Span]:
        """A child span of the batch, and its duration."""
        began = monotonic()
        with self.span(name, stream, table, **attributes) as span:
            yield span
        self.board.moved(stream)
        self._sink.record(
            "lakehouse.stage.duration",
            monotonic() - began,
            pipeline=self._pipeline,
            stream=stream,
            stage=name,
        )

    @contextmanager
    def commit(self, table: str, stream: str) -> Iterator[Span]:
        began = monotonic()
        with self.span("commit", stream, table) as span:
            yield span
        self.board.moved(stream)
        self._sink.record("lakehouse.commit.duration", monotonic() - began, pipeline=self._pipeline, table=table)

    def span(self, name: str, stream: str, table: str | None = None, /, **attributes: object) -> Span:
        """What is done, with a table or the source as its object."""
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
        """Until the stream's query runs, or can't."""
        self._starts[stream] = source, ""
        with self.span("start", stream, **source) as span:
            self._starts[stream] = source, span.traceparent
            yield span

    @contextmanager
    def stop(self, stream: str) -> Iterator[Span]:
        """From the moment when no batch begins any more."""
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
        """As it is after a landing, which wrote to so many `partitions`."""
        figures = {"rows": rows, "files": files, "size": size, "snapshots": snapshots, "partitions": partitions}
        for what, value in figures.items():
            self.gauge(f"lakehouse.table.{what}", value, table=table)
        if self._served:
            self.history.table(table, rows, files, size, snapshots, snapshot)

    def dead(self, stream: str, samples: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> None:
        """One of each reason, as it came; the `names` of fields that are known may be shown."""
        if self._served:
            self.history.dead(stream, samples, names)

    def lag(self, stream: str, lag: Mapping[tuple[str, int], int], seconds: float) -> None:
        self._of_partitions("lakehouse.lag", stream, lag)
        self.gauge("lakehouse.lag.time", seconds, stream=stream)
        if self._served:
            self.history.lag(stream, sum(lag.values()), seconds)

    def uncommitted(self, stream: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self._of_partitions("lakehouse.uncommitted", stream, offsets)

    def _of_partitions(self, instrument: str, stream: str, counts: Mapping[tuple[str, int], int]) -> None:
        # A gauge stays as it was set last, and of what is read no more nothing waits.
        gone = dict.fromkeys(self._counted.get((instrument, stream), {}).keys() - counts.keys(), 0)
        self._counted[instrument, stream] = counts
        for (topic, number), records in {**gone, **counts}.items():
            self.gauge(instrument, records, stream=stream, topic=topic, partition=number)

    def _heard(self, level: str, event: str, said: Mapping[str, Any]) -> None:
        if self._served:
            self.history.heard(level, event, said)

    def relay(self, level: str, logger: str, line: str) -> None:
        """What Spark's Java process says, in the shape of our own lines; what it just prints is no event to count."""
        getattr(self.log, level)("spark", line=line, **({"logger": logger} if logger else {}))
        if logger and level in {"warning", "error"}:
            self.count("lakehouse.warnings", 1, event="spark")

    def gauge(self, instrument: str, value: float, **attributes: object) -> None:
        self._sink.gauge(instrument, value, pipeline=self._pipeline, **attributes)

    def count(self, instrument: str, value: float, **attributes: object) -> None:
        self._sink.count(instrument, value, pipeline=self._pipeline, **attributes)

    def again(self, before: Settings, reread: Callable[[], Settings]) -> None:
        """The level of the log as the settings have it by now; nothing else of them is taken while we run."""
        try:
            now = reread()
        except LakehouseError as refusal:
            self.events.warned("settings_not_read_again", error=str(refusal))
            return
        telemetry.set_level(now.log.level)
        others = before.model_copy(update={"log": before.log.model_copy(update={"level": now.log.level})}) != now
        said = {"other_changes": "taken at the next start"} if others else {}
        self.log.warning("log_level", to=now.log.level, **said)

    # -- for whoever asks ---------------------------------------------------------------------------------

    @contextmanager
    def serving(self, settings: HealthSettings, about: Mapping[str, object] = NOTHING) -> Iterator[str | None]:
        """The pages of health, as long as the block runs; gives where they are. `about`: what the pipeline is."""
        if settings.port is None:
            yield None
            return
        pages = self._pages(settings, about)
        self._served = True
        pages.start()
        self.log.info("health_serves", url=pages.url)
        try:
            yield pages.url
        finally:
            pages.close()

    def _pages(self, settings: HealthSettings, about: Mapping[str, object]) -> Pages:
        def live(_: Mapping[str, str]) -> Answer:
            verdict = self.board.live(settings.stuck)
            return _answer({"live": verdict.good, "reasons": verdict.reasons}, 200 if verdict.good else 503)

        def ready(_: Mapping[str, str]) -> Answer:
            verdict = self.board.ready(settings.fresh)
            said = {"ready": verdict.good, "reasons": verdict.reasons, "pipeline": self._pipeline}
            return _answer({**said, "streams": self.board.shown()}, 200 if verdict.good else 503)

        def scrape(headers: Mapping[str, str]) -> Answer:
            return self._sink.scrape(headers.get("accept", "")) or as_json({"error": NO_METRICS}, 404)

        def status(_: Mapping[str, str]) -> Answer:
            alive, verdict = self.board.live(settings.stuck), self.board.ready(settings.fresh)
            said = {"pipeline": self._pipeline, "live": alive.good, "ready": verdict.good, "reasons": verdict.reasons}
            said |= {"about": about}
            return _answer({**said, "doing": self.board.shown(), **self.history.told()})

        page = Answer(PAGE.read_bytes(), "text/html; charset=utf-8", headers=ALONE)
        pages = {
            "/": lambda _: page,
            "/live": live,
            "/metrics": scrape,
            "/ready": ready,
            "/status.json": status,
        }
        assert settings.port is not None
        try:
            return Pages(settings.host, settings.port, pages, settings.hosts, " or add the name to `health.hosts`")
        except (OSError, UnicodeError, OverflowError) as failure:
            said = failure.strerror if isinstance(failure, OSError) and failure.strerror else failure
            raise SettingsRefused(
                fitted(
                    f"health can't be served at {settings.host} port {settings.port}: {said};"
                    " choose another `health.port` or `health.host`"
                )
            ) from failure

    def close(self) -> None:
        self._sink.shutdown(timeout_s=5)


def _answer(said: Mapping[str, Any], status: int = 200) -> Answer:
    """For a page or a terminal, which is not to obey what records and servers have said."""
    return as_json(all_printable(said), status)


def _shown(error: BaseException) -> str:
    """Its sentence, for anybody."""
    return fitted(telemetry.masked_text(" ".join(f"{type(error).__qualname__}: {error}".split())))


def watch(settings: Settings, *, instance: str = "") -> Watch:
    """Logs configured and telemetry started as the settings say. Without a name an instance has one of this process."""
    telemetry.configure_logs(telemetry.LogSettings(settings.log.level, settings.log.format))
    telemetry.mask_names(WORDS)
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
    """For a command that comes and goes, whose metrics nobody can ask for: None where they can't be sent either."""
    wanted = settings.telemetry
    if not wanted.metrics or wanted.exporter in PULLED:
        yield None
        return
    without = {"telemetry": wanted.model_copy(update={"traces": False}), "health": HealthSettings()}
    # One instance for good: what the next run finds takes the place of what this one has.
    one = watch(settings.model_copy(update=without), instance=by)
    try:
        yield one
    finally:
        one.close()
