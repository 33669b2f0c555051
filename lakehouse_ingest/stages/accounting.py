"""Cuts a batch into the shares of its tasks, and counts what became of every record of them.

Every offset of the batch is in exactly one share. A task counts while it reads, and the driver adds up the receipts.
Law: every record that was received has exactly one outcome. A task counts what it receives apart from the outcomes, so
a stage that loses or doubles records is found out.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Range, SourceIdentity, TopicPartition
from lakehouse_ingest.stages.records import Fault, Records, Share
from lakehouse_ingest.stages.tally import HEADER, LANDED, LENGTH, LOOKED_AT, OUTCOMES, REASONS, Tally

PER_TASK = 100_000  # offsets; a task costs Spark about as much time as the reading of 10,000 records
MOST_TASKS = 1_000
NEAR = 16  # a cut moves to the end of a partition if that is nearer than this part of a task
AGAIN = "nothing of the batch is committed, and it is read again"


# -- the shares of a batch --------------------------------------------------------------------------------


def shares(
    batch: Range, identity: SourceIdentity, per_task: int = PER_TASK, cores: int = 1, most_tasks: int = MOST_TASKS
) -> list[list[Share]]:
    """The shares of each task, in the order of topics, partitions and offsets. The same batch gives the same tasks.

    A batch of at most `per_task` offsets is one task. The tasks of a larger batch have about the same size, and their
    number is a multiple of `cores`, so that no core waits for the others.
    """
    parts = _parts(batch)
    ends = [0, *accumulate(end - start for _, start, end in parts)]  # all partitions, laid end to end
    if not ends[-1]:
        return []
    logs = {topic: identity.log(topic) for topic in {topic for (topic, _), _, _ in parts}}
    cuts = _cuts(ends, _count(ends[-1], per_task, cores, most_tasks))
    return [
        [Share(topic, number, start, end, logs[topic]) for (topic, number), start, end in _between(parts, ends, *cut)]
        for cut in pairwise(cuts)
    ]


def samples(batch: Range, identity: SourceIdentity, most: int, cores: int = 1) -> list[list[Share]]:
    """Shares of about `most` offsets near the ends of the partitions: what begins in a batch and stays is in them.

    They end before the batch does, because a consumer that has passed the end of a share can't be used for it any more.
    So one can go on with the last shares; for the others a worker connects again.
    """
    parts = _parts(batch)
    each = most // max(1, len(parts))
    taken = [(at, end, min(each, (end - start) // 4)) for at, start, end in parts]
    found = [Share(*at, end - 2 * size, end - size, identity.log(at[0])) for at, end, size in taken if size]
    return [of_task for number in range(cores) if (of_task := found[number::cores])]


def _parts(batch: Range) -> list[tuple[TopicPartition, int, int]]:
    if batch.start.keys() != batch.end.keys():
        raise TryAgain("a batch was planned whose start and end name different partitions; the stream starts again")
    if back := [at for at in batch.end if batch.end[at] < batch.start[at]]:
        topic, number = min(back)
        raise TryAgain(
            f"a batch was planned that goes back in topic {topic} partition {number}, from offset"
            f" {batch.start[topic, number]} to {batch.end[topic, number]}; the stream starts again"
        )
    return [(at, batch.start[at], end) for at, end in sorted(batch.end.items()) if end > batch.start[at]]


def _count(total: int, per_task: int, cores: int, most_tasks: int) -> int:
    tasks = -(-total // per_task)
    rounded = -(-tasks // cores) * cores if tasks > 1 else 1
    return min(rounded, most_tasks, total)


def _cuts(ends: Sequence[int], tasks: int) -> list[int]:
    """Where one task ends and the next begins, from the first offset to the last."""
    total = ends[-1]
    near = total // tasks // NEAR
    return [0, *(_at_an_end(ends, total * task // tasks, near) for task in range(1, tasks)), total]


def _at_an_end(ends: Sequence[int], cut: int, near: int) -> int:
    """The end of a partition, if one is near: a share of a few records costs as much time as one of thousands."""
    right = bisect_left(ends, cut)
    nearest = min(ends[max(0, right - 1) : right + 1], key=lambda end: abs(end - cut))
    return nearest if abs(nearest - cut) <= near else cut


def _between(
    parts: Sequence[tuple[TopicPartition, int, int]], ends: Sequence[int], first: int, last: int
) -> Iterator[tuple[TopicPartition, int, int]]:
    number = bisect_left(ends, first + 1) - 1
    while number < len(parts) and ends[number] < last:
        at, start, _ = parts[number]
        shift = start - ends[number]
        yield at, max(first, ends[number]) + shift, min(last, ends[number + 1]) + shift
        number += 1


# -- the counts of a task ---------------------------------------------------------------------------------


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


# -- the receipts of a batch ------------------------------------------------------------------------------


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
