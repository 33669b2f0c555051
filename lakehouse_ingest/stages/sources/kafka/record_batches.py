"""Turns messages of the Kafka client into Arrow columns, as fast as the client's interface allows.

A record of 185 bytes costs about one microsecond. `map` with a method of the class is twice as fast as a loop, and the
garbage collector, which looks at every new message several times, would cost half as much again.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.stages.records import HEADERS, RECORD_SCHEMA

# The times that a Python datetime and every engine can show: the years 1 to 9999, in milliseconds.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
NO_TIME = -1  # what a producer writes that has no time


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection meanwhile. Messages are not parts of cycles, so they are freed as soon as they are used."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def record_batches(messages: Sequence[Message], most_records: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The messages of one partition, in batches within the bounds. A larger record is a batch of its own."""
    sizes = list(map(len, messages))
    if len(messages) <= most_records and sum(sizes) <= most_bytes:
        yield record_batch(messages)
        return
    first, held = 0, 0
    for at, size in enumerate(sizes):
        if at > first and (at - first >= most_records or held + size > most_bytes):
            yield record_batch(messages[first:at])
            first, held = at, 0
        held += size
    yield record_batch(messages[first:])


def record_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages of one partition as a batch. Their offsets have to rise, or the client is wrong."""
    offsets = pa.array(list(map(Message.offset, messages)), pa.int64())
    if not _rise(offsets):
        raise TryAgain("the Kafka client gave the records of a partition in a wrong order; the stream starts again")
    columns = [
        offsets,
        _timestamps(list(map(Message.timestamp, messages))),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _headers(messages),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _rise(offsets: pa.Int64Array) -> bool:
    return bool(pc.all(pc.less(offsets[:-1], offsets[1:]), min_count=0).as_py())


def _timestamps(stamps: Sequence[tuple[int, int]]) -> pa.TimestampArray:
    """The times of the records. A record has none if its producer gave none, or one that is not within 9999 years."""
    times = pa.array(list(map(itemgetter(1), stamps)), pa.int64())
    absent = pc.or_(pc.less(times, FIRST_MS), pc.greater(times, LAST_MS))
    absent = pc.or_(absent, pc.equal(times, NO_TIME))
    # Brokers before 0.10 wrote records without a time, and the client shows 0.
    if TIMESTAMP_NOT_AVAILABLE in map(itemgetter(0), stamps):
        absent = pc.or_(absent, pa.array([kind == TIMESTAMP_NOT_AVAILABLE for kind, _ in stamps], pa.bool_()))
    if absent.true_count:
        times = pc.if_else(absent, None, times)
    return pc.multiply(times, 1000).cast(RECORD_SCHEMA.field("timestamp").type)


def _headers(messages: Sequence[Message]) -> pa.ListArray:
    """The headers. A record has none if the name of one is no UTF-8 text, because the client can't read it.

    The client must not be asked for them a second time: after the error it holds a list that is not complete, and
    a look at that list ends the process.
    """
    found: list[object] = []
    each = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(each)
        except (SystemError, UnicodeDecodeError):
            found.append(None)
    return pa.array(found, HEADERS) if any(found) else pa.nulls(len(found), HEADERS)
