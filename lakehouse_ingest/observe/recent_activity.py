"""What has happened lately, for whoever looks at the page: an hour by the minute, the last batches, what went wrong.

It listens to the lines of the log, which tell all that happens, and keeps a bounded part of it in memory. It begins
with the process: what was before stands in the batch record.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

from lakehouse_ingest.observe.anonymize import blurred

MINUTES = 60
BATCHES = 60
PROBLEMS = 30
TABLES = 500
LONGEST = 300  # characters of what went wrong
SAMPLED = 400  # bytes of a dead letter


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
class Table:
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
class Stream:
    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=MINUTES))
    outcomes: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)  # by reason
    samples: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the newest of each
    lag: int | None = None
    lag_s: float | None = None
    freshness_s: float | None = None


class History:
    """Shared by all threads of a pipeline; each call is a moment's work."""

    def __init__(self, clock: Callable[[], float] = time.time, shown: Callable[[str], str] = str) -> None:
        self._clock = clock
        self._shown = shown  # without secrets
        self._lock = Lock()
        self._began = clock()
        self._streams: dict[str, Stream] = {}
        self._tables: dict[str, Table] = {}
        self._changes: Counter[str] = Counter()
        self._last_change: dict[str, str] = {}
        self._batches: deque[Mapping[str, Any]] = deque(maxlen=BATCHES)
        self._problems: deque[Mapping[str, Any]] = deque(maxlen=PROBLEMS)

    def heard(self, level: str, event: str, said: Mapping[str, Any]) -> None:
        """A line of the log."""
        with self._lock:
            if event == "batch_landed":
                self._batch(said)
            elif event == "schema_changed":
                self._changes[said["table"]] += len(said["changes"])
                self._last_change[said["table"]] = ", ".join(map(str, said["changes"]))[:LONGEST]
            if level in ("warning", "error", "exception") and event != "batch_landed":
                what = str(said.get("error") or said.get("line") or said.get("change") or "")
                self._problems.append(
                    {
                        "at": self._clock(),
                        "level": "warning" if level == "warning" else "error",
                        "event": event,
                        "where": str(said.get("stream") or said.get("table") or ""),
                        "what": self._shown(what)[:LONGEST],
                    }
                )

    def lag(self, stream: str, records: int, seconds: float) -> None:
        with self._lock:
            one, minute = self._now(stream)
            one.lag, one.lag_s = minute.lag, minute.lag_s = records, round(seconds, 1)

    def dead(self, stream: str, samples: Mapping[str, Mapping[str, Any]], names: Collection[str]) -> None:
        """One of each reason, as it came; kept as it may be shown: `told` is made for that, see `shaping.faulty`."""
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
            self._streams.setdefault(stream, Stream()).samples.update(shown)

    def table(self, name: str, rows: int, files: int, size: int, snapshots: int, snapshot: int | None = None) -> None:
        """As it is after a landing."""
        with self._lock:
            self._tables.pop(name, None)  # the last one that landed stands last
            self._tables[name] = Table(name, self._clock(), rows, files, size, snapshots, snapshot)
            while len(self._tables) > TABLES:
                del self._tables[next(iter(self._tables))]

    def told(self) -> Mapping[str, Any]:
        """All of it, for machines."""
        with self._lock:
            return {
                "now": self._clock(),
                "began": self._began,
                "streams": {
                    name: {
                        "lag": one.lag,
                        "lag_s": one.lag_s,
                        "freshness_s": one.freshness_s,
                        "outcomes": dict(one.outcomes),
                        "dead": dict(one.dead.most_common()),
                        "samples": dict(one.samples),
                        "minutes": [asdict(minute) for minute in one.minutes],
                    }
                    for name, one in self._streams.items()
                },
                "tables": [
                    asdict(table)
                    | {
                        "snapshot": str(table.snapshot or ""),  # beyond what JavaScript can count
                        "schema_changes": self._changes[name],
                        "last_change": self._last_change.get(name, ""),
                    }
                    for name, table in reversed(self._tables.items())
                ],
                "batches": list(self._batches),
                "problems": list(reversed(self._problems)),
            }

    def _batch(self, said: Mapping[str, Any]) -> None:
        one, minute = self._now(said["stream"])
        landed, dead = sum(said["landed"].values()), sum(said.get("dead", {}).values())
        others = {outcome: said.get(outcome, 0) for outcome in ("filtered", "trimmed")}
        others["discarded"] = sum(said.get("discarded", {}).values())
        one.outcomes.update({"received": said["received"], "landed": landed, "dead": dead, **others})
        one.dead.update(said.get("dead", {}))
        minute.landed += landed
        minute.dead += dead
        if (freshness := said.get("freshness_s")) is not None:
            one.freshness_s = freshness
            minute.freshness_s = max(freshness, minute.freshness_s or 0.0)
        self._batches.append(
            {
                "stream": said["stream"],
                "batch": said["batch"],
                "ended": self._clock(),
                "took_s": said["duration_s"],
                "received": said["received"],
                "landed": landed,
                "dead": dead,
                "tables": len(said["landed"]),
            }
        )

    def _now(self, stream: str) -> tuple[Stream, Minute]:
        one = self._streams.setdefault(stream, Stream())
        at = int(self._clock()) // 60 * 60
        while one.minutes and one.minutes[0].at <= at - MINUTES * 60:
            one.minutes.popleft()
        if not one.minutes or one.minutes[-1].at != at:
            one.minutes.append(Minute(at))
        return one, one.minutes[-1]


class Told:
    """A logger whose lines are heard as well."""

    def __init__(self, log: Any, heard: Callable[[str, str, Mapping[str, Any]], None]) -> None:
        self._log, self._heard = log, heard

    def bind(self, **values: Any) -> "Told":
        return Told(self._log.bind(**values), self._heard)

    def debug(self, event: str, **said: Any) -> None:
        self._log.debug(event, **said)

    def info(self, event: str, **said: Any) -> None:
        self._heard("info", event, said)
        self._log.info(event, **said)

    def warning(self, event: str, **said: Any) -> None:
        self._heard("warning", event, said)
        self._log.warning(event, **said)

    def error(self, event: str, **said: Any) -> None:
        self._heard("error", event, said)
        self._log.error(event, **said)
