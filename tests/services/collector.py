"""OpenTelemetry's collector, the real thing: built once by Go from the parts that the deployed configuration names.

with Collector(tmp_path) as collector:
    ... endpoint=collector.grpc ...
    collector.spans()
"""

import hashlib
import json
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.environment.jars import cache_folder
from tests.services.engine import Engine, answers, built, go
from tests.services.pipelines import ROOT

SOURCE = Path(__file__).with_name("otelcol")
DEPLOYED = ROOT / "deploy" / "otel-collector.yaml"
VERSION = "0.161.0"


def binary() -> Path:
    """Where it is kept, built or not; other parts are another file."""
    parts = b"".join((SOURCE / name).read_bytes() for name in ("go.mod", "main.go"))
    return cache_folder() / "engines" / f"otelcol-{VERSION}-{hashlib.sha256(parts).hexdigest()[:8]}"


def build() -> Path:
    """Builds it if it is not there: with an empty Go cache about two minutes, most of it downloads."""

    def make(folder: Path) -> Path:
        shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
        # Versions of all others follow from those in go.mod.
        go("build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", "otelcol", ".", folder=folder)
        return folder / "otelcol"

    return built(binary(), make)


class Collector(Engine):
    """Run by the configuration that is deployed; only where it listens and writes is the test's."""

    def __init__(self, folder: Path) -> None:
        grpc, http, self._pulled = (f"{LOOPBACK}:{any_free_port()}" for _ in range(3))
        self.grpc, self.http = f"http://{grpc}", f"http://{http}"
        self._traces = folder / "traces.jsonl"
        listens = {"OTLP_GRPC": grpc, "OTLP_HTTP": http, "PROMETHEUS_PORT": self._pulled}
        super().__init__(
            "Collector",
            folder,
            [str(build()), "--config", str(DEPLOYED)],
            {**listens, "TRACES_FILE": str(self._traces)},
        )

    @property
    def target(self) -> str:
        """For Prometheus."""
        return self._pulled

    def spans(self) -> list[Mapping[str, Any]]:
        """All that were written to the file; attributes are plain."""
        written = self._traces.read_text(encoding="utf-8") if self._traces.exists() else ""
        lines = written.splitlines(keepends=True)
        return [span for line in lines if line.endswith("\n") for span in _spans(json.loads(line))]

    def metrics(self) -> str:
        """As Prometheus gets them."""
        asked = urllib.request.Request(
            f"http://{self._pulled}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            said: str = answer.read().decode()
            return said

    def _is_ready(self) -> bool:
        return answers(f"http://{self._pulled}/metrics")


def _spans(line: Any) -> Iterator[Mapping[str, Any]]:
    for resource in line["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                attributes = {
                    each["key"]: next(iter(each["value"].values()), None) for each in span.get("attributes", ())
                }
                yield {**span, "parentSpanId": span.get("parentSpanId", ""), "attributes": attributes}
