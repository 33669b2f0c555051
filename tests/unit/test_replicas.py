"""When a start waits for whoever runs already: only where two replicas replace each other, and not for long."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.resume.replicas import SLOTS, Process, Start, last_landing, noted, of_this_host, starts, wait_s

NOW = 10_000.0
A, B, C = (Process(host, 7, "1") for host in ("pod-a", "pod-b", "pod-c"))


def past(*processes: Process, apart_s: float = 20.0) -> list[Start]:
    """Their starts, the last one just now."""
    ago = [apart_s * number for number in reversed(range(len(processes)))]
    return [Start(epoch, NOW - ago[epoch - 1], process) for epoch, process in enumerate(processes, 1)]


def mark(epoch: int, batch: int) -> Mark:
    return Mark(Token("plant", 1, epoch, batch), SourceIdentity(), {}, {}, {})


@pytest.fixture
def neighbour() -> Iterator[Process]:
    """Another process of this host, which lives until the test has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield of_this_host(child.pid)
        child.communicate(b"\n")


class TestRestart:
    @pytest.mark.parametrize(
        "before",
        [
            pytest.param([], id="the first start"),
            pytest.param([A], id="a crash"),
            pytest.param([B], id="a deployment to another host"),
            pytest.param([A] * 7, id="killed again and again"),
            pytest.param([B, C], id="pods, each with a name of its own"),
            pytest.param([B, B, B], id="moved away from a host that failed"),
        ],
    )
    def test_that_is_ordinary_does_not_wait(self, before: list[Process]) -> None:
        assert wait_s(past(*before), 0, Process(A.host, 7, "99"), NOW) == 0

    def test_long_after_the_others_does_not_wait(self) -> None:
        assert wait_s(past(A, B, A, B, apart_s=3600), 0, A, NOW) == 0
        assert wait_s(past(A, B, A, B, apart_s=250), 0, A, NOW) == 8  # three of them within ten minutes


class TestReplicas:
    def test_of_two_hosts_wait_longer_each_time(self) -> None:
        """From the second start on that has landed nothing, and never longer than a minute."""
        turns = [A, B] * 4
        waits = [wait_s(past(*turns[:count]), 0, turns[count], NOW) for count in range(1, len(turns))]
        assert waits == [0, 4, 8, 16, 32, 60, 60]

    def test_wait_no_longer_after_a_batch_landed(self) -> None:
        assert wait_s(past(A, B, A, B), 0, A, NOW) == 16
        assert wait_s(past(A, B, A, B), 2, A, NOW) == 4
        assert wait_s(past(A, B, A, B), 3, A, NOW) == 0

    def test_on_the_same_host_count_only_if_they_live(self, neighbour: Process) -> None:
        me = of_this_host(os.getpid())
        ended = Process(me.host, neighbour.pid, "0")  # its number is another's by now
        assert wait_s(past(ended, neighbour), 0, me, NOW) == 4
        assert wait_s(past(neighbour, ended), 0, me, NOW) == 0
        assert wait_s(past(ended, ended, me), 0, me, NOW) == 0


class TestNotedStarts:
    def test_are_read_up_to_a_number_and_by_ledger_name(self) -> None:
        properties = {"lakehouse.table.plant.ns.t": "{}", "lakehouse.started.plant.x": "1", "format-version": "2"}
        for epoch in range(1, 21):
            properties |= noted("plant", epoch, B if epoch % 2 else A, at=epoch)
        properties |= noted("plant-7", 99, A)
        found = starts("plant", properties)
        assert [start.epoch for start in found] == [*range(21 - SLOTS, 21)]
        assert found[-1] == Start(20, 20, A)
        assert [start.epoch for start in starts("plant-7", properties)] == [99]

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"epoch": 1}', '{"epoch": "x", "at": 1}', "null"])
    def test_that_are_unreadable_are_ignored(self, text: str) -> None:
        properties = {**noted("plant", 1, A, at=5), "lakehouse.started.plant.2": text}
        assert starts("plant", properties) == [Start(1, 5, A)]


class TestLastLanded:
    def test_is_known_from_the_batch_log(self) -> None:
        assert last_landing({}, []) == 0
        assert last_landing({"a": (3, 2), "b": (5, 0)}, []) == 5

    def test_is_known_from_a_mark_that_is_newer(self) -> None:
        """Killed before the record was written; the first batch of a start may have come to half of its tables only."""
        heads = {"a": (3, 2)}
        assert last_landing(heads, [mark(6, -1), mark(5, 1)]) == 5
        assert last_landing(heads, [mark(6, -1), mark(5, 0)]) == 3
        assert last_landing(heads, [mark(6, 4)]) == 6
