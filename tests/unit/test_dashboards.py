"""What is deployed asks for metrics that there are; that it is answered is in tests/live/test_prometheus."""

import re
from itertools import combinations
from typing import Any

import yaml

from telemetry import INSTRUMENTS
from telemetry.instruments import exported
from telemetry.prometheus_names import prometheus_label, prometheus_name
from tests.services.dashboards import ALERTS, GRAFANA, alerts, dashboards, description, panel_queries
from tests.services.pipelines import ROOT

NAMES = {
    prometheus_name(it.name, it.unit, counter=it.kind == "counter", gauge=it.kind == "gauge"): it
    for it in INSTRUMENTS.values()
}
SERIES = re.compile(r"\b(lakehouse_\w+?)(_bucket|_sum|_count)?(?=\{|\[|\)| |$)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)(?:=~|!=|=)\"")
RUNBOOK = ROOT / "docs" / "operate" / "when-it-stops.md"


def _asked(query: str) -> set[str]:
    """The metrics of a query; each label must be one of its metric's."""
    found = set()
    for name, part, within in SERIES.findall(query):
        if name in NAMES:
            assert bool(part) == (NAMES[name].kind == "histogram"), query
            found.add(name)
            labels = {prometheus_label(exported(each)) for each in NAMES[name].attributes}
            assert set(LABEL.findall(within)) <= labels, query
        else:  # by which labels it is summed up
            assert name in {prometheus_label(exported(each)) for it in NAMES.values() for each in it.attributes}, query
    return found


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))


class TestDashboards:
    def test_are_generated_from_the_description(self) -> None:
        """`python deploy/grafana/dashboards.py` writes it anew."""
        made = description().files()
        assert {file: file.read_text(encoding="utf-8") for file in (GRAFANA / "dashboards").iterdir()} == made

    def test_show_every_metric_and_no_unknown_one(self) -> None:
        asked = {name for _, query in panel_queries("1m") for name in _asked(query)}
        assert asked == set(NAMES) | {"lakehouse_telemetry_dropped_total"}

    def test_have_panels_that_do_not_overlap(self) -> None:
        for file, dashboard in dashboards():
            panels = dashboard["panels"]
            assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1)), file
            assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels), file
            assert not [pair for pair in combinations(panels, 2) if _overlap(*(each["gridPos"] for each in pair))], file

    def test_are_found_by_the_provisioning(self) -> None:
        (source,) = _provisioned("datasources/prometheus.yaml")["datasources"]
        assert source["type"] == "prometheus"
        (provider,) = _provisioned("dashboards/lakehouse-ingest.yaml")["providers"]
        assert provider["options"]["path"]
        assert len({dashboard["uid"] for _, dashboard in dashboards()}) == 5


class TestAlerts:
    def test_query_only_known_metrics(self) -> None:
        assert all(_asked(expression) or expression.startswith("up{") for expression in alerts().values())

    def test_link_to_their_own_heading_of_the_runbook(self) -> None:
        headings = {line for line in RUNBOOK.read_text(encoding="utf-8").splitlines() if line.startswith("### ")}
        groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
        for name, annotations in ((rule["alert"], rule["annotations"]) for group in groups for rule in group["rules"]):
            assert annotations["runbook_url"] == f"{RUNBOOK.relative_to(ROOT)}#{name.lower()}"
            assert f"### {name}" in headings


def _provisioned(name: str) -> Any:
    return yaml.safe_load((GRAFANA / "provisioning" / name).read_text(encoding="utf-8"))
