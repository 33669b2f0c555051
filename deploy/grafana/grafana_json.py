"""The dashboards as Grafana reads them: JSON, each panel in its place."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from panels import Dashboard, Panel

CHOSEN = 'lakehouse_pipeline=~"$pipeline"'
COLUMNS, HEIGHT = 24, 8


def placed(panels: Sequence[Panel]) -> Iterator[tuple[Panel, dict[str, int]]]:
    """From left to right and from top to bottom. A row is as high as its highest panel."""
    x = y = highest = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, highest = 0, y + highest, 0
        height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        yield panel, {"x": x, "y": y, "w": panel.width, "h": height}
        x, highest = x + panel.width, max(highest, height)


def as_panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps = [
        {"color": colour, "value": value if index else None} for index, (value, colour) in enumerate(panel.limits)
    ] or [{"color": "blue", "value": None}]
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {
            "fillOpacity": 25 if panel.stacked else 8,
            "showPoints": "never",
            "spanNulls": 60_000,
            "axisSoftMin": 0,
        }
        custom["stacking"] = {"mode": "normal" if panel.stacked else "none"}
    defaults = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "custom": custom}
    if panel.kind != "stat":
        defaults["color"] = {"mode": "palette-classic"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.says} if panel.says else {}),
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.replace("@", CHOSEN), "legendFormat": legend or "__auto"}
            for index, (query, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    last = {"calcs": ["lastNotNull"], "values": False}
    shown = {"stat": {"colorMode": "value", "graphMode": "area"}, "bargauge": {"orientation": "horizontal"}}
    return {"reduceOptions": last, **shown[panel.kind]} if panel.kind in shown else {"showValue": "never"}


def as_dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"lakehouse-{dashboard.name}",
        "title": f"lakehouse-ingest: {dashboard.title}",
        "tags": ["lakehouse-ingest"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {"type": "dashboards", "title": "", "tags": ["lakehouse-ingest"], "keepTime": True, "includeVars": True}
        ],
        "templating": {"list": [_datasource(), _pipeline()]},
        "panels": [as_panel(panel, number, place) for number, (panel, place) in enumerate(placed(dashboard.panels), 1)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _pipeline() -> dict[str, Any]:
    query = "label_values(lakehouse_running, lakehouse_pipeline)"
    return {
        "name": "pipeline",
        "label": "Pipeline",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": {"query": query, "refId": "pipelines"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def written(dashboard: Dashboard) -> str:
    """One panel on each line, so that a change of a panel shows as one changed line."""
    made = as_dashboard(dashboard)
    panels = ",\n".join(f"  {json.dumps(panel)}" for panel in made.pop("panels"))
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in made.items())
    return f'{{\n{head},\n "panels": [\n{panels}\n ]\n}}\n'
