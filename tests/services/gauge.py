"""What a running pipeline takes of the machine, sample by sample, and whether it takes ever more."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median

from tests.services.pipelines import Running, descendants

PAGE_KIB = 4


@dataclass(frozen=True)
class Allowed:
    """Growth that is no leak: so large a part of the usual, or so much, whichever is more."""

    part: float
    units: float


# Of the JVM's memory: its heap is filled up to its limit before it is collected.
GROWTH: Mapping[str, Allowed] = {
    "python_mib": Allowed(0.15, 30),
    "python_threads": Allowed(0.1, 8),
    "python_files": Allowed(0.1, 12),
    "jvm_mib": Allowed(0.25, 300),
    "jvm_threads": Allowed(0.1, 20),
    "jvm_files": Allowed(0.1, 40),
    "workers_mib": Allowed(0.15, 60),
    "workers_threads": Allowed(0.1, 8),
    "workers_files": Allowed(0.1, 12),
}


@dataclass(frozen=True)
class Trend:
    usual: float
    growth: float  # over the time that was looked at, by the line that fits best

    def is_flat(self, name: str) -> bool:
        allowed = GROWTH[name]
        return self.growth <= max(allowed.part * self.usual, allowed.units)


def sample(running: Running) -> dict[str, float]:
    """Nothing when it ends meanwhile."""
    found: dict[str, float] = {}
    with suppress(OSError, StopIteration):
        jvm = running.jvm()
        for name, pids in (("python", [running.pid]), ("jvm", [jvm]), ("workers", [*descendants(jvm)])):
            processes = [Path(f"/proc/{pid}") for pid in pids]
            pages = sum(int((process / "statm").read_text().split()[1]) for process in processes)
            found[f"{name}_mib"] = pages * PAGE_KIB / 1024
            found[f"{name}_threads"] = sum(len([*(process / "task").iterdir()]) for process in processes)
            found[f"{name}_files"] = sum(len([*(process / "fd").iterdir()]) for process in processes)
    return found if found.keys() == GROWTH.keys() else {}


def trends(samples: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, Trend]:
    """Of samples with the seconds at which they were taken."""
    moments = [moment for moment, _ in samples]
    found = {}
    for name in GROWTH:
        values = [taken[name] for _, taken in samples]
        slope = linear_regression(moments, values).slope
        found[name] = Trend(round(median(values), 1), round(slope * (moments[-1] - moments[0]), 1))
    return found
