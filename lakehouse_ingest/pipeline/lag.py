"""How far a stream is behind: in records, and in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse_ingest.records import Offsets, TopicPartition

SAMPLES = 64  # past ends to remember; older ones are thinned out


@dataclass
class Behind:
    """The lag of a stream, in records and in seconds."""

    _seen: list[tuple[float, Offsets]] = field(default_factory=list)  # moments and ends, oldest first

    def see(self, moment: float, ends: Offsets) -> None:
        if self._seen and self._seen[-1][1] == ends:
            self._seen[-1] = (moment, ends)  # nothing more had arrived by this moment
            return
        self._seen.append((moment, ends))
        if len(self._seen) > SAMPLES:
            half = SAMPLES // 2
            self._seen = [*self._seen[:half:2], *self._seen[half:]]

    def lag(self, landed: Offsets) -> Mapping[TopicPartition, int]:
        ends = self._seen[-1][1] if self._seen else {}
        return {at: max(0, end - landed.get(at, 0)) for at, end in ends.items()}

    def seconds(self, now: float, landed: Offsets, newest: float | None) -> float:
        """The longest time that any uncommitted record can have been waiting.

        If all records up to a past moment's ends are committed, every waiting record arrived after that moment. Before
        there is such a moment, use the broker's time of the newest committed record: most waiting records are newer.
        """
        if not any(self.lag(landed).values()):
            return 0.0
        for moment, ends in reversed(self._seen):
            if all(end <= landed.get(at, 0) for at, end in ends.items()):
                return max(0.0, now - moment)
        return max(0.0, now - (newest if newest is not None else self._seen[0][0]))
