"""Asking again, a bounded number of times, with growing waits."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random_exponential,
)

T = TypeVar("T")

FEW = 6
# For a race that a busy neighbour wins more often than not: one win of ours is enough.
MANY = 24
# 0.1 s, 0.2 s … 2 s, and each half of chance: writers that collided once would otherwise collide again.
_WAIT = wait_exponential(multiplier=0.05, max=1.0) + wait_random_exponential(multiplier=0.05, max=1.0)


class LookAgain(Exception):
    """This try failed; another one, upon what is there by then, may succeed."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(str(failure))
        self.failure = failure


def retrying(failures: type[Exception] | tuple[type[Exception], ...], tries: int = FEW) -> Retrying:
    """Give what calls a function again after one of these failures, as in `retrying(Unreachable)(load, name)`.

    The last failure is raised as it is.
    """
    return Retrying(stop=stop_after_attempt(tries), wait=_WAIT, retry=retry_if_exception_type(failures), reraise=True)


def look_until_settled(
    look: Callable[[], T], tries: int = FEW, before_next: Callable[[int, Exception], None] | None = None
) -> T:
    """Call `look` again after each LookAgain; the last one's own failure is raised.

    `before_next` gets the number and the failure of each try that another one follows. What it raises ends the tries.
    """

    def failed(state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        if before_next and isinstance(failure, LookAgain):
            before_next(state.attempt_number, failure.failure)

    try:
        return retrying(LookAgain, tries).copy(before_sleep=failed)(look)
    except LookAgain as last:
        failure = last.failure
    raise failure  # outside the handler, where it would get the LookAgain that it caused as its own context
