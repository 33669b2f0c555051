"""Reads shares of Kafka topics with librdkafka, in a task.

A share ends by position, never by time: at a record at or beyond its end, at the end of the log, or as soon as the
client has passed the end, because markers of transactions, aborted records and records that compaction removed give no
message. A client that makes no progress for a while means an outage, and so does whatever it says of the log: then
nothing of the share counts, and the next start finds out what the log still holds.

Messages become Arrow columns as fast as the client's interface allows. A record of 185 bytes costs about one
microsecond. `map` with a method of the class is twice as fast as a loop, and the garbage collector, which looks at
every new message several times, would cost half as much again.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from json import loads
from operator import itemgetter
from time import monotonic
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lakehouse_ingest.errors import LakehouseError, TryAgain, fitted
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.records import HEADERS, RECORD_SCHEMA, Records, Share
from lakehouse_ingest.stages.sources.kafka import refusals
from lakehouse_ingest.stages.sources.kafka.consumers import KeptConsumer, borrowed

MOST_RECORDS, MOST_BYTES = 50_000, 32 * 1024 * 1024  # of a batch of records
STEP = 2_000  # messages that are taken from the client at once
SILENCE_S = 30.0  # after so long without progress, we take the broker to be away
LOOK_S = 0.1  # how long we wait for a message before we ask the client for its position
ASK_S = 2.0  # after so long without progress, we ask why
UNWANTED = 1_000  # messages of a share that has ended, while others of the same topic go on
# The times that a Python datetime and every engine can show: the years 1 to 9999, in milliseconds.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
NO_TIME = -1  # what a producer writes that has no time

END, TIMED_OUT = KafkaError._PARTITION_EOF, KafkaError._TIMED_OUT  # noqa: SLF001 - so they are named
UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - likewise
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - likewise
)
ABOUT_TOPICS = (*UNKNOWN, KafkaError.TOPIC_AUTHORIZATION_FAILED)  # the client may say so beside the messages
GONE = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - likewise
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001 - likewise
)
# A group is not used, so it does not matter whether we may use it, and whether it has a coordinator.
ABOUT_GROUPS = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


@dataclass(frozen=True)
class KafkaReader:
    """How a task reads a cluster. It holds secrets, which its text does not show."""

    settings: SourceSettings = field(repr=False)
    group: str
    epoch: int = 0  # of the start; each start makes its own consumers
    most_records: int = MOST_RECORDS
    most_bytes: int = MOST_BYTES
    silence_s: float = SILENCE_S

    def read(self, share: Share) -> Iterator[Records]:
        return self.read_all([share])

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        """Read the shares. Small ones of several partitions are read at the same time."""
        for group in _together(shares, self.most_records):
            with borrowed(self.settings, self.group, self.epoch, group) as kept:
                yield from Reading(self, kept, group).records()


def _together(shares: Sequence[Share], most: int) -> Iterator[list[Share]]:
    """Groups of shares of one log. No group has a partition twice, or more offsets than a batch may have."""
    group: list[Share] = []
    for share in shares:
        if share.start >= share.end:
            continue
        offsets = sum(each.end - each.start for each in [*group, share])
        same = bool(group) and (group[0].topic, group[0].log) == (share.topic, share.log)
        if group and (not same or offsets > most or share.partition in {each.partition for each in group}):
            yield group
            group = []
        group.append(share)
    if group:
        yield group


@dataclass
class OpenShare:
    """A share while it is read."""

    share: Share
    next: int  # the first offset that no message was given for yet
    has_ended: bool = False
    unwanted: int = 0
    fetched: int = -1  # how far the client has fetched, as its statistics say
    log_end: int = -1  # the end of the log, if that was reached before the end of the share
    messages: list[Message] = field(default_factory=list)


class Reading:
    """Reads shares of one log at the same time, with one consumer."""

    def __init__(self, reader: KafkaReader, kept: KeptConsumer, shares: Sequence[Share]) -> None:
        self._reader, self._kept = reader, kept
        self._consumer: Consumer = kept.consumer
        self._topic, self._log = shares[0].topic, shares[0].log
        self._parts = {share.partition: OpenShare(share, share.start) for share in shares}
        self._left = len(shares)  # shares that have not ended
        self._count = self._size = 0  # records, and bytes of their values, that wait to be given
        self._average = 1.0  # bytes of a value, by the last messages
        self._moved = self._looked = 0.0  # when something was read, and when we looked at the client
        self._is_asked = self._is_looked_at = False  # the topic, and the errors of connections

    def records(self) -> Iterator[Records]:
        self._kept.said.clear()
        self._kept.statistics.clear()
        self._consumer.assign([TopicPartition(self._topic, at, part.next) for at, part in self._parts.items()])
        while self._left:
            with without_collector():
                self._fill()
                found = list(self._given())
            yield from found
        self._remember_positions()
        self._consumer.unassign()

    # -- reading --------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read until there are enough records for a batch, or all shares have ended."""
        self._moved = self._looked = monotonic()
        while self._left and self._count < self._reader.most_records and self._size < self._reader.most_bytes:
            messages = self._consumer.consume(self._wanted(), 0)
            # Compare with None: a message without a value counts as false.
            if not messages and (message := self._consumer.poll(LOOK_S)) is not None:
                messages = [message]
            if messages:
                self._take(messages)
            if self._left and (now := monotonic()) - max(self._moved, self._looked) >= LOOK_S:
                self._looked = now
                self._look(now)

    def _wanted(self) -> int:
        """How many messages to take. Large records are taken a few at a time, so that memory stays bounded."""
        missing = sum(part.share.end - part.next for part in self._parts.values() if not part.has_ended)
        room = int((self._reader.most_bytes - self._size) / max(self._average, 1)) + 1
        return max(1, min(STEP, missing, self._reader.most_records - self._count, room))

    def _take(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            errors = [(message, error) for message in messages if (error := message.error()) is not None]
            messages = [message for message in messages if message.error() is None]
        else:
            errors = []
        for partition, run in groupby(messages, Message.partition):
            self._add(self._parts[partition or 0], list(run))
        for message, error in errors:
            self._hear(message, error)

    def _add(self, part: OpenShare, run: list[Message]) -> None:
        """Add messages of one partition, in the order of the log."""
        first, last, end = run[0].offset() or 0, run[-1].offset() or 0, part.share.end
        self._remember(part.share.partition, last + 1)
        if part.has_ended:
            self._drop(part, len(run))
            return
        if first < part.next:
            raise TryAgain(
                f"the Kafka client gave offset {first} of topic {self._topic} partition {part.share.partition} instead"
                f" of {part.next}; the stream starts again"
            )
        if last >= end:
            run = [message for message in run if (message.offset() or 0) < end]
        part.messages += run
        part.next = last + 1
        size = sum(map(len, run))
        self._count, self._size, self._average = self._count + len(run), self._size + size, size / max(1, len(run))
        self._moved = monotonic()
        if part.next >= end:
            self._end(part)

    def _drop(self, part: OpenShare, count: int) -> None:
        """The client goes on behind the end of a share. It is stopped if it fetches much while others wait."""
        before, part.unwanted = part.unwanted, part.unwanted + count
        if before < UNWANTED <= part.unwanted:
            self._consumer.incremental_unassign([TopicPartition(self._topic, part.share.partition)])

    def _hear(self, message: Message, error: KafkaError) -> None:
        part = self._parts.get(-1 if message.partition() is None else message.partition() or 0)
        if error.code() in ABOUT_GROUPS:
            return
        if error.code() != END:
            raise self._explained(error, part)
        at = message.offset() or 0
        self._remember(message.partition() or 0, at)
        if part and at >= part.share.end:
            self._end(part)
        elif part:
            # Not the end of the share: the leader may have changed, and the new one not know yet how far it may show.
            part.log_end = at

    def _end(self, part: OpenShare) -> None:
        self._left -= not part.has_ended
        part.has_ended = True

    def _given(self) -> Iterator[Records]:
        for partition, part in self._parts.items():
            messages, part.messages = part.messages, []
            if messages:
                for rows in record_batches(messages, self._reader.most_records, self._reader.most_bytes):
                    yield Records(self._topic, partition, self._log, rows)
        self._count = self._size = 0

    # -- when no messages come ------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """See whether the client gets on without giving messages. Raises if it does not."""
        self._remember_positions()
        for partition, part in self._parts.items():
            if not part.has_ended and self._kept.passed.get(partition, -1) >= part.share.end:
                self._end(part)
        if self._fetches():
            self._moved = now
        self._ask_why(now - self._moved)
        if self._left and now - self._moved > self._reader.silence_s:
            self._give_up()

    def _ask_why(self, silent_s: float) -> None:
        """Raise at once what no waiting changes. The client does not say all of it by itself."""
        said = self._kept.said
        if wrong := next((error for error in said if error.code() in ABOUT_TOPICS), None):
            raise self._explained(wrong, None)
        if silent_s >= ASK_S and not self._is_asked:
            self._is_asked = True
            with suppress(KafkaException):  # no answer, which is what we wait for
                found = self._consumer.list_topics(self._topic, ASK_S).topics.get(self._topic)
                if found and found.error and found.error.code() in ABOUT_TOPICS:
                    raise self._explained(found.error, None)
        is_down = any(error.code() == refusals.ALL_DOWN for error in said)
        if not self._is_looked_at and (is_down or (said and silent_s >= ASK_S)):
            self._is_looked_at = True
            refusal = refusals.of_connections(said, self._reader.settings)
            if refusal and not isinstance(refusal, TryAgain):
                raise refusal

    def _remember_positions(self) -> None:
        for found in self._consumer.position([TopicPartition(self._topic, at) for at in self._parts]):
            self._remember(found.partition, found.offset)

    def _remember(self, partition: int, offset: int) -> None:
        self._kept.passed[partition] = max(self._kept.passed.get(partition, -1), offset)

    def _fetches(self) -> bool:
        """Whether the client has fetched more. It may fetch for long without a message: aborted records give none."""
        if not self._kept.statistics:
            return False
        found = loads(self._kept.statistics.pop()).get("topics", {}).get(self._topic, {}).get("partitions", {})
        moved = False
        for partition, part in self._parts.items():
            at = found.get(str(partition), {}).get("next_offset", -1)
            # Another offset, not only a later one: the first statistics may still be about earlier shares.
            if not part.has_ended and at >= 0 and at != part.fetched:
                moved, part.fetched = moved or part.fetched >= 0, at
        return moved

    def _give_up(self) -> NoReturn:
        part = next(part for part in self._parts.values() if not part.has_ended)
        raise self._explained(KafkaError(TIMED_OUT), part)

    def _explained(self, error: KafkaError, part: OpenShare | None) -> LakehouseError:
        """The error that says who must act."""
        settings = self._reader.settings
        if error.code() in UNKNOWN:
            return TryAgain(
                fitted(
                    f"the topic {self._topic} is not there at {settings.brokers}; create it, or fix `streams.topics`"
                )
            )
        if part and error.code() in GONE:
            return TryAgain(
                f"topic {self._topic} partition {part.share.partition} no longer holds offset {part.next}, which is to"
                " be read next; the next start finds out what is missing"
            )
        if part and error.code() == TIMED_OUT and part.log_end >= part.next:
            return TryAgain(
                f"topic {self._topic} partition {part.share.partition} ends at offset {part.log_end} now, but was to be"
                f" read up to {part.share.end}; the next start finds out what is missing"
            )
        return (
            refusals.of_answer(error, self._topic, settings)
            or refusals.of_connections(self._kept.said, settings)
            or refusals.unanswered(self._kept.said, error, settings)
        )


# -- columns ----------------------------------------------------------------------------------------------


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
