"""What has happened lately, for the status page and `top`: the last hour by the minute, the last batches, problems.

It listens to the events of the pipeline and keeps a bounded part of them in memory. It begins with the process; what
was before is in the batch log.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

from lakehouse_ingest.observe.anonymize import blurred
from lakehouse_ingest.observe.events import BatchLanded, SchemaChanged
from telemetry import Event

MINUTES = 60
BATCHES = 60
PROBLEMS = 30
TABLES = 500
LONGEST = 300  # characters of a problem's text
SAMPLED = 400  # bytes of a dead-letter record


@dataclass
class Minute:
    """Of one stream; `at` is its beginning, in seconds since 1970. What was not seen is None."""

    at: int
    landed: int = 0
    dead: int = 0
    freshness_s: float | None = None  # the worst
    lag: int | None = None  # the last that was seen
    lag_s: float | None = None


@dataclass
class TableActivity:
    name: str
    landed_at: float
    rows: int
    files: int
    bytes: int
    snapshots: int
    snapshot: int | None  # the last of ours
    schema_changes: int = 0
    last_change: str = ""


@dataclass
class StreamActivity:
    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=MINUTES))
    outcomes: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)  # by reason
    samples: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the newest of each
    lag: int | None = None
    lag_s: float | None = None
    freshness_s: float | None = None

    def landed_at(self, minute: int) -> int:
        return next((each.landed for each in reversed(self.minutes) if each.at == minute), 0)

    def per_second(self, now: float, began: float) -> float:
        """Records landed in the last sixty seconds, estimated from whole minutes."""
        this = int(now) // 60 * 60
        of_this, of_last = self.landed_at(this), self.landed_at(this - 60)
        return (of_this + of_last * (60 - now % 60) / 60) / max(1.0, min(60.0, now - began))


class RecentActivity:
    """Shared by all threads of a pipeline; each call takes a moment only."""

    def __init__(self, clock: Callable[[], float] = time.time, shown: Callable[[str], str] = str) -> None:
        """`shown` takes the secrets out of a text."""
        self._clock = clock
        self._shown = shown
        self._lock = Lock()
        self._began = clock()
        self._streams: dict[str, StreamActivity] = {}
        self._tables: dict[str, TableActivity] = {}
        self._changes: Counter[str] = Counter()
        self._last_change: dict[str, str] = {}
        self._batches: deque[Mapping[str, Any]] = deque(maxlen=BATCHES)
        self._problems: deque[Mapping[str, Any]] = deque(maxlen=PROBLEMS)

    def __call__(self, event: Event) -> None:
        """As a listener."""
        with self._lock:
            match event:
                case BatchLanded():
                    # Its dead-letter records are shown with their stream, so they are no problem of their own.
                    self._batch(event)
                case SchemaChanged():
                    self._changes[event.table] += len(event.changes)
                    self._last_change[event.table] = ", ".join(event.changes)[:LONGEST]
                case Event(level="warning" | "error"):
                    self._problem(event)

    def lag(self, stream: str, records: int, seconds: float) -> None:
        with self._lock:
            one, minute = self._now(stream)
            one.lag, one.lag_s = minute.lag, minute.lag_s = records, round(seconds, 1)

    def dead(self, stream: str, samples: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> None:
        """One record of each reason, with its bytes. `told` in it was made to be shown, see `stages.faults.faulty`."""
        shown = {
            reason: {
                "at": self._clock(),
                "where": f"{each['topic']}/{each['partition']}@{each['offset']}",
                "detail": self._shown(each["told"] or "")[:LONGEST],
                "value": blurred(each["value"], SAMPLED, names),
            }
            for reason, each in samples.items()
        }
        with self._lock:
            self._streams.setdefault(stream, StreamActivity()).samples.update(shown)

    def table(self, name: str, rows: int, files: int, size: int, snapshots: int, snapshot: int | None = None) -> None:
        """As the table is after a batch."""
        with self._lock:
            self._tables.pop(name, None)  # the table with the newest rows is the last in the order
            self._tables[name] = TableActivity(name, self._clock(), rows, files, size, snapshots, snapshot)
            while len(self._tables) > TABLES:
                del self._tables[next(iter(self._tables))]

    def report(self) -> Mapping[str, Any]:
        """All of it, as plain values."""
        with self._lock:
            now = self._clock()
            return {
                "now": now,
                "began": self._began,
                "streams": {name: self._stream_report(one, now) for name, one in self._streams.items()},
                "tables": [
                    asdict(table)
                    | {
                        "snapshot": str(table.snapshot or ""),  # beyond the integers that JavaScript can hold
                        "schema_changes": self._changes[name],
                        "last_change": self._last_change.get(name, ""),
                    }
                    for name, table in reversed(self._tables.items())
                ],
                "batches": list(self._batches),
                "problems": list(reversed(self._problems)),
            }

    def _stream_report(self, one: StreamActivity, now: float) -> Mapping[str, Any]:
        return {
            "lag": one.lag,
            "lag_s": one.lag_s,
            "freshness_s": one.freshness_s,
            "per_second": round(one.per_second(now, self._began), 3),
            "outcomes": dict(one.outcomes),
            "dead": dict(one.dead.most_common()),
            "samples": dict(one.samples),
            "minutes": [asdict(minute) for minute in one.minutes],
        }

    def _batch(self, event: BatchLanded) -> None:
        one, minute = self._now(event.stream)
        landed, dead = event.landed_records, event.dead_records
        others = {"filtered": event.filtered, "trimmed": event.trimmed, "discarded": event.discarded_records}
        one.outcomes.update({"received": event.received, "landed": landed, "dead": dead, **others})
        one.dead.update(event.dead)
        minute.landed += landed
        minute.dead += dead
        if event.freshness_s is not None:
            one.freshness_s = round(event.freshness_s, 3)
            minute.freshness_s = max(one.freshness_s, minute.freshness_s or 0.0)
        self._batches.append(
            {
                "stream": event.stream,
                "batch": event.batch,
                "ended": self._clock(),
                "took_s": round(event.duration_s, 3),
                "received": event.received,
                "landed": landed,
                "dead": dead,
                "tables": len(event.landed),
            }
        )

    def _problem(self, event: Event) -> None:
        line = event.line()
        what = str(line.get("error") or line.get("line") or line.get("change") or "")
        self._problems.append(
            {
                "at": self._clock(),
                "level": event.level,
                "event": event.name,
                "where": str(line.get("stream") or line.get("table") or ""),
                "what": self._shown(what)[:LONGEST],
            }
        )

    def _now(self, stream: str) -> tuple[StreamActivity, Minute]:
        one = self._streams.setdefault(stream, StreamActivity())
        at = int(self._clock()) // 60 * 60
        while one.minutes and one.minutes[0].at <= at - MINUTES * 60:
            one.minutes.popleft()
        if not one.minutes or one.minutes[-1].at != at:
            one.minutes.append(Minute(at))
        return one, one.minutes[-1]
