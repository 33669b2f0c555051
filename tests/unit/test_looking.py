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


class TestLag:
    def test_is_the_end_minus_what_has_landed_and_never_negative(self) -> None:
        behind = Behind()
        assert behind.lag(at(5)) == {}
        behind.see(100, at(10, 20, 30))
        assert behind.lag(at(4, 25)) == at(6, 0, 30)

    def test_of_no_records_is_zero_seconds(self) -> None:
        behind = Behind()
        behind.see(100, at(10))
        assert behind.seconds(500, at(10), 1.0) == 0
        assert Behind().seconds(500, at(10), 1.0) == 0

    def test_in_seconds_counts_from_when_the_waiting_records_came(self) -> None:
        behind = Behind()
        for moment, end in ((100, 10), (110, 20), (120, 30), (130, 40)):
            behind.see(moment, at(end))
        assert behind.seconds(131, at(40), None) == 0
        assert behind.seconds(131, at(39), None) == 11  # since 120 at most
        assert behind.seconds(131, at(30), None) == 11
        assert behind.seconds(131, at(29), None) == 21
        assert behind.seconds(131, at(10), None) == 31

    def test_does_not_count_the_time_in_which_a_topic_was_quiet(self) -> None:
        behind = Behind()
        for moment in range(100, 4000, 5):
            behind.see(moment, at(10))
        behind.see(4000, at(11))
        assert behind.seconds(4001, at(10), newest=90.0) == 6

    def test_of_an_older_backlog_counts_from_its_newest_record(self) -> None:
        behind = Behind()
        behind.see(1000, at(50))
        assert behind.seconds(1010, at(20), newest=400.0) == 610
        assert behind.seconds(1010, at(20), None) == 10

    def test_of_one_partition_is_not_hidden_by_another(self) -> None:
        behind = Behind()
        behind.see(100, at(10, 10))
        behind.see(110, at(20, 10))
        behind.see(120, at(30, 10))
        assert behind.seconds(121, at(15, 10), None) == 21
        assert behind.seconds(121, at(30, 9), newest=50.0) == 71

    def test_is_found_from_a_bounded_number_of_samples(self) -> None:
        behind = Behind()
        for moment in range(100_000):
            behind.see(moment, at(moment))
            assert len(behind._seen) <= SAMPLES
        assert behind.seconds(100_000, at(99_998), None) == 2
        # Far back it is seen less sharply, but still never too late.
        for landed in (50_000, 90_000, 99_000):
            assert behind.seconds(100_000, at(landed), 0.0) >= 100_000 - landed

    def test_of_a_deleted_topic_becomes_zero(self) -> None:
        """A gauge stays as it was set last: a topic that was deleted would be behind for ever."""
        with recorded() as seen:
            watch = Watch("plant-7", seen.telemetry)
            watch.lag("s", {("gone", 0): 5_000, ("there", 0): 7}, 1.0)
            watch.lag("s", {("there", 0): 9}, 1.0)
            found = {point.attributes["lakehouse.topic"]: point.value for point in seen.points("lakehouse.lag")}
        assert found == {"gone": 0, "there": 9}


class TestProcessUsage:
    def test_of_this_process_is_plausible(self) -> None:
        before = used(os.getpid())
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        after = used(os.getpid())
        assert before
        assert after
        assert 0.2 < after.cpu_s - before.cpu_s < 5
        assert 10 * 2**20 < after.memory < 64 * 2**30

    def test_of_an_ended_process_is_unknown(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert used(child.pid)
            assert child.pid in descendants(os.getpid())
            child.communicate(b"\n")
        assert used(child.pid) is None
        assert list(descendants(child.pid)) == []

    def test_counts_processor_time_once(self) -> None:
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
