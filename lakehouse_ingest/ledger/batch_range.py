"""The offsets of a batch, from Spark's own log of them."""

import json

from lakehouse_ingest.records import Offsets, Range


def batch_range(entry: str, before: str | None, start: Offsets) -> Range:
    """The offsets of a batch: from the entry before its own in Spark's offset log, or from our start, to its own entry.

    A partition that neither of them knows was added while the query ran. Spark reads it from its first record, and
    refuses if that is not 0.
    """
    end = _logged(entry)
    known = {**start, **(_logged(before) if before else {})}
    return Range({at: known.get(at, 0) for at in end}, end)


def _logged(entry: str) -> dict[tuple[str, int], int]:
    *_, offsets = entry.strip().splitlines()
    return {
        (topic, int(number)): offset for topic, parts in json.loads(offsets).items() for number, offset in parts.items()
    }
