"""When to land next: by time, by rows, when nothing new comes; and at once when told to stop."""

from threading import Event, Timer
from time import monotonic
from typing import Any

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline.pacing import LOOK_S, Waiting, due, wait_until_due
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import StreamSettings

AT = ("t", 0)


def stream(**values: Any) -> StreamSettings:
    return StreamSettings.model_validate({"topics": ["t"], **values})


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (Waiting(elapsed=4.9, records=10, quiet=4.9), None),
        (Waiting(elapsed=5.0, records=0, quiet=0.0), "time"),
        (Waiting(elapsed=0.0, records=100, quiet=0.0), "rows"),
        (Waiting(elapsed=5.0, records=100, quiet=0.0), "time"),
        (Waiting(elapsed=0.1, records=99, quiet=0.0), None),
    ],
)
def test_due_by_time_or_by_rows(waiting: Waiting, reason: str | None) -> None:
    assert due(waiting, stream(every="5s", max_records=100)) == reason


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (Waiting(elapsed=3.0, records=1, quiet=2.0), "idle"),
        (Waiting(elapsed=3.0, records=1, quiet=1.9), None),
        (Waiting(elapsed=3.0, records=0, quiet=3.0), None),
    ],
)
def test_due_when_records_wait_and_no_more_come(waiting: Waiting, reason: str | None) -> None:
    assert due(waiting, stream(every="5s", idle="2s")) == reason


def test_idle_is_off_unless_asked_for() -> None:
    assert due(Waiting(elapsed=4.0, records=1, quiet=4.0), stream(every="5s")) is None


def test_without_a_pace_it_is_always_due_and_the_broker_is_not_asked() -> None:
    def ends() -> Offsets:
        raise AssertionError

    assert wait_until_due(stream(every="0s"), monotonic(), {}, ends, Event()) == "time"


def test_the_time_counts_from_the_beginning_of_the_last_landing() -> None:
    began = monotonic()
    reason = wait_until_due(stream(every="10s"), began - 10, {AT: 5}, lambda: {AT: 5}, Event())
    assert (reason, monotonic() - began < 5) == ("time", True)


def test_it_waits_out_its_time_when_nothing_comes() -> None:
    began = monotonic()
    assert wait_until_due(stream(every="300ms"), began, {AT: 5}, lambda: {AT: 5}, Event()) == "time"
    assert 0.3 <= monotonic() - began < 5


def test_enough_records_end_the_wait_early() -> None:
    began = monotonic()
    reason = wait_until_due(stream(every="1m", max_records=100), began, {AT: 5}, lambda: {AT: 105}, Event())
    assert (reason, monotonic() - began < 10) == ("rows", True)


def test_records_of_a_partition_that_nothing_has_landed_from_count_too() -> None:
    ends = {AT: 5, ("t", 1): 100}
    assert wait_until_due(stream(every="1m", max_records=100), monotonic(), {AT: 5}, lambda: ends, Event()) == "rows"


def test_an_end_that_went_back_hides_no_other_partition() -> None:
    ends = {AT: 0, ("t", 1): 10}
    landed = {AT: 10**6, ("t", 1): 0}
    assert wait_until_due(stream(every="1m", max_records=10), monotonic(), landed, lambda: ends, Event()) == "rows"


def test_silence_ends_the_wait_early_when_records_wait() -> None:
    settings = stream(every="1m", idle="100ms")
    assert wait_until_due(settings, monotonic(), {AT: 5}, lambda: {AT: 6}, Event()) == "idle"


def test_records_that_keep_coming_put_idle_off() -> None:
    seen = [5]

    def ends() -> Offsets:
        seen[0] += 1
        return {AT: seen[0]}

    settings = stream(every="60s", idle=f"{int(LOOK_S * 1500)}ms", max_records=4)
    assert wait_until_due(settings, monotonic(), {AT: 5}, ends, Event()) == "rows"


def test_stop_ends_the_wait_at_once() -> None:
    stop, asked = Event(), [0]

    def ends() -> Offsets:
        asked[0] += 1
        return {AT: 5}

    Timer(0.1, stop.set).start()
    began = monotonic()
    assert wait_until_due(stream(every="1h"), began, {AT: 5}, ends, stop) == "stop"
    assert monotonic() - began < 30


def test_a_stop_from_before_is_not_waited_for() -> None:
    stop = Event()
    stop.set()
    assert wait_until_due(stream(every="1h"), monotonic(), {}, dict, stop) == "stop"


def test_a_broker_that_is_away_for_a_moment_is_survived() -> None:
    answers: list[int | None] = [None, 3, None, 200]

    def ends() -> Offsets:
        answer = answers.pop(0)
        if answer is None:
            raise TryAgain("no answer from the brokers")
        return {AT: answer}

    assert wait_until_due(stream(every="1m", max_records=100), monotonic(), {AT: 0}, ends, Event()) == "rows"
    assert answers == []


def test_a_broker_that_stays_away_does_not_put_the_landing_off() -> None:
    def ends() -> Offsets:
        raise TryAgain("no answer from the brokers")

    assert wait_until_due(stream(every="700ms"), monotonic(), {}, ends, Event()) == "time"
