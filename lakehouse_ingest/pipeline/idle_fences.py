"""Move the fences of idle tables up, now and then.

A fence moves with each commit of ours. On a table that gets no rows it stays, and with it the files of its snapshot:
once others have replaced them by a compaction, no expiry can remove them. So a fence that has not moved for an hour is
moved to the head of `main`. That is one request to the catalog, and a second one only if the head has moved on. One
table is looked at in a second, between two batches. What fails is reported, and tried again after another hour.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from lakehouse_ingest.tables import Position

EVERY_S = 3600.0
PAUSE_S = 1.0  # between two tables


class HasPlace(Protocol):
    """Whatever remembers our position on a table."""

    place: Position


@dataclass
class IdleFences:
    """The fences of one start."""

    held: Callable[[], Iterable[HasPlace]]
    move_up: Callable[[Position], Position]
    clock: Callable[[], float] = monotonic
    _since: dict[str, tuple[int | None, float]] = field(default_factory=dict)  # where each fence is, and since when
    _looked: float = float("-inf")

    @property
    def may_look(self) -> bool:
        return self.clock() - self._looked >= PAUSE_S

    def look(self) -> None:
        """Move up at most one fence. No batch may run meanwhile, because it uses the same positions."""
        if not self.may_look:
            return
        now = self._looked = self.clock()
        held = [one for one in self.held() if one.place.fence is not None]
        for one in held:
            if self._since.get(one.place.table, (None, now))[0] != one.place.fence:
                self._since[one.place.table] = (one.place.fence, now)
        oldest = min(held, key=lambda one: self._since[one.place.table][1], default=None)
        if oldest and now - self._since[oldest.place.table][1] >= EVERY_S:
            oldest.place = self.move_up(oldest.place)
            self._since[oldest.place.table] = (oldest.place.fence, now)
