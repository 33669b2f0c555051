"""Let the streams of one process take turns at a table that they share.

Correctness does not depend on turns: the catalog's compare-and-set decides every race. Turns only avoid races inside
one process. A stream waits for the others, and knows without a request whether one of them has moved main.
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
    """One table, as the streams of this process last left it."""

    main: int | None = None  # after the last commit of any of them
    _upon_main: set[str] = field(default_factory=set)  # ledger names of the streams that write on top of this main
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

    def stands(self, pipeline: str, main: int | None) -> None:
        """From now on this pipeline writes on top of this main."""
        if main != self.main:
            self._upon_main.clear()
        self.main = main
        self._upon_main.add(pipeline)

    def is_upon_main(self, pipeline: str) -> bool:
        """True if no other stream of this process has moved main since the last call of `stands`."""
        return pipeline in self._upon_main


class Turns:
    """The turns of one process, one for each table."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._lock = Lock()

    def at(self, table: str) -> Turn:
        with self._lock:
            return self._turns.setdefault(table, Turn())
