"""How many of a table's snapshots stay: old ones go, but never the newest mark of any pipeline.

What stays is a run of main's ancestors from its head: a gap would cut the ledger's walk short.

A table's metadata holds every snapshot with its summary, and is read and written as a whole with each commit. So both
limits of the settings are bounded: a summary carries the marks of all pipelines that feed the table, that of the batch
record their settings and tables as well, and would otherwise be kept as often as there are snapshots.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakehouse_ingest.ledger.keys import MARK, TOKEN
from lakehouse_ingest.ledger.marks import Summary
from lakehouse_ingest.settings import Settings

ROOM = 2**20  # letters of all summaries together
FEWEST = 10  # stay whatever their summaries take: a commit without an answer is looked for among them
YOUNG = 1_000  # stay at most because of their age


@dataclass(frozen=True)
class Retention:
    """As the settings say it."""

    number: int  # of snapshots, at most
    seconds: float = 0.0  # what main led to within this time stays, beyond that number

    def kept(self, history: Iterable[tuple[int, Summary]]) -> int:
        """How many of main's ancestors stay, of which each has its time in ms; newest first.

        A reader begins with the head, and goes on with it when there is a newer one. So what counts is not when a
        snapshot was made, but when the next one took its place.
        """
        # Expiry costs a commit of its own: a fifth at once is enough to do it now and then.
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
    """Of each table of a pipeline."""
    keep = settings.ledger
    batch_log = f"{settings.catalog.namespace}.{keep.batch_table}"

    def retention(table: str) -> Retention:
        # No query reads the batch log for long, and with many streams its metadata grow the fastest of all.
        return Retention(keep.keep_snapshots, 0.0 if table == batch_log else keep.keep_for)

    return retention


def is_due(snapshots: int, expirable: int) -> bool:
    """Whether so many that may go are worth a commit."""
    return expirable > 0 and 5 * expirable >= snapshots


def is_left_behind(summary: Summary, pipeline: str, epoch: int) -> bool:
    """Whether what no ref leads to was ours, and of this start or an earlier one: a newer one may yet publish it.

    Only ours: other writers may keep snapshots without a ref on purpose (write, audit, publish).
    """
    # The token, not the mark: the others' landings carry our mark on.
    token = re.fullmatch(r"(.+)/\d+/(\d{1,18})/-?\d+", summary.get(TOKEN, ""))
    return token is not None and token[1] == pipeline and int(token[2]) <= epoch
