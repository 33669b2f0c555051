"""Each event leaves a log line and its metrics, and both say the same."""

import dataclasses
import inspect
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakehouse_ingest.observe import events
from lakehouse_ingest.observe.events import BatchLanded, Started, Warned
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF, Event
from telemetry.instruments import WARNINGS
from telemetry.testing import recorded

LOST = ConnectionError("catalog gone")
SAID = "ConnectionError: catalog gone"
Metric = tuple[str, float, dict[str, Any]]
NONE: Metric = ("lakehouse.warnings", 0, {})


def warning(name: str) -> Metric:
    return "lakehouse.warnings", 1, {"event": name}


ERROR: Metric = ("lakehouse.errors", 1, {"error.type": "ConnectionError"})

# Each event, what its line says beside its name, its level, and the metrics that count it.
CASES: list[tuple[Event, str, str, dict[str, Any], list[Metric]]] = [
    (
        BatchLanded(stream="s", batch=7, received=5, duration_s=1.23456, landed={"a": 5}),
        "batch_landed",
        "info",
        {"stream": "s", "batch": 7, "received": 5, "landed": {"a": 5}, "duration_s": 1.235},
        [("lakehouse.batches", 1, {"outcome": "landed"})],
    ),
    (
        events.FailedBatch(stream="s", batch=1, error=LOST),
        "batch_failed",
        "debug",
        {"stream": "s", "batch": 1, "error": SAID},
        [("lakehouse.batches", 1, {"outcome": "failed", "stream": "s"})],
    ),
    (
        Started(stream="s", epoch=3, topics=("t",), tables=1, bad={"dead": ["not_utf8"]}),
        "started",
        "info",
        {"stream": "s", "epoch": 3, "topics": ["t"], "tables": 1},
        [("lakehouse.records", 0, {"outcome": "dead", "reason": "not_utf8"})],
    ),
    (
        events.Retrying(stream="s", attempt=2, wait_s=4, error=LOST),
        "retrying",
        "warning",
        {"stream": "s", "attempt": 2, "wait_s": 4, "error": SAID},
        [ERROR, ("lakehouse.restarts", 1, {"cause": "ConnectionError"})],
    ),
    (events.StreamFailed(stream="s", error=LOST), "stream_failed", "error", {"stream": "s", "error": SAID}, [ERROR]),
    (events.Fenced(error=LOST), "superseded", "error", {"error": SAID}, [ERROR]),
    (events.Stopped(batches=3), "stopped", "info", {"batches": 3}, [NONE]),
    (
        events.CommitRetried(table="t", attempt=1, error=LOST),
        "commit_retried",
        "warning",
        {"table": "t", "attempt": 1, "error": SAID},
        [("lakehouse.commit.retries", 1, {"table": "t"})],
    ),
    (
        events.CommitReconciled(table="t"),
        "commit_reconciled",
        "info",
        {"table": "t"},
        [("lakehouse.commit.reconciled", 1, {"table": "t"})],
    ),
    (
        events.SchemaChanged(table="t", changes=["add a", "widen b"]),
        "schema_changed",
        "info",
        {"table": "t", "changes": ["add a", "widen b"]},
        [("lakehouse.schema.changes", 2, {"table": "t"})],
    ),
    (
        events.SnapshotsExpired(table="t", count=9),
        "snapshots_expired",
        "info",
        {"table": "t", "count": 9},
        [("lakehouse.snapshots.expired", 9, {"table": "t"})],
    ),
    (
        events.SparkLine(severity="error", logger="Executor", text="lost it"),
        "spark",
        "error",
        {"line": "lost it", "logger": "Executor"},
        [warning("spark")],
    ),
    (events.SparkLine(severity="error", logger="", text="so"), "spark", "error", {"line": "so"}, [NONE]),
    (
        events.CatalogServes(uri="http://c", warehouse="/w", pid=7),
        "catalog_serves",
        "info",
        {"uri": "http://c", "warehouse": "/w", "pid": 7},
        [NONE],
    ),
    (events.HealthServes(url="http://h"), "health_serves", "info", {"url": "http://h"}, [NONE]),
    (events.PublishesDirectly(stream="s"), "publishes_directly", "info", {"stream": "s"}, [NONE]),
    (
        events.NoTopicYet(stream="s", topic_pattern="t.*"),
        "no_topic_yet",
        "info",
        {"stream": "s", "topic_pattern": "t.*"},
        [NONE],
    ),
    (events.LogLevelChanged(to="debug"), "log_level", "warning", {"to": "debug"}, [NONE]),
    (
        events.LookFailed(error=LOST, took_s=1.23456),
        "look_failed",
        "debug",
        {"error": SAID, "took_s": 1.235},
        [NONE],
    ),
]


def classes() -> list[type[Event]]:
    """Every event that there is."""
    found = [each for each in vars(events).values() if inspect.isclass(each) and issubclass(each, Event)]
    return [each for each in found if "name" in vars(each)]


def warnings() -> list[type[Warned]]:
    return [each for each in classes() if issubclass(each, Warned)]


def made(event: type[Event]) -> Event:
    """With values of its fields' types."""
    values: dict[Any, Any] = {str: "x", int: 7, float: 1.5, BaseException: LOST}
    parts = {each.name: values.get(each.type, ["x"]) for each in dataclasses.fields(event)}
    return event(**parts)


