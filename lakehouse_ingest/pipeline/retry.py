"""Decide how long a stream waits before it starts again, and when it gives up."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Retry:
    """The next attempt."""

    attempt: int
    wait_s: float


class RetryBudget:
    """Waits grow from attempt to attempt. A committed batch, or a start that was up for long, resets them.

    The time in which a start was up does not count towards the limit. So a stream of a quiet topic does not give up
    because its broker fails to answer for a moment now and then.
    """

    def __init__(self, first_wait_s: float, limit_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._first, self._limit, self._clock = first_wait_s, limit_s, clock
        self._attempt, self._wait, self._since = 0, first_wait_s, clock()
        self._up_since: float | None = None

    def begins(self) -> None:
        """A start begins. It is not up before its query can read records."""
        self._up_since = None

    def is_up(self) -> None:
        self._up_since = self._clock()

    def failed(self, *, landed: bool) -> Retry | None:
        """The next attempt after a failed start; None to give up. `landed`: the start has committed a batch."""
        now = self._clock()
        up = now - self._up_since if self._up_since is not None else 0.0
        if not self._attempt or landed or up > max(self._limit, LONGEST_WAIT_S):
            self._attempt, self._wait, self._since = 0, self._first, now
        else:
            self._since += up
        if now - self._since > self._limit:
            return None
        self._attempt += 1
        retry = Retry(self._attempt, self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT_S)
        return retry
