"""Cuts a batch into tasks. Every offset of the batch is in exactly one share."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Range, SourceIdentity, TopicPartition
from lakehouse_ingest.stages.records import Share

PER_TASK = 100_000  # offsets; a task costs Spark about as much time as the reading of 10,000 records
MOST_TASKS = 1_000
NEAR = 16  # a cut moves to the end of a partition if that is nearer than this part of a task


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

    They end before the batch does. A consumer that has passed the end of a share can't be used for it any more.
    """
    parts = _parts(batch)
    each = most // max(1, len(parts))
    taken = [(at, end, min(each, (end - start) // 2)) for at, start, end in parts]
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
