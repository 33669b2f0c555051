"""What the status page shows: the last hour and no more, as it was told, and drawn without anything from outside."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import lakehouse_ingest
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.observe.events import BatchLanded, Retrying, SchemaChanged, StreamFailed
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.recent_activity import BATCHES, LONGEST, MINUTES, PROBLEMS, TABLES, RecentActivity
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF, mask
from telemetry.masking import REGISTRY

PAGE = Path(lakehouse_ingest.__file__).with_name("observe") / "status.html"
SECRET = "pl4nted-in-a-line"
LANDED: dict[str, Any] = {
    "stream": "s",
    "batch": 1,
    "received": 12,
    "landed": {"a": 5, "b": 4},
    "dead": {"broken_json": 2},
    "filtered": 1,
    "duration_s": 0.5,
    "freshness_s": 2.0,
}


class Clock:
    now = 6_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(clock: Clock) -> RecentActivity:
    return RecentActivity(clock)


class TestStreamActivity:
    def test_adds_up_batches_by_the_minute(self, activity: RecentActivity, clock: Clock) -> None:
        activity(BatchLanded(**LANDED))
        activity(BatchLanded(**{**LANDED, "freshness_s": 1.0}))
        activity.lag("s", 70, 3.21)
        clock.now += 60
        activity(BatchLanded(**LANDED))
        told = activity.report()["streams"]["s"]
        assert [(each["landed"], each["dead"], each["freshness_s"], each["lag"]) for each in told["minutes"]] == [
            (18, 4, 2.0, 70),
            (9, 2, 2.0, None),
        ]
        assert (told["lag"], told["lag_s"], told["dead"]) == (70, 3.2, {"broken_json": 6})
        outcomes = told["outcomes"]
        assert outcomes["received"] == sum(count for name, count in outcomes.items() if name != "received")

    def test_has_the_rate_of_the_last_sixty_seconds(self, activity: RecentActivity, clock: Clock) -> None:
        """The page and `top` both show it; a process that is younger counts its own seconds."""

        def rate() -> float:
            return float(activity.report()["streams"]["s"]["per_second"])

        activity(BatchLanded(**LANDED))
        clock.now += 30
        assert rate() == 9 / 30
        clock.now += 60
        assert rate() == 9 * 30 / 60 / 60
        clock.now += 60
        assert rate() == 0

    def test_is_kept_for_an_hour(self, activity: RecentActivity, clock: Clock) -> None:
        for _ in range(3 * MINUTES):
            activity(BatchLanded(**LANDED))
            clock.now += 60
        minutes = activity.report()["streams"]["s"]["minutes"]
        assert len(minutes) == MINUTES
        clock.now += 1800
        activity.lag("s", 0, 0)
        minutes = activity.report()["streams"]["s"]["minutes"]
        assert minutes[0]["at"] > clock.now - 3600 - 60

    def test_has_the_newest_dead_letter_of_each_reason_blurred(self, activity: RecentActivity, clock: Clock) -> None:
        letter = {
            "topic": "t",
            "partition": 1,
            "offset": 7,
            "told": "n is not long",
            "value": b'{"n": "ab 12"}',
        }
        activity.dead("s", {"wrong_type": {**letter, "value": None}, "broken_json": letter}, {"n"})
        clock.now += 5
        activity.dead("s", {"wrong_type": {**letter, "offset": 8}}, {"n"})
        samples = activity.report()["streams"]["s"]["samples"]
        assert samples["wrong_type"] == {
            "at": clock.now,
            "where": "t/1@8",
            "detail": "n is not long",
            "value": '{"n": "xx 00"}',
        }
        assert samples["broken_json"]["where"] == "t/1@7"


def _served(watch: Watch, path: str) -> tuple[Any, bytes]:
    with watch.serving(HealthSettings(port=0)) as url:
        watch.board.expect(["s"])
        watch.report("s", State.RUNNING)
        watch.emit(
            BatchLanded(
                stream="s",
                batch=3,
                received=12,
                duration_s=0.5,
                landed={"a": 9},
                dead={"broken_json": 3},
                freshness_s=2,
            )
        )
        watch.table("ns.a", rows=9, files=1, size=2_000, snapshots=1, partitions=1)
        watch.lag("s", {("t", 0): 4, ("t", 1): 3}, 1.5)
        watch.relay("warning", "", f"a word about {SECRET} <script>alert(1)</script>")
        with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
            return answer.headers, answer.read()


class TestRecentActivity:
    def test_stays_small_whatever_happens(self, activity: RecentActivity) -> None:
        for number in range(2_000):
            activity(BatchLanded(**{**LANDED, "batch": number}))
            activity(StreamFailed(stream="s", error=TryAgain("x" * 10_000)))
            activity.table(f"t{number}", 1, 1, 1, 1)
        told = activity.report()
        assert (len(told["batches"]), len(told["problems"]), len(told["tables"])) == (BATCHES, PROBLEMS, TABLES)
        assert told["batches"][-1]["batch"] == 1_999
        assert told["tables"][0]["name"] == "t1999"
        assert max(len(each["what"]) for each in told["problems"]) == LONGEST

    def test_lists_a_retry_as_a_problem_but_not_dead_letters(self, activity: RecentActivity) -> None:
        activity(BatchLanded(**LANDED))
        activity(SchemaChanged(table="t", changes=["a", "b"]))
        activity(Retrying(stream="s", attempt=1, wait_s=1, error=TryAgain("away")))
        activity.table("t", 5, 4, 3, 2)
        (problem,) = activity.report()["problems"]
        assert (problem["event"], problem["where"], problem["what"]) == ("retrying", "s", "TryAgain: away")
        (table,) = activity.report()["tables"]
        assert (table["rows"], table["files"], table["bytes"], table["snapshots"], table["schema_changes"]) == (
            5,
            4,
            3,
            2,
            2,
        )

    def test_has_the_last_snapshot_and_change_of_a_table(self, activity: RecentActivity) -> None:
        activity(SchemaChanged(table="t", changes=["+ a int"]))
        activity(SchemaChanged(table="t", changes=["+ b int", "~ a int -> long"]))
        activity.table("t", 5, 4, 3, 2, snapshot=2**62 + 1)
        (table,) = activity.report()["tables"]
        assert (table["snapshot"], table["schema_changes"]) == (str(2**62 + 1), 3), "as text: it is beyond a double"
        assert table["last_change"] == "+ b int, ~ a int -> long"

    def test_is_not_kept_where_no_page_is_served(self) -> None:
        watch = Watch("plant-7", OFF)
        watch.emit(Retrying(stream="s", attempt=1, wait_s=1, error=ConnectionError("x")))
        watch.table("t", rows=1, files=1, size=1, snapshots=1, partitions=1)
        told = watch.activity.report()
        assert (told["streams"], told["tables"], told["problems"]) == ({}, [], [])


class TestStatusPage:
    def test_gets_what_was_reported_without_secrets(self) -> None:
        mask(SECRET)
        try:
            _, body = _served(Watch("plant-7", OFF), "/status.json")
        finally:
            REGISTRY.clear()
        assert SECRET.encode() not in body
        told = json.loads(body)
        assert (told["pipeline"], told["live"], told["ready"], told["reasons"]) == ("plant-7", True, True, [])
        assert told["doing"]["s"]["state"] == "running"
        assert (told["streams"]["s"]["lag"], told["streams"]["s"]["lag_s"]) == (7, 1.5)
        assert told["tables"][0]["name"] == "ns.a"
        assert told["problems"][0]["what"].startswith("a word about ***")

    def test_loads_nothing_from_elsewhere(self) -> None:
        headers, body = _served(Watch("plant-7", OFF), "/")
        assert body == PAGE.read_bytes()
        assert headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in headers["content-security-policy"]
        text = body.decode()
        assert set(re.findall(r"https?://[^\s\"'<>]+", text)) == {"http://www.w3.org/2000/svg"}
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text), "text must never be markup"
        assert "prefers-color-scheme" in text
        assert 'name="viewport"' in text