class TestEvent:
    @pytest.mark.parametrize(
        ("event", "name", "level", "line", "metrics"), CASES, ids=lambda it: getattr(it, "name", "")
    )
    def test_writes_a_log_line_and_its_metrics(
        self, event: Event, name: str, level: str, line: dict[str, Any], metrics: list[Metric]
    ) -> None:
        with recorded() as seen, capture_logs() as lines:
            Watch("plant-7", seen.telemetry).emit(event)
            assert lines == [{"event": name, "log_level": level, "pipeline": "plant-7", **line}]
            for instrument, value, attributes in metrics:
                assert seen.total(instrument, pipeline="plant-7", **attributes) == value

    def test_has_a_case_in_this_file(self) -> None:
        """But for warnings, which all have the same form: they are below."""
        proven = {type(event) for event, *_ in CASES}
        assert set(classes()) - set(warnings()) <= proven, (
            "an event without a case: say what its line and its metrics are"
        )

    @pytest.mark.parametrize("event", classes())
    def test_is_frozen_and_reaches_every_listener(self, event: type[Event]) -> None:
        """The log, the metrics and whoever listens besides, such as a progress line; the page where one is served."""
        heard: list[Event] = []
        watch = Watch("plant-7", OFF)
        watch.add_listener(heard.append)
        happened = next((each for each, *_ in CASES if type(each) is event), None) or made(event)
        with capture_logs() as lines, watch.serving(HealthSettings(port=0)):
            watch.report("s", State.RUNNING)
            watch.emit(happened)
        assert heard[-1] is happened
        assert lines[-1]["event"] == event.name
        for each in dataclasses.fields(event):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(happened, each.name, None)
        shown = [problem["event"] for problem in watch.activity.report()["problems"]]
        assert shown == ([event.name] if happened.level in ("warning", "error") else [])


class TestWarning:
    def test_is_in_the_closed_list_of_the_metric(self) -> None:
        assert sorted(each.name for each in warnings()) == sorted(WARNINGS)

    @pytest.mark.parametrize("event", [each for each in warnings() if each is not events.SparkLine])
    def test_writes_a_line_with_all_its_fields_and_is_counted(self, event: type[Warned]) -> None:
        with recorded() as seen, capture_logs() as lines:
            Watch("plant-7", seen.telemetry).emit(made(event))
            (line,) = lines
            assert (line["event"], line["log_level"]) == (event.name, "warning")
            assert line.keys() >= {each.name for each in dataclasses.fields(event)}
            assert seen.total("lakehouse.warnings", event=event.name) == 1


class TestLandedBatch:
    def test_counts_every_record_once_in_line_and_metrics(self) -> None:
        with recorded() as seen, capture_logs() as lines:
            Watch("plant-7", seen.telemetry).emit(
                BatchLanded(
                    stream="s",
                    batch=7,
                    received=15,
                    duration_s=1.5,
                    landed={"a": 5, "b": 4},
                    dead={"broken_json": 3},
                    files={"a": 1, "b": 2},
                    written={"a": 100, "b": 250},
                    size=999,
                    event_age_s=-3.5,
                    trimmed=2,
                    filtered=1,
                    freshness_s=6.25,
                )
            )
            (line,) = lines
            assert line["log_level"] == "warning"
            assert line["landed"] == {"a": 5, "b": 4}
            assert line["dead"] == {"broken_json": 3}
            assert (line["trimmed"], line["filtered"], "discarded" in line) == (2, 1, False)
            assert seen.total("lakehouse.records") == 15
            assert seen.total("lakehouse.records", outcome="landed", table="b") == 4
            assert seen.total("lakehouse.files") == 3
            assert seen.total("lakehouse.batches", outcome="landed") == 1
            assert seen.total("lakehouse.freshness") == 6.25
            assert seen.total("lakehouse.written", table="b") == 250
            assert seen.total("lakehouse.received") == 999
            assert seen.total("lakehouse.event.age") == -3.5
            assert abs(seen.total("lakehouse.landed.timestamp") - time.time()) < 60

    @pytest.mark.parametrize(
        ("counts", "level"),
        [
            ({}, "info"),
            ({"note": "3 are missing"}, "warning"),
            ({"dead": {"not_utf8": 1}}, "warning"),
            ({"dead": {"not_utf8": 1}, "discarded": {"not_utf8": 1}}, "error"),
        ],
    )
    def test_has_the_level_of_its_worst_outcome(self, counts: dict[str, Any], level: str) -> None:
        assert BatchLanded(stream="s", batch=7, received=5, duration_s=1, landed={"a": 5}, **counts).level == level


class TestStart:
    def test_sets_the_counters_of_failures_to_zero(self) -> None:
        """Prometheus sees no increase in a series whose first value is not zero: the first bad records would go
        unseen."""
        bad = {"dead": ["not_utf8", "broken_json"]}
        with recorded() as seen, capture_logs() as lines:
            watch = Watch("plant-7", seen.telemetry)
            watch.emit(Started(stream="s", epoch=3, topics=("t",), tables=1, bad=bad))
            assert lines[0]["event"] == "started"
            found = [(point.attributes["lakehouse.reason"], point.value) for point in seen.points("lakehouse.records")]
            assert found == [("not_utf8", 0), ("broken_json", 0)]
            (failed,) = seen.points("lakehouse.batches")
            assert (failed.attributes["lakehouse.outcome"], failed.value) == ("failed", 0)
