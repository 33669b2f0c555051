"""The catalogue says all there is to know of a metric, in words that hold, and the page is read off it."""

import json
import re

import pytest

from lakehouse_ingest.operations.verify.findings import FindingKind
from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages.tally import DISCARDED, FILTERED, LANDED, TRIMMED
from telemetry import INSTRUMENTS, metrics, metrics_page
from telemetry.instruments import ATTRIBUTES
from telemetry.prometheus_names import prometheus_name
from tests.services.command import Command

CLOSED = {"event", "outcome", "reason", "stage", "process", "signal", "kind"}
CONVENTION = re.compile(r"[a-z]+(\.[a-z]+)*")


class TestInstruments:
    def test_have_a_name_a_meaning_and_bounded_attributes(self) -> None:
        for name, it in INSTRUMENTS.items():
            assert CONVENTION.fullmatch(name), name
            assert it.meaning, name
            for attribute in it.attributes:
                assert attribute in ATTRIBUTES, f"{name}: nothing says what keeps the values of {attribute} few"
                assert (attribute in it.values) == (attribute in CLOSED), (name, attribute)

    def test_have_buckets_and_seconds_only_as_histograms(self) -> None:
        for name, it in INSTRUMENTS.items():
            assert bool(it.buckets) == (it.kind == "histogram"), name
            assert it.kind != "histogram" or it.unit == "s", name

    def test_have_the_closed_lists_of_the_pipeline(self) -> None:
        records = INSTRUMENTS["lakehouse.records"].values
        assert set(records["reason"]) == {str(reason) for reason in Reason}
        assert set(records["outcome"]) == {LANDED, "dead", TRIMMED, FILTERED, DISCARDED}
        assert INSTRUMENTS["lakehouse.verify.findings"].values["kind"] == tuple(map(str, FindingKind))

    def test_have_distinct_names_in_prometheus(self) -> None:
        names = [
            prometheus_name(it.name, it.unit, counter=it.kind == "counter", gauge=it.kind == "gauge")
            for it in INSTRUMENTS.values()
        ]
        assert len(set(names)) == len(names)


class TestMetricsPage:
    def test_has_a_row_for_each_metric_and_each_attribute(self) -> None:
        page = metrics_page()
        for it in INSTRUMENTS.values():
            (row,) = [line for line in page.splitlines() if line.startswith(f"| `{it.name}`")]
            assert it.meaning in row
            assert len(re.findall(r"(?<!\\)\|", row)) == 6
        for attribute in ATTRIBUTES:
            assert re.search(rf"^\| `(lakehouse\.)?{re.escape(attribute)}` \|", page, re.MULTILINE), attribute

    def test_has_the_same_content_as_json(self) -> None:
        assert [entry["name"] for entry in metrics()] == list(INSTRUMENTS)
        (records,) = [entry for entry in metrics() if entry["name"] == "lakehouse.records"]
        assert records["prometheus"] == "lakehouse_records_total"
        assert isinstance(attributes := records["attributes"], dict)
        assert "broken_json" in attributes["lakehouse.reason"]

    def test_is_printed_by_the_command_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        command = Command(capsys)
        assert command("metrics").out == metrics_page()
        assert json.loads(command("metrics", "--json").out) == metrics()
