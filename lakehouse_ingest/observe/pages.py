"""The pages that a pipeline serves while it runs: whether it lives and is ready, its status, and its metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from lakehouse_ingest.errors import SettingsRefused, fitted
from lakehouse_ingest.observe.health import Board
from lakehouse_ingest.observe.recent_activity import RecentActivity
from lakehouse_ingest.printable import all_printable
from lakehouse_ingest.settings import HealthSettings
from telemetry import HttpAnswer, HttpPages, as_json

PAGE = files("lakehouse_ingest").joinpath("observe", "status.html")
# The page loads nothing from elsewhere, and no other site may show it in a frame.
ALONE = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}
NO_METRICS = "there are none to show: set `telemetry.metrics`"

Headers = Mapping[str, str]


@dataclass(frozen=True)
class StatusPages:
    """`about`: what the pipeline reads and writes. `scrape`: the metrics, for what a client accepts."""

    pipeline: str
    about: Mapping[str, object]
    settings: HealthSettings
    board: Board
    activity: RecentActivity
    scrape: Callable[[str], HttpAnswer | None]

    def open(self, port: int) -> HttpPages:
        page = HttpAnswer(PAGE.read_bytes(), "text/html; charset=utf-8", headers=ALONE)
        pages = {
            "/": lambda _: page,
            "/live": self._live,
            "/metrics": self._metrics,
            "/ready": self._ready,
            "/status.json": self._status,
        }
        host, hosts = self.settings.host, self.settings.hosts
        try:
            return HttpPages(host, port, pages, hosts, " or add the name to `health.hosts`")
        except (OSError, UnicodeError, OverflowError) as failure:
            said = failure.strerror if isinstance(failure, OSError) and failure.strerror else failure
            raise SettingsRefused(
                fitted(
                    f"health can't be served at {host} port {port}: {said};"
                    " choose another `health.port` or `health.host`"
                )
            ) from failure

    def _live(self, _: Headers) -> HttpAnswer:
        verdict = self.board.live(self.settings.stuck)
        return _answer({"live": verdict.good, "reasons": verdict.reasons}, 200 if verdict.good else 503)

    def _ready(self, _: Headers) -> HttpAnswer:
        verdict = self.board.ready(self.settings.fresh)
        said = {"ready": verdict.good, "reasons": verdict.reasons, "pipeline": self.pipeline}
        return _answer({**said, "streams": self.board.shown()}, 200 if verdict.good else 503)

    def _metrics(self, headers: Headers) -> HttpAnswer:
        return self.scrape(headers.get("accept", "")) or as_json({"error": NO_METRICS}, 404)

    def _status(self, _: Headers) -> HttpAnswer:
        live, ready = self.board.live(self.settings.stuck), self.board.ready(self.settings.fresh)
        said = {"pipeline": self.pipeline, "live": live.good, "ready": ready.good, "reasons": ready.reasons}
        return _answer({**said, "about": self.about, "doing": self.board.shown(), **self.activity.report()})


def _answer(said: Mapping[str, Any], status: int = 200) -> HttpAnswer:
    """Without what would steer a page or a terminal: records and servers may say anything."""
    return as_json(all_printable(said), status)
