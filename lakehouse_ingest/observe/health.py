"""What each stream is doing now, and whether the pipeline is therefore ready and alive.

The streams report here, and the pages ask. A verdict depends on what was reported last and on how long ago that was. A
sign of progress is anything that only a working stream can give: a batch that begins or ends, one of its stages, a
published table, or a look at the broker while the next batch waits, if Spark answers as well.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from time import monotonic
from typing import Any


class State(StrEnum):
    STARTING = "starting"  # it starts Spark and reads the ledger
    RUNNING = "running"  # its query runs
    WAITING = "waiting"  # to be started again
    STOPPING = "stopping"  # it finishes what is under way
    ENDED = "ended"  # it has done all that was asked of it
    FAILED = "failed"  # a person has to act


@dataclass
class Standing:
    """Of one stream; times are those of the board's clock."""

    state: State
    since: float
    moved: float  # the last sign of progress
    reason: str = ""
    batch: int | None = None  # under way
    batches: int = 0
    landed_at: dt.datetime | None = None


@dataclass(frozen=True)
class HealthVerdict:
    good: bool
    reasons: tuple[str, ...]


class Board:
    """Shared by all threads of a pipeline; each call takes a moment only."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._streams: dict[str, Standing] = {}
        self._remark = ""

    def expect(self, streams: Iterable[str]) -> None:
        """Before any of them has begun, so that nothing is ready until then."""
        for stream in streams:
            self.report(stream, State.STARTING)

    def report(self, stream: str, state: State, reason: str = "") -> None:
        with self._lock:
            now = self._clock()
            one = self._streams.setdefault(stream, Standing(state, now, now))
            if one.state is not state:
                one.since = now
            one.state, one.reason, one.moved = state, reason, now
            if state is not State.STOPPING:
                one.batch = None

    def remark(self, text: str) -> None:
        """What holds up all streams that have no reason of their own; nothing if it is empty."""
        with self._lock:
            self._remark = text

    def moved(self, stream: str) -> None:
        with self._lock:
            if one := self._streams.get(stream):
                one.moved = self._clock()

    def batch_began(self, stream: str, batch: int) -> None:
        with self._lock:
            if one := self._streams.get(stream):
                one.batch, one.moved = batch, self._clock()

    def batch_ended(self, stream: str, *, landed: bool) -> None:
        with self._lock:
            if one := self._streams.get(stream):
                one.batch, one.moved = None, self._clock()
                if landed:
                    one.batches, one.landed_at = one.batches + 1, dt.datetime.now(dt.UTC)

    # -- verdicts -----------------------------------------------------------------------------------------

    def ready(self, fresh: float) -> HealthVerdict:
        """Whether every stream's query runs, and has shown so within `fresh` seconds."""
        return self._verdict(lambda one, now: _not_ready(one, now, fresh)) or HealthVerdict(False, ("no stream yet",))

    def live(self, stuck: float) -> HealthVerdict:
        """Whether no stream has been without a sign for `stuck` seconds while it should work."""
        return self._verdict(lambda one, now: _stuck(one, now, stuck)) or HealthVerdict(True, ())

    def running(self, stream: str) -> bool:
        with self._lock:
            one = self._streams.get(stream)
            return one is not None and one.state is State.RUNNING

    def shown(self) -> Mapping[str, Mapping[str, Any]]:
        """Each stream, for machines."""
        with self._lock:
            now = self._clock()
            return {
                name: {
                    "state": str(one.state),
                    "for_s": round(now - one.since, 1),
                    "moved_s_ago": round(now - one.moved, 1),
                    "batches": one.batches,
                    "batch_under_way": one.batch,
                    "last_landed": one.landed_at.isoformat(timespec="milliseconds") if one.landed_at else None,
                    **({"reason": reason} if (reason := self._reason(one)) else {}),
                }
                for name, one in self._streams.items()
            }

    def _reason(self, one: Standing) -> str:
        return one.reason or (self._remark if one.state in (State.STARTING, State.RUNNING) else "")

    def _verdict(self, against: Callable[[Standing, float], str]) -> HealthVerdict | None:
        with self._lock:
            now = self._clock()
            found = [(name, against(one, now)) for name, one in self._streams.items()]
        reasons = tuple(_sentences(found))
        return HealthVerdict(not reasons, reasons) if found else None


def _sentences(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    for stream, reason in found:
        if reason:
            yield f"{stream}: {reason}"


def _not_ready(one: Standing, now: float, fresh: float) -> str:
    if one.state is State.ENDED:
        return ""
    if one.state is not State.RUNNING:
        return f"{one.state}{': ' if one.reason else ''}{one.reason}"
    return _silence(one, now, fresh)


def _stuck(one: Standing, now: float, stuck: float) -> str:
    # `retry.limit` bounds the waiting. A stream that has ended ends the process, or leaves it to the others.
    if one.state in (State.WAITING, State.ENDED, State.FAILED):
        return ""
    return _silence(one, now, stuck)


def _silence(one: Standing, now: float, limit: float) -> str:
    if (silent := now - one.moved) <= limit:
        return ""
    what = f"batch {one.batch} is under way" if one.batch is not None else str(one.state)
    return f"{what}, without progress for {silent:.0f} s"
