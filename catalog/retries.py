"""Bounded repetition."""

import random
import time
from collections.abc import Iterator

_ATTEMPTS = 6
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0


def patiently(attempts: int = _ATTEMPTS) -> Iterator[bool]:
    """Yield once an attempt, with growing waits between; True says that it is the last."""
    wait = _FIRST_WAIT
    for attempt in range(1, attempts + 1):
        yield attempt == attempts
        # Some chance in it, or those that collided once would collide again.
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - nobody is to be kept from guessing it
        wait = min(wait * 2, _LONGEST_WAIT)
