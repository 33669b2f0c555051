"""Choose the size of batches: smaller after a start that completed none, larger again with each completed batch.

Only complete batches survive a start. If something ends every start before its first batch is complete (too little
memory, a kill every few seconds), the pipeline would never get past that batch. So if the last start completed no
batch, the next one takes a quarter of that size, down to a single record.
"""

import re

from lakehouse_ingest.ledger import keys
from lakehouse_ingest.tables import Position

STEP = 4


def of_start(record: Position, pipeline: str, most: int, *, replaces_replica: bool = False) -> int:
    """The size of a start's first batch, from what the last start left in the batch log.

    If no records were waiting, the last start had no batch to complete, so the size stays. If this start has replaced
    a replica, that replica did not fail: it would have completed its batch, and the next one would have been larger.
    """
    if record.mark is None:
        return most
    left = re.fullmatch(r"(\d{1,18})/(\d{1,18})", record.carried.get(f"{keys.SIZE}{pipeline}", ""))
    size, waiting = (int(left[1]), int(left[2])) if left else (most, most)
    has_landed = record.mark.token.batch >= 0
    if has_landed and replaces_replica:
        size = after_landing(size, most)
    elif not has_landed and waiting and not replaces_replica:
        size = min(size, waiting) // STEP  # its batch held about as many records as were waiting, at most
    return max(1, min(most, size))


def left_by(size: int, waiting: int) -> str:
    """What a start leaves for the next one: how many records a batch may take, and how many were waiting."""
    return f"{size}/{waiting}"


def after_landing(size: int, most: int) -> int:
    return min(most, size * STEP)
