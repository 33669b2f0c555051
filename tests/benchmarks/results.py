"""What a bench found, as values: written to `build/bench.json`, and read again by the tables and plots."""

import datetime as dt
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from tests.benchmarks.figures import Span, middle

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "bench.json"
MEGABYTE = 1_000_000

Kind = Literal["ours", "peer", "limit"]


@dataclass(frozen=True)
class About:
    """When, where and on what."""

    date: str
    commit: str
    machine: str
    cores: int
    memory_gb: float
    events: int
    rounds: int
    quick: bool


@dataclass(frozen=True)
class Run:
    """One run of one system in which every event was there exactly once."""

    cold: Span
    steady: Span | None
    peak_mb: float
    files: int
    size_mb: float
    others: float  # part of the machine's processors that programs other than the bench took meanwhile


@dataclass
class SystemResult:
    name: str
    kind: Kind
    runs: list[Run] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of runs without figures

    def typical(self, figure: Callable[[Run], float | None]) -> float | None:
        """The median of all runs."""
        return middle(map(figure, self.runs))


@dataclass(frozen=True)
class LatencyResult:
    rate: int  # events a second
    every: str
    seconds: float  # that counted
    events: int
    p50: float
    p95: float
    p99: float
    cpu: float  # processors that were busy: seconds of the processor a second
    peak_mb: float
    commits: int
    files: int

    @property
    def name(self) -> str:
        return f"{self.rate:,} events/s, every = {self.every}"


@dataclass
class StartResult:
    """From the start of a system to its first commit."""

    name: str
    kind: Kind
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    idle_mb: list[float] = field(default_factory=list)  # some seconds after that commit, with nothing to do


@dataclass(frozen=True)
class Point:
    x: float
    cpu: float  # seconds of the processor a batch
    seconds: float  # of the clock a batch


@dataclass
class GrowthResult:
    """What a batch costs while one thing grows."""

    name: str
    unit: str
    points: list[Point] = field(default_factory=list)


@dataclass
class Results:
    about: About
    systems: list[SystemResult] = field(default_factory=list)
    latency: list[LatencyResult] = field(default_factory=list)
    starts: list[StartResult] = field(default_factory=list)
    growth: list[GrowthResult] = field(default_factory=list)
    clusters: list[SystemResult] = field(default_factory=list)  # the first is local mode

    def system(self, name: str) -> SystemResult | None:
        return next((each for each in self.systems if each.name == name), None)


def keep(found: Results, path: Path = KEPT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def kept(path: Path = KEPT) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def about(events: int, rounds: int, *, quick: bool) -> About:
    return About(
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        commit=_printed("git", "describe", "--always", "--dirty", "--abbrev=12") or "unknown",
        machine=_after("/proc/cpuinfo", "model name"),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        events=events,
        rounds=rounds,
        quick=quick,
    )


def _printed(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # a copy without git
        return ""


def _after(path: str, key: str) -> str:
    lines: Sequence[str] = Path(path).read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "unknown")
