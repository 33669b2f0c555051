"""How far behind a stream is, and what the processes take: from what was seen, and never less than it is."""

import os
import subprocess
import sys
import time

import pytest

from lakehouse_ingest.observe.processes import Processes, Used, descendants, used
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.lag import SAMPLES, Behind
from lakehouse_ingest.records import Offsets
from telemetry.testing import recorded


def at(*offsets: int) -> Offsets:
    return {("t", number): offset for number, offset in enumerate(offsets)}


def test_lag_is_the_end_less_what_has_landed_and_never_below_nothing() -> None:
    behind = Behind()
    assert behind.lag(at(5)) == {}
    behind.see(100, at(10, 20, 30))
    assert behind.lag(at(4, 25)) == at(6, 0, 30)


def test_without_lag_nothing_waits() -> None:
    behind = Behind()
    behind.see(100, at(10))
    assert behind.seconds(500, at(10), 1.0) == 0
    assert Behind().seconds(500, at(10), 1.0) == 0


def test_what_waits_has_come_since_the_last_moment_at_which_all_that_was_there_has_landed() -> None:
    behind = Behind()
    for moment, end in ((100, 10), (110, 20), (120, 30), (130, 40)):
        behind.see(moment, at(end))
    assert behind.seconds(131, at(40), None) == 0
    assert behind.seconds(131, at(39), None) == 11  # since 120 at most
    assert behind.seconds(131, at(30), None) == 11
    assert behind.seconds(131, at(29), None) == 21
    assert behind.seconds(131, at(10), None) == 31


def test_a_topic_that_was_quiet_for_long_is_not_behind_for_as_long() -> None:
    behind = Behind()
    for moment in range(100, 4000, 5):
        behind.see(moment, at(10))
    behind.see(4000, at(11))
    assert behind.seconds(4001, at(10), newest=90.0) == 6


def test_a_backlog_that_is_older_than_we_are_is_told_by_the_records() -> None:
    behind = Behind()
    behind.see(1000, at(50))
    assert behind.seconds(1010, at(20), newest=400.0) == 610
    assert behind.seconds(1010, at(20), None) == 10


def test_a_partition_that_is_behind_is_not_hidden_by_one_that_is_not() -> None:
    behind = Behind()
    behind.see(100, at(10, 10))
    behind.see(110, at(20, 10))
    behind.see(120, at(30, 10))
    assert behind.seconds(121, at(15, 10), None) == 21
    assert behind.seconds(121, at(30, 9), newest=50.0) == 71


def test_what_was_seen_takes_no_more_and_more_memory() -> None:
    behind = Behind()
    for moment in range(100_000):
        behind.see(moment, at(moment))
        assert len(behind._seen) <= SAMPLES
    assert behind.seconds(100_000, at(99_998), None) == 2
    # Far back it is seen less sharply, but still never too late.
    for landed in (50_000, 90_000, 99_000):
        assert behind.seconds(100_000, at(landed), 0.0) >= 100_000 - landed


# -- processes --------------------------------------------------------------------------------------------


def test_of_what_is_read_no_more_nothing_waits() -> None:
    """A gauge stays as it was set last: a topic that was deleted would be behind for ever."""
    with recorded() as seen:
        watch = Watch("plant-7", seen.telemetry)
        watch.lag("s", {("gone", 0): 5_000, ("there", 0): 7}, 1.0)
        watch.lag("s", {("there", 0): 9}, 1.0)
        found = {point.attributes["lakehouse.topic"]: point.value for point in seen.points("lakehouse.lag")}
    assert found == {"gone": 0, "there": 9}


def test_our_own_process_uses_something() -> None:
    before = used(os.getpid())
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    after = used(os.getpid())
    assert before
    assert after
    assert 0.2 < after.cpu_s - before.cpu_s < 5
    assert 10 * 2**20 < after.memory < 64 * 2**30


def test_a_process_that_is_gone_uses_nothing_that_can_be_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert used(child.pid)
        assert child.pid in descendants(os.getpid())
        child.communicate(b"\n")
    assert used(child.pid) is None
    assert list(descendants(child.pid)) == []


def test_time_that_was_used_is_counted_once() -> None:
    with recorded() as seen:
        processes = Processes(jvm=None)
        watch = Watch("plant-7", seen.telemetry)
        for _ in range(3):
            processes.look(watch)
        now = used(os.getpid())
        assert now
        counted = seen.total("lakehouse.process.cpu", process="driver")
        assert counted == pytest.approx(now.cpu_s, abs=0.5)
        assert seen.total("lakehouse.process.memory", process="driver") > 0
    assert Used(1, 2) + Used(3, 4) == Used(4, 6)
