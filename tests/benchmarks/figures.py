"""The arithmetic of the bench: from samples of a run to its figures. It starts nothing and reads no clock."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

FIRST = 1_000_000  # rows; the steady state begins with the first commit at or beyond them
TOGETHER = 0.4  # seconds; commits of one batch to many tables follow each other more quickly


@dataclass(frozen=True)
class Sample:
    """One look at a running system."""

    at: float  # seconds since its start
    cpu: float  # seconds of the processor that its tree has taken so far
    rows: int  # that a reader sees


@dataclass(frozen=True)
class Span:
    """What a system did between two looks."""

    events: int
    seconds: float
    cpu: float

    @property
    def per_cpu_second(self) -> float:
        return self.events / self.cpu

    @property
    def per_second(self) -> float:
        return self.events / self.seconds


def cold(samples: Sequence[Sample], count: int) -> Span | None:
    """From the start to the first look at which all events were visible."""
    last = _reached(samples, count)
    return Span(count, last.at, last.cpu) if last and last.cpu else None


def steady(samples: Sequence[Sample], count: int, first: int = FIRST) -> Span | None:
    """From the first look with `first` rows or more to the last commit. None if one commit brought all of them."""
    begun, last = _reached(samples, first), _reached(samples, count)
    if begun is None or last is None or begun.rows >= count or last.cpu <= begun.cpu:
        return None
    return Span(count - begun.rows, last.at - begun.at, last.cpu - begun.cpu)


def at_commits(samples: Sequence[Sample], commits: Iterable[tuple[float, int]]) -> list[Sample]:
    """What was seen when it became visible, not when somebody looked next. `commits`: seconds since the start, events.

    The commits of one batch to many tables count from the last of them on: its work was done before the first.
    """
    found, first, rows = [samples[0]], -math.inf, samples[0].rows
    for at, events in sorted(commits):
        rows += events
        if at - first < TOGETHER:
            found.pop()
        else:
            first = at
        found.append(Sample(at, cpu_at(samples, at), rows))
    return found


def _reached(samples: Sequence[Sample], rows: int) -> Sample | None:
    return next((sample for sample in samples if sample.rows >= rows), None)


def cpu_at(samples: Sequence[Sample], at: float) -> float:
    """The processor time until a moment between two looks, on the straight line between them."""
    before = max((sample for sample in samples if sample.at <= at), key=lambda sample: sample.at, default=samples[0])
    after = min((sample for sample in samples if sample.at >= at), key=lambda sample: sample.at, default=samples[-1])
    if after.at <= before.at:
        return before.cpu
    return before.cpu + (after.cpu - before.cpu) * (at - before.at) / (after.at - before.at)


def percentile(weighted: Sequence[tuple[float, int]], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed. Each value comes with how often it occurs."""
    ordered = sorted(weighted)
    needed = math.ceil(sum(weight for _, weight in ordered) * percent / 100)
    for value, weight in ordered:
        needed -= weight
        if needed <= 0:
            return value
    raise ValueError("there are no values")


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
