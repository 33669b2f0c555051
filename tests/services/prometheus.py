"""Prometheus, the real thing, out of Debian's package: it scrapes, judges rules, and is asked.

with Prometheus(tmp_path, {"lakehouse-ingest": "127.0.0.1:8080"}) as prometheus:
    prometheus.ask("lakehouse_lag")
"""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from tests.services.debian import taken_out
from tests.services.engine import Engine, answers
from tests.services.pipelines import ROOT

DEPLOYED = ROOT / "deploy" / "prometheus"
SCRAPING, JUDGING = "5s", "1s"  # what is looked at more often has to answer faster, too

Series = Mapping[str, Any]
"""`metric` holds the labels, `value` the time and the number as text."""


def programs() -> tuple[Path, Path]:
    """The server, and promtool."""
    found = taken_out("prometheus", "prometheus", "promtool")
    return found["prometheus"], found["promtool"]


def promtool(*words: str) -> str:
    """What it says; fails with that."""
    _, tool = programs()
    done = subprocess.run([str(tool), *words], cwd=DEPLOYED, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus(Engine):
    """Run by the configuration that is deployed; only where its targets are, and how often it looks, is the test's."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        server, _ = programs()
        config = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": SCRAPING, "scrape_timeout": SCRAPING, "evaluation_interval": JUDGING}
        config["rule_files"] = [str(DEPLOYED / name) for name in config["rule_files"]]
        jobs = {job["job_name"]: job for job in config["scrape_configs"]}
        for name, target in targets.items():
            jobs[name]["static_configs"] = [{"targets": [target]}]
        config["scrape_configs"] = [jobs[name] for name in targets]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.url = f"http://{LOOPBACK}:{any_free_port()}"
        super().__init__(
            "Prometheus",
            folder,
            [
                str(server),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={self.url.partition('//')[2]}",
            ],
        )

    def ask(self, query: str) -> list[Series]:
        """What a query finds now."""
        found: list[Series] = self._said(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
        return found

    def value(self, query: str) -> float:
        """The only number that a query finds."""
        (found,) = self.ask(query)
        return float(found["value"][1])

    def rules(self) -> list[Mapping[str, Any]]:
        """With their health, as it judges them."""
        return [rule for group in self._said("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._said("targets")["activeTargets"]
        return found

    def _said(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{urllib.parse.unquote_plus(path)}: {refused.read().decode()}") from refused

    def _is_ready(self) -> bool:
        return answers(f"{self.url}/-/ready")
