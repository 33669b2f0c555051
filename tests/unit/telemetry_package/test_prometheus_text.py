"""What Prometheus pulls: by the rules of the format, with the very numbers that were recorded."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource

from telemetry import INSTRUMENTS, Telemetry, TelemetryOptions, start
from telemetry.prometheus_names import family, prometheus_label, unit_word
from telemetry.prometheus_text import PullReader
from tests.services.debian import NotToBeHad
from tests.services.openmetrics import Family, read
from tests.services.prometheus import programs

AT = {"pipeline": "plant-7", "stream": "sensors"}
OPEN = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def pulled() -> Iterator[Telemetry]:
    telemetry = start(TelemetryOptions(metrics=True, exporter="none", pull=True))
    try:
        yield telemetry
    finally:
        assert telemetry.shutdown(5)


def scraped(telemetry: Telemetry, accept: str = OPEN) -> dict[str, Family]:
    answer = telemetry.scrape(accept)
    assert answer
    assert answer.kind.startswith(OPENMETRICS if accept == OPEN else PLAIN)
    return read(answer.body.decode(), opened=accept == OPEN)


def _everything(telemetry: Telemetry) -> None:
    for name, it in INSTRUMENTS.items():
        attributes = {each: it.values.get(each, ('a "quoted"\nback\\slash {brace},=',))[0] for each in it.attributes}
        record: Any = {"counter": telemetry.count, "gauge": telemetry.gauge, "histogram": telemetry.record}[it.kind]
        for value in (1, 2.5):
            record(name, value, **attributes)


class TestScrape:
    @pytest.mark.parametrize("accept", [OPEN, "", "text/plain;version=0.0.4"])
    def test_shows_every_metric_with_its_value(self, accept: str) -> None:
        with pulled() as telemetry:
            _everything(telemetry)
            found = scraped(telemetry, accept)
        for it in INSTRUMENTS.values():
            if it.name == "lakehouse.telemetry.dropped":
                continue  # nothing was
            name = family(it.name, it.unit, gauge=it.kind == "gauge")
            total = "_total" if it.kind == "counter" else ""
            each = found[name if accept == OPEN else f"{name}{total}"]
            assert each.type == it.kind
            assert each.help == it.meaning
            if it.kind == "histogram":
                assert (each.value("_count"), each.value("_sum")) == (2, 3.5)
                assert each.value("_bucket", le="1.0") == 1
                assert each.value("_bucket", le="+Inf") == 2
            else:
                assert each.value(total if accept == OPEN else "") == (3.5 if it.kind == "counter" else 2.5)
            labels = {name for (_, pairs) in each.samples for name, _ in pairs} - {"le"}
            assert labels == {f"lakehouse_{at}" if "." not in at else at.replace(".", "_") for at in it.attributes}

    def test_keeps_the_value_of_a_label_through_escaping(self) -> None:
        said = 'a "quoted"\nback\\slash\\n {brace},=\\'
        with pulled() as telemetry:
            telemetry.count("lakehouse.batches", pipeline=said, outcome="landed")
            for accept in (OPEN, ""):
                batches = next(each for name, each in scraped(telemetry, accept).items() if "batches" in name)
                assert {pair for (_, labels) in batches.samples for pair in labels} >= {("lakehouse_pipeline", said)}

    def test_names_the_service_once(self) -> None:
        with pulled() as telemetry:
            telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
            found = scraped(telemetry)
        ((_, labels),) = found["target"].samples
        assert ("service_name", "lakehouse-ingest") in labels
        assert not any(name == "service_name" for (_, pairs) in found["lakehouse_batches"].samples for name, _ in pairs)

    def test_is_empty_before_anything_was_measured(self) -> None:
        with pulled() as telemetry:
            assert set(scraped(telemetry)) <= {"target", "lakehouse_telemetry_dropped"}

    @pytest.mark.parametrize(
        "accept", ["application/openmetrics-text; version=zz", "application/openmetrics-text;=", ";;,"]
    )
    def test_with_a_malformed_accept_header_is_answered(self, accept: str) -> None:
        with pulled() as telemetry:
            assert (answer := telemetry.scrape(accept))
            assert answer.status == 200

    def test_yields_nothing_without_a_reader_or_after_shutdown(self) -> None:
        telemetry = start(TelemetryOptions(metrics=True, exporter="none"))
        assert telemetry.scrape() is None
        telemetry.shutdown(5)
        with pulled() as telemetry:
            telemetry.shutdown(5)
            assert telemetry.scrape() is None

    def test_includes_metrics_of_other_packages(self) -> None:
        reader = PullReader()
        provider = MeterProvider([reader], resource=Resource.get_empty(), shutdown_on_exit=False)
        gauge = provider.get_meter("x").create_gauge("odd-name/9", unit="1", description='a "b"\\\nc')
        for number, value in enumerate((-1e300, 0.1, 7)):
            gauge.set(value, {"n": number, "it.em": "a", "it-em": "b", "on": True, "many": ["a", "b"]})
        found = read(reader.scrape(OPEN).body.decode())
        provider.shutdown()
        each = found["odd_name_9_ratio"]
        assert each.help == 'a \\"b\\"\\\\\\nc'
        values = {dict(labels)["n"]: value for (_, labels), value in each.samples.items()}
        assert values == {"0": -1e300, "1": 0.1, "2": 7}
        labels = dict(next(iter(each.samples))[1])
        assert (labels["it_em"], labels["on"], labels["many"]) == ("b;a", "true", "a,b")

    def test_passes_the_check_of_promtool(self) -> None:
        try:
            _, promtool = programs()
        except NotToBeHad as missing:
            pytest.skip(f"no promtool: {missing}")
        with pulled() as telemetry:
            _everything(telemetry)
            answer = telemetry.scrape("")
        assert answer
        checked = subprocess.run(
            [str(promtool), "check", "metrics"], input=answer.body, capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr.decode()


class TestMetricName:
    @pytest.mark.parametrize(
        ("name", "unit", "gauge", "found"),
        [
            ("lakehouse.batch.duration", "s", False, "lakehouse_batch_duration_seconds"),
            ("wait.seconds", "s", False, "wait_seconds"),
            ("lakehouse.records", "{record}", False, "lakehouse_records"),
            ("rate", "{record}/s", True, "rate_per_second"),
            ("speed", "By/s", True, "speed_bytes_per_second"),
            ("share", "1", True, "share_ratio"),
            ("tries", "1", False, "tries"),
            ("what_total", "", False, "what"),
        ],
    )
    def test_ends_with_the_unit_in_words(self, name: str, unit: str, gauge: bool, found: str) -> None:  # noqa: FBT001
        assert family(name, unit, gauge=gauge) == found
        assert found.endswith(unit_word(unit, gauge=gauge))
        assert prometheus_label("error.type") == "error_type"
