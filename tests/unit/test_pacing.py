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


class TestBatch:
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
    def test_is_due_by_time_or_by_rows(self, waiting: Waiting, reason: str | None) -> None:
        assert due(waiting, stream(every="5s", max_records=100)) == reason

    @pytest.mark.parametrize(
        ("waiting", "reason"),
        [
            (Waiting(elapsed=3.0, records=1, quiet=2.0), "idle"),
            (Waiting(elapsed=3.0, records=1, quiet=1.9), None),
            (Waiting(elapsed=3.0, records=0, quiet=3.0), None),
        ],
    )
    def test_is_due_when_records_wait_and_no_more_come(self, waiting: Waiting, reason: str | None) -> None:
        assert due(waiting, stream(every="5s", idle="2s")) == reason

    def test_is_not_due_for_silence_without_the_setting(self) -> None:
        assert due(Waiting(elapsed=4.0, records=1, quiet=4.0), stream(every="5s")) is None

    def test_is_always_due_at_a_commit_interval_of_zero(self) -> None:
        def ends() -> Offsets:
            raise AssertionError

        assert wait_until_due(stream(every="0s"), monotonic(), {}, ends, Event()) == "time"


class TestWait:
    def test_counts_from_the_beginning_of_the_last_batch(self) -> None:
        began = monotonic()
        reason = wait_until_due(stream(every="10s"), began - 10, {AT: 5}, lambda: {AT: 5}, Event())
        assert (reason, monotonic() - began < 5) == ("time", True)

    def test_lasts_the_whole_commit_interval_when_nothing_comes(self) -> None:
        began = monotonic()
        assert wait_until_due(stream(every="300ms"), began, {AT: 5}, lambda: {AT: 5}, Event()) == "time"
        assert 0.3 <= monotonic() - began < 5

    def test_ends_early_when_enough_records_wait(self) -> None:
        began = monotonic()
        reason = wait_until_due(stream(every="1m", max_records=100), began, {AT: 5}, lambda: {AT: 105}, Event())
        assert (reason, monotonic() - began < 10) == ("rows", True)

    def test_counts_records_of_a_new_partition(self) -> None:
        ends = {AT: 5, ("t", 1): 100}
        assert (
            wait_until_due(stream(every="1m", max_records=100), monotonic(), {AT: 5}, lambda: ends, Event()) == "rows"
        )

    def test_counts_other_partitions_when_one_end_went_back(self) -> None:
        ends = {AT: 0, ("t", 1): 10}
        landed = {AT: 10**6, ("t", 1): 0}
        assert wait_until_due(stream(every="1m", max_records=10), monotonic(), landed, lambda: ends, Event()) == "rows"

    def test_ends_early_on_silence_when_records_wait(self) -> None:
        settings = stream(every="1m", idle="100ms")
        assert wait_until_due(settings, monotonic(), {AT: 5}, lambda: {AT: 6}, Event()) == "idle"

    def test_does_not_end_on_silence_while_records_keep_coming(self) -> None:
        seen = [5]

        def ends() -> Offsets:
            seen[0] += 1
            return {AT: seen[0]}

        settings = stream(every="60s", idle=f"{int(LOOK_S * 1500)}ms", max_records=4)
        assert wait_until_due(settings, monotonic(), {AT: 5}, ends, Event()) == "rows"

    def test_ends_at_once_on_stop(self) -> None:
        stop, asked = Event(), [0]

        def ends() -> Offsets:
            asked[0] += 1
            return {AT: 5}

        Timer(0.1, stop.set).start()
        began = monotonic()
        assert wait_until_due(stream(every="1h"), began, {AT: 5}, ends, stop) == "stop"
        assert monotonic() - began < 30

    def test_ends_at_once_on_an_earlier_stop(self) -> None:
        stop = Event()
        stop.set()
        assert wait_until_due(stream(every="1h"), monotonic(), {}, dict, stop) == "stop"

    def test_survives_a_short_outage_of_the_broker(self) -> None:
        answers: list[int | None] = [None, 3, None, 200]

        def ends() -> Offsets:
            answer = answers.pop(0)
            if answer is None:
                raise TryAgain("no answer from the brokers")
            return {AT: answer}

        assert wait_until_due(stream(every="1m", max_records=100), monotonic(), {AT: 0}, ends, Event()) == "rows"
        assert answers == []

    def test_ends_by_time_while_the_broker_is_away(self) -> None:
        def ends() -> Offsets:
            raise TryAgain("no answer from the brokers")

        assert wait_until_due(stream(every="700ms"), monotonic(), {}, ends, Event()) == "time"
