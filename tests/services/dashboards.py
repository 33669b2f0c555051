"""The dashboards and the alerts as they are deployed: each query, as Grafana or Prometheus would ask it."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from tests.services.pipelines import ROOT

GRAFANA = ROOT / "deploy" / "grafana"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\blakehouse_[a-z_]+(?=[{\[ )]|$)")
COMPARED = re.compile(r" (==|>|<) (?=[\w(])")


def description() -> ModuleType:
    """What the JSON is made from."""
    sys.path.insert(0, str(GRAFANA))  # it is a program, with its modules beside it
    try:
        return import_module("dashboards")
    finally:
        sys.path.remove(str(GRAFANA))


def dashboards() -> Iterator[tuple[Path, Any]]:
    for file in sorted((GRAFANA / "dashboards").glob("*.json")):
        yield file, json.loads(file.read_text(encoding="utf-8"))


def panel_queries(window: str) -> Iterator[tuple[str, str]]:
    """Each with the name of its dashboard and panel, over so much time, for every pipeline."""
    for file, dashboard in dashboards():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$pipeline", ".*")
                query = query.replace("$__rate_interval", window).replace("$__range", window)
                yield f"{file.stem}: {panel['title']}", query


def alerts() -> Mapping[str, str]:
    """The expression of each."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def uncompared(expression: str) -> str:
    """What it judges, whatever the judgement: comparisons say 0 or 1 and leave nothing out."""
    return COMPARED.sub(r" \1 bool ", expression)
