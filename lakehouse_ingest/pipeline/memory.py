"""Whether there is enough memory for what the tasks may hold at the same time.

A task holds no more than a batch of records, a few forms of it, and rows that wait to be written, each up to a bound
in bytes. What it may take at most does not depend on the size of a batch, or on the number of tables. For 600,000
records of 640 bytes into 100 tables the peak of a worker was 575 MiB without a Kafka client, and 796 MiB where rows
waited without a bound. A user's function is not counted, nor is a single record of hundreds of MB.
"""

import re

from lakehouse_ingest.environment.machine import memory
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.observe.events import MemoryShort
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.task import KEPT_LETTERS, MOST_WAITING

MIB = 2**20
WORKER = 150 * MIB  # a Python worker with its libraries
RECORDS = 32 * MIB  # a batch of records: see `most_bytes` of the reader
# What the client has fetched ahead, its messages, the batch of them, what was decoded, and the rows of it.
FORMS = 8
WRITING = 64 * MIB  # what splitting, sorting and encoding the rows of one table takes for a moment
PER_TASK = WORKER + FORMS * RECORDS + MOST_WAITING + WRITING + KEPT_LETTERS
DRIVER = 500 * MIB  # the driver in Python, and what Java takes beside its heap
UNITS = {"": MIB, "k": 2**10, "m": MIB, "g": 2**30, "t": 2**40}


def refuse_too_little(watch: Watch, heap: str, tasks: int, there: int | None = None) -> None:
    """Refuse a heap that is larger than the memory, and warn if all tasks together may need more than there is."""
    has = memory() if there is None else there
    if bytes_of(heap) > has:
        raise SettingsRefused(
            f"`spark.memory` is {heap}, and this machine or container has {_shown(has)}; choose a smaller heap"
        )
    needs = bytes_of(heap) + DRIVER + tasks * PER_TASK
    if needs > has:
        watch.emit(MemoryShort(has=_shown(has), needs=_shown(needs), tasks=tasks, advice=_advice(has - bytes_of(heap))))


def bytes_of(text: str) -> int:
    """A size as Spark takes it, such as 1g; 0 if it is none, which Spark refuses itself."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(found[1]) * UNITS[found[2]] if found else 0


def _advice(left: int) -> str:
    fit = max(1, (left - DRIVER) // PER_TASK)
    return (
        "a batch of large records or for many tables may end for lack of memory; give it more, or let fewer tasks run"
        f' at the same time, such as `spark.master = "local[{fit}]"`'
    )


def _shown(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
