"""How many records a batch takes: fewer after starts that ended without one, more again with each that lands.

A start leaves whole batches to the next one, and nothing else. Whatever ends it before its first batch has landed (a
kill every so many seconds, too little memory) would end the next one at the same place, for ever. So a start that
finds that the one before it landed nothing takes a quarter of what that one took, down to a single record.
"""

import re

from lakehouse_ingest.ledger import keys
from lakehouse_ingest.tables import Position

STEP = 4


def of_start(record: Position, pipeline: str, most: int, *, replaces_replica: bool = False) -> int:
    """For the first batch of a start, by what the one before it has left in the batch record.

    One that nothing waited for had nothing to land. One that this start has replaced did not fail: it might have landed
    its first batch in a moment, or the next one, which would have been larger.
    """
    if record.mark is None:
        return most
    left = re.fullmatch(r"(\d{1,18})/(\d{1,18})", record.carried.get(f"{keys.SIZE}{pipeline}", ""))
    size, waiting = (int(left[1]), int(left[2])) if left else (most, most)
    has_landed = record.mark.token.batch >= 0
    if has_landed and replaces_replica:
        size = after_landing(size, most)
    elif not has_landed and waiting and not replaces_replica:
        size = min(size, waiting) // STEP  # it took no more than was waiting, by and large
    return max(1, min(most, size))


def left_by(size: int, waiting: int) -> str:
    """By a start, for the next one: how many records a batch may take, and how many there were to take."""
    return f"{size}/{waiting}"


def after_landing(size: int, most: int) -> int:
    return min(most, size * STEP)
