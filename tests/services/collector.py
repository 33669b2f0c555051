"""OpenTelemetry's collector, the real thing: built once by Go from the parts that the deployed configuration names.

with Collector(tmp_path) as collector:
    ... endpoint=collector.grpc ...
    collector.spans()
"""

import hashlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from filelock import FileLock

from lakehouse_ingest.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.jars import cache_folder
from tests.services.pipelines import ROOT, until

SOURCE = Path(__file__).with_name("otelcol")
DEPLOYED = ROOT / "deploy" / "otel-collector.yaml"
VERSION = "0.161.0"
BUILDING = 1_200.0
STARTING = 30.0


def binary() -> Path:
    """Where it is kept, built or not; other parts are another file."""
    parts = b"".join((SOURCE / name).read_bytes() for name in ("go.mod", "main.go"))
    return cache_folder() / "engines" / f"otelcol-{VERSION}-{hashlib.sha256(parts).hexdigest()[:8]}"


def build() -> Path:
    """Builds it if it is not there: with an empty Go cache about two minutes, most of it downloads."""
    wanted = binary()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(wanted.with_suffix(".lock")):
        if not wanted.exists():
            with TemporaryDirectory(dir=wanted.parent) as fresh:
                shutil.copytree(SOURCE, fresh, dirs_exist_ok=True)
                subprocess.run(
                    # Versions of all others follow from those in go.mod.
                    ["go", "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", "otelcol", "."],
                    cwd=fresh,
                    env={**os.environ, "CGO_ENABLED": "0"},
                    capture_output=True,
                    text=True,
                    timeout=BUILDING,
                    check=True,
                )
                Path(fresh, "otelcol").rename(wanted)
    return wanted


class Collector:
    """Run by the configuration that is deployed; only where it listens and writes is the test's."""

    def __init__(self, folder: Path) -> None:
        grpc, http, self._pulled = (f"{LOOPBACK}:{any_free_port()}" for _ in range(3))
        self.grpc, self.http = f"http://{grpc}", f"http://{http}"
        self._traces, self._log = folder / "traces.jsonl", folder / "collector.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [str(build()), "--config", str(DEPLOYED)],
                env={
                    **os.environ,
                    "OTLP_GRPC": grpc,
                    "OTLP_HTTP": http,
                    "PROMETHEUS_PORT": self._pulled,
                    "TRACES_FILE": str(self._traces),
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )

    @property
    def target(self) -> str:
        """For Prometheus."""
        return self._pulled

    def __enter__(self) -> Self:
        if not until(lambda: self._ready() or self._process.poll() is not None, STARTING) or not self._ready():
            self.stop()
            raise AssertionError(f"the collector did not start: {self._log.read_text(errors='replace')[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)

    def spans(self) -> list[Mapping[str, Any]]:
        """All that were written to the file; attributes are plain."""
        lines = self._traces.read_text(encoding="utf-8").splitlines() if self._traces.exists() else []
        return [span for line in lines for span in _spans(json.loads(line))]

    def metrics(self) -> str:
        """As Prometheus gets them."""
        asked = urllib.request.Request(
            f"http://{self._pulled}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            said: str = answer.read().decode()
            return said

    def _ready(self) -> bool:
        try:
            return bool(self.metrics() or True)
        except (urllib.error.URLError, OSError):
            return False


def _spans(line: Any) -> Iterator[Mapping[str, Any]]:
    for resource in line["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                attributes = {
                    each["key"]: next(iter(each["value"].values()), None) for each in span.get("attributes", ())
                }
                yield {**span, "parentSpanId": span.get("parentSpanId", ""), "attributes": attributes}
