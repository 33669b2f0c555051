"""What the bench has to show, and whether it does: ratios first, then times and memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.figures import middle, ratio
from tests.benchmarks.ours import BASE, HOURS, INFERRED, MESSY, ONE_DAY, TYPES
from tests.benchmarks.results import LatencyResult, Results, Run, StartResult, SystemResult

COMMITS = "commits in the table"
ALL_COMMITS = 10_000
SPARK = "Spark job by hand"
ONE_PROCESS = "consume, decode, write in one process"
BUSY, AT_ONCE = 10_000, "0s"


@dataclass(frozen=True)
class Bar:
    figure: str
    value: float | None  # None: it was not measured
    bar: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def wanted(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.bar:g}{self.unit}"

    @property
    def found(self) -> str:
        return (
            "not measured"
            if self.value is None
            else f"{self.value:.3g}{self.unit}"
            if self.value < 1000
            else (f"{self.value:,.0f}{self.unit}")
        )

    @property
    def verdict(self) -> str:
        return {None: "-", True: "met", False: "**not met**"}[self.met]


def bars(found: Results) -> list[Bar]:
    return [*_ratios(found), *_latencies(found), *_memory(found), *_growth(found), *_starts(found), *_clusters(found)]


def steady_cpu(run: Run) -> float | None:
    return run.steady.per_cpu_second if run.steady else None


def cold_cpu(run: Run) -> float | None:
    return run.cold.per_cpu_second


def steady_speed(run: Run) -> float | None:
    return run.steady.per_second if run.steady else None


def best_peer(found: Results, figure: Callable[[Run], float | None]) -> float | None:
    known = [each.typical(figure) for each in found.systems if each.kind == "peer"]
    return max((each for each in known if each is not None), default=None)


def _ratios(found: Results) -> list[Bar]:
    ours = found.system(BASE.name)

    def to_peers(figure: Callable[[Run], float | None]) -> float | None:
        return ratio(_typical(ours, figure), best_peer(found, figure))

    def between(name: str, other: str) -> float | None:
        return ratio(_typical(found.system(name), steady_cpu), _typical(found.system(other), steady_cpu))

    return [
        Bar("events per CPU second, steady state, to the best peer", to_peers(steady_cpu), 1.4, at_least=True),
        Bar("events per CPU second, cold run, to the best peer", to_peers(cold_cpu), 1.3, at_least=True),
        Bar("events a second, steady state, to the best peer", to_peers(steady_speed), 1.5, at_least=True),
        Bar("to consume, decode and write in one process", between(BASE.name, ONE_PROCESS), 0.45, at_least=True),
        Bar("inferred columns to declared ones", between(INFERRED.name, BASE.name), 0.9, at_least=True),
        Bar("twenty types to one", between(TYPES.name, BASE.name), 0.6, at_least=True),
        Bar("24 open hours in a batch to one day", between(HOURS.name, ONE_DAY.name), 0.75, at_least=True),
        Bar("messy topic to a clean one", between(MESSY.name, INFERRED.name), 0.7, at_least=True),
    ]


def _latencies(found: Results) -> list[Bar]:
    at_once = _latency(found, AT_ONCE)
    return [
        Bar("produce to visible, 10,000 events/s, `0s`, p50", at_once.p50 if at_once else None, 0.5, " s"),
        Bar("the same, p99", at_once.p99 if at_once else None, 1.5, " s"),
    ]


def _memory(found: Results) -> list[Bar]:
    busy = [each.peak_mb for each in found.latency if each.rate == BUSY]
    idle = [mb for each in found.starts if each.kind == "ours" for mb in each.idle_mb]
    return [
        Bar("peak memory, draining a backlog", _typical(found.system(BASE.name), lambda run: run.peak_mb), 1500, " MB"),
        Bar("peak memory, 10,000 events/s", max(busy, default=None), 1100, " MB"),
        Bar("memory when idle", middle(idle), 700, " MB"),
    ]


def _growth(found: Results) -> list[Bar]:
    points = next((each.points for each in found.growth if each.name == COMMITS), [])
    whole = len(points) > 1 and points[-1].x >= ALL_COMMITS
    late = ratio(points[-1].cpu, points[0].cpu) if whole else None
    return [Bar("a batch after 10,000 commits to the first 100", late, 1.2)]


def _starts(found: Results) -> list[Bar]:
    ours = _start(found.starts, BASE.name)
    return [
        Bar("start to first commit", ours, 8, " s"),
        Bar("the same, to a Spark job written by hand", ratio(ours, _start(found.starts, SPARK)), 1.3),
    ]


def _clusters(found: Results) -> list[Bar]:
    local, *others = [each.typical(steady_speed) for each in found.clusters] or [None]
    known = [each for each in others if each is not None]
    slowest = min(known) if others and len(known) == len(others) else None
    return [Bar("two executors to local mode, events a second", ratio(slowest, local), 0.8, at_least=True)]


def _typical(system: SystemResult | None, figure: Callable[[Run], float | None]) -> float | None:
    return system.typical(figure) if system else None


def _latency(found: Results, every: str) -> LatencyResult | None:
    return next((each for each in found.latency if (each.rate, each.every) == (BUSY, every)), None)


def _start(starts: Sequence[StartResult], name: str) -> float | None:
    return next((middle(each.seconds) for each in starts if each.name == name), None)
