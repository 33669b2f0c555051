"""What a tree of processes takes of the machine: seconds of the processor, and memory.

Memory is the proportional set size (PSS): forked workers share pages, and the sum of their resident sizes (RSS) would
count these several times. PSS costs the kernel a walk through all pages, so it is only taken when the sum of RSS has
reached a new height.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tests.services.costs import TICKS, Process, processes

PAGE = os.sysconf("SC_PAGE_SIZE")
A_NEW_HEIGHT = 1.01


class ProcessTree:
    """All processes below one, and that one. `without`: processes that do not count, nor what is below them.

    `beside`: further ones that count, with what is below them.

    A child that has ended is in the figure of its parent. One that lost its parent is still counted while it lives.
    """

    def __init__(self, root: int, without: Collection[int] = (), beside: Collection[int] = ()) -> None:
        self._roots, self._without = {root, *beside}, set(without)
        self._began: dict[int, int] = {}  # of each member when it began: the number of one that is gone may come again
        self._cpu = 0.0
        self._highest = 0.0
        self.peak = 0.0  # bytes

    def cpu(self) -> float:
        """Seconds so far."""
        members = self._members()
        self._cpu = max(self._cpu, sum(each.own for each in members.values()) / TICKS)
        self._look_at_memory(members)
        return self._cpu

    def memory(self) -> int:
        """Bytes now."""
        return sum(map(_proportional, self._members()))

    def _members(self) -> dict[int, Process]:
        there = processes()
        known = {pid for pid, began in self._began.items() if pid in there and there[pid].began == began}
        found = known | (self._roots & there.keys())
        while more := {pid for pid, each in there.items() if each.parent in found} - found - self._without:
            found |= more
        members = {pid: there[pid] for pid in found}
        self._began = {pid: each.began for pid, each in members.items()}
        return members

    def _look_at_memory(self, members: Collection[int]) -> None:
        resident = sum(map(_resident, members))
        if resident > self._highest * A_NEW_HEIGHT:
            self._highest = resident
            self.peak = max(self.peak, sum(map(_proportional, members)))


def _resident(pid: int) -> int:
    with suppress(OSError):  # it has just ended
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def busy() -> float:
    """Seconds of the processor that the whole machine has taken since it began, steal included."""
    words = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
    user, nice, system, _idle, _waiting, *rest = map(int, words)
    return (user + nice + system + sum(rest[:3])) / TICKS
