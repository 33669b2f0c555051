"""How many records a batch takes: fewer after starts that ended without one, more again with each that lands.

A start leaves whole batches to the next one, and nothing else. Whatever ends it before its first batch has landed (a
kill every so many seconds, too little memory) would end the next one at the same place, for ever. So a start that
finds that the one before it landed nothing takes a quarter of what that one took, down to a single record.
"""

from lakehouse_ingest import ledger
from lakehouse_ingest.tables import Place

STEP = 4


def of_start(record: Place, pipeline: str, waiting: int, most: int) -> int:
    """For the first batch of a start, by what the one before it has left in the batch record.

    It took no more than was `waiting`, by and large. Where nothing waits, it may have had nothing to land.
    """
    if record.mark is None or not waiting:
        return most
    left = record.carried.get(f"{ledger.SIZE}{pipeline}", "")
    size = min(most, int(left)) if left.isdecimal() else most
    return size if record.mark.token.batch >= 0 else max(1, min(size, waiting) // STEP)


def after_landing(size: int, most: int) -> int:
    return min(most, size * STEP)
