"""How often a stream begins again, and when it gives up."""

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
    """Waits grow from attempt to attempt; whatever recovers in between begins anew with a short one.

    Time in which a start was up does not count: a quiet topic whose broker is away for a moment now and then is never
    given up.
    """

    def __init__(self, first_wait_s: float, limit_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._first, self._limit, self._clock = first_wait_s, limit_s, clock
        self._attempt, self._wait, self._since = 0, first_wait_s, clock()
        self._up_since: float | None = None

    def begins(self) -> None:
        """A start begins; it is up only when its query can take records."""
        self._up_since = None

    def is_up(self) -> None:
        self._up_since = self._clock()

    def failed(self, *, landed: bool) -> Retry | None:
        """What to do after a start that `landed` a batch or not; None: give up."""
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
