"""`lakehouse-ingest top` shows what a running process tells, and says in a sentence why it can't."""

import io
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lakehouse_ingest.cli import app
from lakehouse_ingest.cli.verbs.top import CELLS, _cells, ask, frame
from lakehouse_ingest.environment.embedded.claim import any_free_port
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.observe.events import BatchLanded, StreamFailed
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF


@pytest.fixture
def page() -> Iterator[str]:
    """Of a process in which something has happened."""
    watch = Watch("plant-7", OFF)
    with watch.serving(HealthSettings(port=0)) as url:
        watch.board.expect(["sensors", "orders"])
        watch.report("sensors", State.RUNNING)
        watch.report("orders", State.WAITING, TryAgain("the broker is away"))
        watch.emit(
            BatchLanded(
                stream="sensors",
                batch=41,
                received=1_203,
                duration_s=0.5,
                landed={"iot.a": 1_200},
                dead={"broken_json": 3},
                freshness_s=2,
            )
        )
        watch.table("iot.a", rows=1_234_567, files=89, size=5_000_000, snapshots=12, partitions=1)
        watch.lag("sensors", {("t", 0): 4_000, ("t", 1): 321}, 1.5)
        watch.emit(StreamFailed(stream="orders", error=TryAgain("[bold]not markup[/bold]")))
        yield f"{url}/status.json"


def _drawn(page: str, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    console.print(frame(ask(page), page))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/a/status.json": b"{}", "/b/status.json": b"<html>"}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        pass


class TestFrame:
    def test_shows_what_the_process_reports(self, page: str) -> None:
        drawn = _drawn(page, 140)
        for said in (
            "plant-7",
            "not ready",
            "orders: waiting: TryAgain: the broker is away",
            "4,321 · 1.5 s",
            "1,234,567",
            "4.8 MiB",
            "broken_json",
            "1,203",
            "[bold]not markup[/bold]",
        ):
            assert said in drawn
        (row,) = [line for line in drawn.splitlines() if "records a second" in line and "sensors" in line]
        assert row.rstrip().endswith("█")

    @pytest.mark.parametrize("width", [40, 80])
    def test_fits_into_a_narrow_terminal(self, page: str, width: int) -> None:
        drawn = _drawn(page, width)
        assert max(map(len, drawn.splitlines())) <= width
        assert "plant-7" in drawn

    def test_draws_the_last_hour_with_the_newest_minute_at_the_right(self) -> None:
        now = time.time()
        this = int(now) // 60 * 60
        minutes = [{"at": this - 60 * ago, "landed": ago} for ago in (60, 59, 2, 1, 0)]
        cells = _cells(minutes, now, lambda each: each["landed"], sum)
        assert cells == [59, *[None] * (CELLS - 3), 2, 1]


class TestTop:
    def test_with_once_prints_one_frame_without_escapes(
        self, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By --url, or by the settings that the pipeline was started with."""
        monkeypatch.setenv("COLUMNS", "120")
        host, _, port = page.removeprefix("http://").removesuffix("/status.json").rpartition(":")
        config = tmp_path / "pipeline.toml"
        config.write_text(f'[[streams]]\ntopics = ["sensors"]\n[health]\nhost = "{host}"\nport = {port}\n')
        for words in (["--url", page.removesuffix("/status.json")], ["--config", str(config)]):
            done = CliRunner().invoke(app.app, ["top", "--once", *words])
            assert done.exit_code == 0, done.output
            assert "1,234,567" in done.output
            assert "\x1b" not in done.output

    @pytest.mark.parametrize(
        ("health", "error", "said"),
        [
            ("", SettingsRefused, "`health.port` is not set"),
            ("[health]\nport = 0", SettingsRefused, "`health.port` is 0"),
            ("[health]\nport = FREE", TryAgain, "nothing answers at http://127.0.0.1:.*refused.*start"),
        ],
    )
    def test_without_a_page_gives_the_reason_and_the_setting(
        self, tmp_path: Path, health: str, error: type[LakehouseError], said: str
    ) -> None:
        config = tmp_path / "pipeline.toml"
        config.write_text(f'[[streams]]\ntopics = ["sensors"]\n{health}\n'.replace("FREE", str(any_free_port())))
        with pytest.raises(error, match=said) as refused:
            CliRunner().invoke(app.app, ["top", "--once", "--config", str(config)], catch_exceptions=False)
        assert len(str(refused.value)) <= 200

    @pytest.mark.parametrize("path", ["a", "b", "c"])
    def test_refuses_a_page_that_is_not_ours(self, path: str) -> None:
        server = HTTPServer(("127.0.0.1", 0), _Other)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            with pytest.raises(SettingsRefused, match="no pipeline of ours"):
                ask(f"http://127.0.0.1:{server.server_address[1]}/{path}/status.json")
        finally:
            server.shutdown()
            server.server_close()
