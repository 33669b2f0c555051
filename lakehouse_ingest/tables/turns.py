"""The streams of one process take turns at a table that they share.

Compare-and-set keeps the promise, whoever comes first. A turn only spares the streams of one process the race against
each other: who comes next waits, and knows without a request that a sibling has moved main.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock

# Whoever has a turn may wait long for a catalog that is away: the others must still hear of that themselves, and end.
LONGEST_S = 30.0


@dataclass
class Turn:
    """One table, as the streams of this process have left it."""

    main: int | None = None  # after the last commit of any of them
    _upon_main: set[str] = field(default_factory=set)  # the pipelines whose next snapshot is built upon it
    _lock: RLock = field(default_factory=RLock)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Waits until no sibling is at the table; goes ahead without a turn after `LONGEST_S`."""
        is_ours = self._lock.acquire(timeout=LONGEST_S)
        try:
            yield
        finally:
            if is_ours:
                self._lock.release()

    def stands(self, pipeline: str, main: int | None) -> None:
        """What this pipeline stages from now on is built upon this main."""
        if main != self.main:
            self._upon_main.clear()
        self.main = main
        self._upon_main.add(pipeline)

    def is_upon_main(self, pipeline: str) -> bool:
        """Whether no sibling has moved main since the pipeline stood there."""
        return pipeline in self._upon_main


class Turns:
    """Those of one process, by table."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._lock = Lock()

    def at(self, table: str) -> Turn:
        with self._lock:
            return self._turns.setdefault(table, Turn())
