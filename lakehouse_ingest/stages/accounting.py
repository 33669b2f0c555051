"""Counts what became of every record: in a task while it reads, and on the driver when it adds up the receipts.

Law: every record that was received has exactly one outcome. A task counts what it receives apart from the outcomes, so
a stage that loses or doubles records is found out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import TopicPartition
from lakehouse_ingest.stages.records import Fault, Records, Share
from lakehouse_ingest.stages.tally import HEADER, LANDED, LENGTH, LOOKED_AT, OUTCOMES, REASONS, Tally

AGAIN = "nothing of the batch is committed, and it is read again"


@dataclass
class Count:
    """What became of the records of one share. A task adds to it chunk by chunk, and returns it."""

    share: Share
    looked_at: int = 0  # the headers of one in so many records are read, see `one_in`; 0: of none
    received: int = 0
    rows: int = 0  # of tables; a transform may make several of one record
    elsewhere: int = 0  # records whose outcome another pass over the batch counts
    outcomes: Counter[str] = field(default_factory=Counter)
    bytes: int = 0  # of the records' values
    oldest_us: int | None = None
    newest_us: int | None = None
    event_us: int | None = None
    traces: set[str] = field(default_factory=set)  # spans in which some of the records were sent

    def read(self, records: Records) -> None:
        """Count records as received, before any stage sees them."""
        first = -self.received % self.looked_at if self.looked_at else len(records)
        if first < len(records):
            self.traces |= _traces(records.rows["headers"].take(pa.array(range(first, len(records), self.looked_at))))
        self.received += len(records)
        self.bytes += pc.sum(pc.binary_length(records.rows["value"])).as_py() or 0
        found = pc.min_max(records.rows["timestamp"].cast(pa.int64())).as_py()
        self.oldest_us = _or(min, self.oldest_us, found["min"])
        self.newest_us = _or(max, self.newest_us, found["max"])

    def add(self, outcome: str, records: int) -> None:
        self.outcomes[outcome] += records

    def dead(self, faults: Iterable[Fault]) -> None:
        """Count records with a fault, by its reason. With `on_error = "ignore"` the driver turns them to discarded."""
        self.outcomes.update(str(fault.reason) for fault in faults)

    def landed(self, records: int, rows: int, event_times: pa.Array | None = None) -> None:
        """Count records that are written, and their rows. `event_times` are those of the rows, if somebody asks."""
        self.add(LANDED, records)
        self.rows += rows
        if event_times is not None:
            self.event_us = _or(max, self.event_us, pc.max(event_times.cast(pa.int64())).as_py())

    @property
    def letters(self) -> int:
        return sum(self.outcomes[reason] for reason in REASONS)

    def tally(self) -> Tally:
        counts = {outcome: count for outcome, count in self.outcomes.items() if count}
        at: TopicPartition = (self.share.topic, self.share.partition)
        oldest, newest, event = map(_ms, (self.oldest_us, self.newest_us, self.event_us))
        return Tally({at: counts} if counts else {}, oldest, newest, self.bytes, event, frozenset(self.traces))


def one_in(records: int) -> int:
    """One in how many records to look at, so that about `LOOKED_AT` of a batch are."""
    return max(1, records // LOOKED_AT)


class CountedFile(Protocol):
    """A file as its writer reports it."""

    @property
    def path(self) -> str: ...

    @property
    def record_count(self) -> int: ...


@dataclass(frozen=True)
class TaskReceipt:
    """What one task did with its shares."""

    counts: Sequence[Count]
    files: Sequence[CountedFile] = ()  # of tables
    letters: Sequence[CountedFile] = ()  # of the dead-letter table


def tiles(planned: Sequence[Share], *passes: Sequence[TaskReceipt], keeps_letters: bool = True) -> Tally:
    """Add up the receipts of a batch. Raises unless they cover what was planned exactly, with one outcome a record.

    Spark may run a task twice, or lose its answer. A sum balances even if one share is missing and another is there
    twice, so each share is looked for by name. A batch has a second pass if the first found news: then each pass has a
    receipt for every share, and counts the records of the other's routes as `elsewhere`.
    """
    _refuse_gaps(planned)
    for receipts in passes:
        _refuse_other_shares(planned, Counter(count.share for receipt in receipts for count in receipt.counts))
    every = [receipt for receipts in passes for receipt in receipts]
    paths = Counter(file.path for receipt in every for file in (*receipt.files, *receipt.letters))
    if twice := [path for path, times in paths.items() if times > 1]:
        raise TryAgain(f"two receipts name the file {twice[0]}; {AGAIN}")
    for receipt in every:
        _refuse_other_rows(receipt, keeps_letters=keeps_letters)
    by_share: dict[Share, list[Count]] = {}
    for count in (count for receipt in every for count in receipt.counts):
        by_share.setdefault(count.share, []).append(count)
    for counts in by_share.values():
        _refuse_lost_records(counts)
    return Tally.sum(_once(counts) for counts in by_share.values())


def _refuse_gaps(planned: Sequence[Share]) -> None:
    ordered = sorted(planned, key=lambda share: (share.topic, share.partition, share.start, share.end))
    for one, following in pairwise(ordered):
        if (one.topic, one.partition) == (following.topic, following.partition) and one.end != following.start:
            raise TryAgain(f"{_named(following)} do not follow {_named(one)} in the plan of a batch; {AGAIN}")


def _refuse_other_shares(planned: Sequence[Share], counted: Counter[Share]) -> None:
    wanted = Counter(planned)
    for share in planned:
        if counted[share] != wanted[share]:
            times = f"{counted[share]} receipts cover" if counted[share] else "no receipt covers"
            raise TryAgain(f"{times} {_named(share)}, and there should be {wanted[share]}; {AGAIN}")
    if unknown := counted - wanted:
        raise TryAgain(f"a receipt covers {_named(next(iter(unknown)))}, which is not in the plan; {AGAIN}")


def _refuse_other_rows(receipt: TaskReceipt, *, keeps_letters: bool) -> None:
    letters = sum(count.letters for count in receipt.counts) if keeps_letters else 0
    for files, counted, what in (
        (receipt.files, sum(count.rows for count in receipt.counts), "rows"),
        (receipt.letters, letters, "dead-letter records"),
    ):
        if (written := sum(file.record_count for file in files)) != counted:
            where = _named(receipt.counts[0].share) if receipt.counts else "no offsets"
            raise TryAgain(f"a task that read {where} counted {counted} {what} and wrote {written}; {AGAIN}")


def _refuse_lost_records(passes: Sequence[Count]) -> None:
    """Raise if the records of a share do not have one outcome each, in one of the passes."""
    settled = sum(count.outcomes.total() for count in passes)
    for count in passes:
        where, own = _named(count.share), count.outcomes.total() + count.elsewhere
        if unknown := count.outcomes.keys() - {*OUTCOMES}:
            raise TryAgain(f"{where} have the outcome {min(unknown)!r}, which does not exist; {AGAIN}")
        if count.received != own or count.received != settled or min([0, *count.outcomes.values()]) < 0:
            raise TryAgain(f"{where} gave {count.received} records, and {settled} of them have an outcome; {AGAIN}")
        if count.received > count.share.end - count.share.start:
            raise TryAgain(f"{where} gave {count.received} records, which are more than the offsets; {AGAIN}")
        if not (count.rows >= count.outcomes[LANDED] >= bool(count.rows)):
            raise TryAgain(f"{where} have {count.rows} rows of {count.outcomes[LANDED]} records; {AGAIN}")


def _once(passes: Sequence[Count]) -> Tally:
    """The counts of all passes. The records are the same in each, so their bytes are counted once."""
    first, *others = (count.tally() for count in passes)
    return Tally.sum([first, *(replace(each, bytes=0) for each in others)])


def _named(share: Share) -> str:
    return f"the offsets {share.start} to {share.end} of topic {share.topic} partition {share.partition}"


def _traces(headers: pa.ListArray) -> set[str]:
    """The first header of that name of each record, if it is one span."""
    found = set()
    for record in headers.to_pylist():
        value = next((each["value"] for each in record or () if each["key"] == HEADER), None)
        if value and len(value) == LENGTH and value.isascii():
            found.add(value.decode())
    return found


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _or(choose: Callable[[list[int]], int], one: int | None, other: int | None) -> int | None:
    there = [each for each in (one, other) if each is not None]
    return choose(there) if there else None
