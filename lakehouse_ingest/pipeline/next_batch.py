"""Where the next batch ends: no further than the source lets us read, and no more records than a batch may have."""

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Offsets


def next_end(landed: Offsets, ends: Offsets, most: int) -> Offsets:
    """The end of a batch that begins at `landed`, with about `most` offsets; each partition gets its part of them.

    Partitions that this start does not read yet are left out: another start begins them.
    """
    for at, offset in landed.items():
        if ends.get(at, offset) < offset:
            topic, partition = at
            raise TryAgain(
                f"topic {topic} partition {partition} ends at {ends[at]}, and {offset} was read already; starting again"
            )
    waiting = {at: ends.get(at, offset) - offset for at, offset in landed.items()}
    total = sum(waiting.values())
    if total <= most:
        return {at: offset + waiting[at] for at, offset in landed.items()}
    # Rounded down, so that the batch has no more; the rest goes to the first partitions that have more to give.
    taken = {at: count * most // total for at, count in waiting.items()}
    rest = most - sum(taken.values())
    for at in sorted(waiting, key=lambda each: taken[each] - waiting[each]):
        if rest and taken[at] < waiting[at]:
            taken[at] += 1
            rest -= 1
    return {at: offset + taken[at] for at, offset in landed.items()}
