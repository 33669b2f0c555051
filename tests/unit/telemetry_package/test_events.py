"""Each event leaves a log line and its metrics, and both say the same."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from telemetry import Events
from telemetry.testing import Recording, recorded

LOST = ConnectionError("catalog gone")

CASES: list[tuple[str, str, Callable[[Events], None], tuple[str, float, dict[str, Any]]]] = [
    (
        "batch_failed",
        "debug",
        lambda on: on.batch_failed(stream="s", batch=1, error=LOST),
        ("lakehouse.batches", 1, {"outcome": "failed", "stream": "s"}),
    ),
    (
        "retrying",
        "warning",
        lambda on: on.retrying(stream="s", attempt=2, wait_s=4, error=LOST),
        ("lakehouse.errors", 1, {"error.type": "ConnectionError"}),
    ),
    (
        "retrying",
        "warning",
        lambda on: on.retrying(stream="s", attempt=2, wait_s=4, error=LOST),
        ("lakehouse.restarts", 1, {"cause": "ConnectionError"}),
    ),
    (
        "stream_failed",
        "error",
        lambda on: on.stream_failed(stream="s", error=LOST),
        ("lakehouse.errors", 1, {"error.type": "ConnectionError"}),
    ),
    (
        "commit_retried",
        "warning",
        lambda on: on.commit_retried(table="t", attempt=1, error=LOST),
        ("lakehouse.commit.retries", 1, {"table": "t"}),
    ),
    (
        "commit_reconciled",
        "info",
        lambda on: on.commit_reconciled(table="t"),
        ("lakehouse.commit.reconciled", 1, {"table": "t"}),
    ),
    (
        "superseded",
        "error",
        lambda on: on.superseded(LOST),
        ("lakehouse.errors", 1, {"error.type": "ConnectionError"}),
    ),
    (
        "schema_changed",
        "info",
        lambda on: on.schema_changed(table="t", changes=["add a", "widen b"]),
        ("lakehouse.schema.changes", 2, {"table": "t"}),
    ),
    (
        "snapshots_expired",
        "info",
        lambda on: on.snapshots_expired(table="t", count=9),
        ("lakehouse.snapshots.expired", 9, {"table": "t"}),
    ),
    (
        "many_files",
        "warning",
        lambda on: on.warned("many_files", table="t"),
        ("lakehouse.warnings", 1, {"event": "many_files"}),
    ),
]


def _events(seen: Recording) -> Events:
    return Events(structlog.get_logger(), seen.telemetry, "plant-7")


@pytest.mark.parametrize(("event", "level", "happen", "metric"), CASES)
def test_an_event_is_a_line_and_a_metric(
    event: str, level: str, happen: Callable[[Events], None], metric: tuple[str, float, dict[str, Any]]
) -> None:
    instrument, value, attributes = metric
    with recorded() as seen, capture_logs() as lines:
        happen(_events(seen))
        assert [(line["event"], line["log_level"], line["pipeline"]) for line in lines] == [(event, level, "plant-7")]
        assert seen.total(instrument, pipeline="plant-7", **attributes) == value


def test_no_event_is_left_out_here() -> None:
    events = {name for name in vars(Events) if not name.startswith("_")}
    told = {event for event, *_ in CASES} - {"many_files"}
    assert events == told | {"started", "warned", "batch_landed"}, "each leaves a line and a metric: prove it"


def test_a_landed_batch_counts_every_record_once_in_line_and_metrics() -> None:
    with recorded() as seen, capture_logs() as lines:
        _events(seen).batch_landed(
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


def test_what_a_monitor_waits_for_is_there_from_the_start() -> None:
    """Prometheus sees no increase in a series whose first value is not zero: the first bad records would go unseen."""
    bad = {"dead": ["not_utf8", "broken_json"]}
    with recorded() as seen, capture_logs() as lines:
        _events(seen).started(stream="s", epoch=3, topics=("t",), tables=1, shape="one pass", bad=bad)
        assert lines[0]["event"] == "started"
        found = [(point.attributes["lakehouse.reason"], point.value) for point in seen.points("lakehouse.records")]
        assert found == [("not_utf8", 0), ("broken_json", 0)]
        (failed,) = seen.points("lakehouse.batches")
        assert (failed.attributes["lakehouse.outcome"], failed.value) == ("failed", 0)


def test_a_batch_without_a_bad_record_is_no_warning() -> None:
    with recorded() as seen, capture_logs() as lines:
        _events(seen).batch_landed(stream="s", batch=7, received=5, duration_s=1, landed={"a": 5})
    assert lines[0]["log_level"] == "info"
