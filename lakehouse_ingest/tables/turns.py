"""Let the streams of one process take turns at a table that they share.

Correctness does not depend on turns: the catalog's compare-and-set decides every race. Turns only avoid races inside
one process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock

# The stream that has the turn may wait long for a catalog that does not answer. The others go ahead after this time,
# so that they find the outage themselves and can stop.
LONGEST_S = 30.0


@dataclass
class Turn:
    """The turn at one table."""

    _lock: RLock = field(default_factory=RLock)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no other stream has the turn. After `LONGEST_S`, go ahead without it."""
        is_ours = self._lock.acquire(timeout=LONGEST_S)
        try:
            yield
        finally:
            if is_ours:
                self._lock.release()


class Turns:
    """The turns of one process, one for each table."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._lock = Lock()

    def at(self, table: str) -> Turn:
        with self._lock:
            return self._turns.setdefault(table, Turn())
