"""Decide when the next batch is due: by time, by the number of records, or when no more records arrive.

Spark starts the next batch as soon as the last one returns. So each batch waits at its end; there is no trigger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from time import monotonic

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.settings import StreamSettings

LOOK_S = 0.5  # how often the broker is asked how many records are waiting


@dataclass(frozen=True)
class Waiting:
    """Seconds since the last batch began, records that are waiting, and seconds without a new one."""

    elapsed: float
    records: int
    quiet: float


def due(waiting: Waiting, settings: StreamSettings) -> str | None:
    """The reason to begin the next batch now, or None."""
    if waiting.elapsed >= settings.every:
        return "time"
    if waiting.records >= settings.max_records:
        return "rows"
    if settings.idle and waiting.records and waiting.quiet >= settings.idle:
        return "idle"
    return None


def wait_until_due(
    settings: StreamSettings, began: float, landed: Offsets, ends: Callable[[], Offsets], stop: Event
) -> str:
    """Wait until the next batch is due. Returns the reason; `stop` ends the wait at once."""
    waits, changed = 0, monotonic()
    while not stop.is_set():
        now = monotonic()
        if reason := due(Waiting(now - began, waits, now - changed), settings):
            return reason
        stop.wait(min(LOOK_S, max(0.0, began + settings.every - now)))
        if began + settings.every - monotonic() <= 0:
            continue
        try:
            seen = sum(max(0, end - landed.get(at, 0)) for at, end in ends().items())
        except TryAgain:
            continue  # if the broker does not answer, the next batch reports it
        if seen != waits:
            waits, changed = seen, monotonic()
    return "stop"
