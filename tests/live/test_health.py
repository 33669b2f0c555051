"""A pipeline as its operator sees it from outside: ready, alive, and its counts, over HTTP and in datagrams."""

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGTERM
from threading import Event, Thread
from typing import Any

import pytest

from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events
from tests.services.openmetrics import Family, read
from tests.services.pipelines import Pipelines, freeze, settings_text, until
from tests.services.readers import Reader

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

FRESH_S, STUCK_S = 12, 16  # its signs of life are three seconds apart when nothing comes
TABLE = """\
table = "events"
columns = [{ name = "n", type = "long", required = true }]"""


def _ask(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def _scrape(url: str) -> dict[str, Family]:
    asked = urllib.request.Request(f"{url}/metrics", headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return read(answer.read().decode())


@contextmanager
def statsd() -> Iterator[tuple[int, list[str]]]:
    """A port, and the lines that have come to it."""
    lines: list[str] = []
    end = Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)

        def listen() -> None:
            while not end.is_set():
                try:
                    lines.extend(receiver.recv(65_536).decode().split("\n"))
                except TimeoutError:
                    continue

        thread = Thread(target=listen)
        thread.start()
        try:
            yield receiver.getsockname()[1], lines
        finally:
            end.set()
            thread.join()


class TestHealthPages:
    def test_show_a_pipeline_that_starts_commits_hangs_and_ends(
        self, topic: str, broker: str, rest_uri: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        create_topic(broker, topic, 2)
        produce(broker, topic, [*events(range(20), 2), (None, b"{")])
        namespace = f"ns_{topic}"
        settings = settings_text(topic, broker, rest_uri, namespace, table=TABLE)
        with statsd() as (port, lines), Pipelines(tmp_path, jars_folder) as pipelines:
            running = pipelines.start(
                f"""{settings}
[telemetry]
metrics = true
exporter = "statsd"
endpoint = "udp://127.0.0.1:{port}"
[health]
host = "127.0.0.1"
port = 0
fresh = {FRESH_S}
stuck = {STUCK_S}
"""
            )
            url = running.wait_for("health_serves")["url"]
            assert url.startswith("http://127.0.0.1:")
            # Long before Spark is there it says that it is starting; how long that takes is the machine's affair.
            status, said = _ask(f"{url}/ready")
            assert (status, said["reasons"]) == (503, [f"{topic}: starting"])
            running.wait_for("batch_landed")
            assert until(lambda: _ask(f"{url}/ready")[0] == 200, 30), _ask(f"{url}/ready")
            assert until(lambda: bool(_landed(url)), 10)
            found = _scrape(url)
            reader = Reader(rest_uri, namespace)
            rows = len(reader.table("events").scan().to_arrow())
            assert found["lakehouse_records"].value("_total", lakehouse_outcome="landed") == rows == 20
            assert found["lakehouse_records"].value("_total", lakehouse_reason="broken_json") == 1
            told = _ask(f"{url}/status.json")[1]
            sample = told["streams"][topic]["samples"]["broken_json"]
            assert (sample["value"], sample["detail"]) == ("{", "the value is not JSON")
            snapshots = {table["name"]: table["snapshot"] for table in told["tables"]}
            assert snapshots[f"{namespace}.events"] == str(reader.table("events").metadata.current_snapshot_id)
            assert told["about"]["source"] == f"kafka at {broker}"
            config = tmp_path / "pipeline-1.toml"
            config.write_text(config.read_text().replace("[log]", '[log]\nlevel = "debug"'))
            running.send(SIGHUP)
            assert running.wait_for("log_level")["to"] == "debug"
            # An idle one is ready as well: longer than `fresh` nothing comes.
            assert not until(lambda: _ask(f"{url}/ready")[0] != 200, FRESH_S + 1, 0.5), _ask(f"{url}/ready")
            jvm = running.jvm()
            freeze(jvm)
            try:
                assert until(lambda: _ask(f"{url}/ready")[0] == 503, FRESH_S + 10), "nobody noticed"
                assert "without progress" in _ask(f"{url}/ready")[1]["reasons"][0]
                assert until(lambda: _ask(f"{url}/live")[0] == 503, STUCK_S + 10), "nobody noticed"
            finally:
                os.kill(jvm, SIGCONT)
            assert until(lambda: _ask(f"{url}/ready")[0] == 200, 30), _ask(f"{url}/ready")
            assert _ask(f"{url}/live") == (200, {"live": True, "reasons": []})
            running.send(SIGTERM)
            assert running.wait() == 0, running.tail()
            with pytest.raises(urllib.error.URLError):
                _ask(f"{url}/live")
        landed = [line for line in lines if line.startswith("lakehouse.records:") and "outcome:landed" in line]
        assert sum(int(line.split(":")[1].split("|")[0]) for line in landed) == 20


def _landed(url: str) -> bool:
    return "lakehouse_records" in _scrape(url)
