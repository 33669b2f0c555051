"""What the processes of a pipeline use: of the processor, of memory, of open files."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_ingest.observe.watch import Watch


@dataclass(frozen=True)
class Used:
    """What a process has used."""

    cpu_s: float
    memory: int  # bytes

    def __add__(self, other: "Used") -> "Used":
        return Used(self.cpu_s + other.cpu_s, self.memory + other.memory)


def used(pid: int) -> Used | None:
    """What a process has used until now. None if it has ended or cannot be seen."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
        ticks = int(numbers[11]) + int(numbers[12])  # user time and system time
    except (OSError, ValueError, IndexError):
        return _ourselves() if pid == os.getpid() else None
    return Used(ticks / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE"))


def _ourselves() -> Used:
    """The same for this process, without /proc. The memory is the peak, because nothing else is known."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Used(own.ru_utime + own.ru_stime, own.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError, ValueError):  # the process may end during the look
            for child in map(int, task.read_text(encoding="utf-8").split()):
                yield child
                yield from descendants(child)


@dataclass
class Processes:
    """The CPU and memory of our processes, since the last look."""

    jvm: int | None
    _before: dict[str, float] = field(default_factory=dict)

    def look(self, watch: Watch) -> None:
        found = {"driver": used(os.getpid())}
        if self.jvm is not None:
            found["jvm"] = used(self.jvm)
            workers = [each for pid in descendants(self.jvm) if (each := used(pid))]
            if workers:
                found["workers"] = sum(workers, Used(0, 0))
        for process, now in found.items():
            if now is not None:
                # Workers that have ended no longer count, so the sum may fall.
                watch.count(
                    "lakehouse.process.cpu", max(0.0, now.cpu_s - self._before.get(process, 0)), process=process
                )
                watch.gauge("lakehouse.process.memory", now.memory, process=process)
                self._before[process] = now.cpu_s
