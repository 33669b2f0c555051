"""Decide how many snapshots of a table stay. The newest mark of every pipeline always stays.

The snapshots that stay are an unbroken line from main's head, because the ledger walks back along it.

A table's metadata holds the summary of every snapshot, and each commit reads and writes all of it. A summary holds the
marks of all pipelines that feed the table; in the batch log it holds their settings and tables as well. So the
settings' limits on snapshots are themselves limited, by the size of the summaries.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakehouse_ingest.ledger.keys import MARK, TOKEN
from lakehouse_ingest.ledger.marks import Summary
from lakehouse_ingest.settings import Settings

ROOM = 2**20  # characters of all summaries together
FEWEST = 10  # snapshots that stay however large their summaries are: a commit without an answer is looked up there
YOUNG = 1_000  # the most snapshots that stay because of their age


@dataclass(frozen=True)
class Retention:
    """The limits from the settings."""

    number: int  # the most snapshots
    seconds: float = 0.0  # snapshots that were main's head within this time stay as well

    def kept(self, history: Iterable[tuple[int, Summary]]) -> int:
        """How many of main's ancestors stay. `history` holds their times in ms and summaries, newest first.

        A query keeps reading the snapshot that was main's head when it began. So the age of a snapshot counts from the
        moment when the next one replaced it, not from its own creation.
        """
        # Expiry costs a commit of its own. Removing a fifth at a time makes it rare.
        number = max(1, self.number * 4 // 5)
        kept = marked = size = 0
        seen: set[str] = set()
        head = follower = 0
        for index, (time, summary) in enumerate(history):
            head, follower = (head, follower) if index else (time, time)
            size += sum(len(key) + len(text) for key, text in summary.items())
            is_young = index < YOUNG and follower > head - self.seconds * 1000
            if kept == index and (index < number or is_young) and (index < FEWEST or size <= ROOM):
                kept = index + 1
            marks = {key for key in summary if key.startswith(MARK)}
            if marks - seen:
                seen |= marks
                marked = index + 1
            follower = time
        return max(kept, marked)


def retention_of(settings: Settings) -> Callable[[str], Retention]:
    """A function that gives the retention of each table of a pipeline."""
    keep = settings.ledger
    batch_log = f"{settings.catalog.namespace}.{keep.batch_table}"

    def retention(table: str) -> Retention:
        # No query reads the batch log for long, and with many streams its metadata grows faster than any other.
        return Retention(keep.keep_snapshots, 0.0 if table == batch_log else keep.keep_for)

    return retention


def is_due(snapshots: int, expirable: int) -> bool:
    """True if enough snapshots can be expired to be worth a commit."""
    return expirable > 0 and 5 * expirable >= snapshots


def is_left_behind(summary: Summary, pipeline: str, epoch: int) -> bool:
    """True if an unreferenced snapshot was written by this start or an earlier one of the same pipeline.

    A newer start may still publish its own. Other writers may keep unreferenced snapshots on purpose
    (write-audit-publish).
    """
    # Look at the token, because commits of other pipelines copy our mark.
    token = re.fullmatch(r"(.+)/\d+/(\d{1,18})/-?\d+", summary.get(TOKEN, ""))
    return token is not None and token[1] == pipeline and int(token[2]) <= epoch
