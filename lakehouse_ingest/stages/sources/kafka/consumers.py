"""Consumers that a worker process keeps from share to share. To make one costs a connection to each broker.

A consumer belongs to one start of a stream and to one log of one topic: librdkafka ignores what brokers say of a
recreated topic, because its leaders have lower epochs than those of the old one. A consumer is dropped after any error.
It is not used for a share whose end it has passed before: it shows its old position until the new assignment is in
force, and that position would end the share before it was read.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.records import Share
from lakehouse_ingest.stages.sources.kafka import refusals
from lakehouse_ingest.stages.sources.kafka.clients import for_librdkafka

KEPT = 4  # by one process; each has some threads and connections
ERRORS_KEPT = 50
SMALLEST_REQUEST, LARGEST_REQUEST = (
    1_000,
    1_000_000,
)  # bytes: what librdkafka takes for `message.max.bytes`, its default
# Before the user's options, which may change them.
TUNED: dict[str, Any] = {
    "check.crcs": True,  # as Java's client does
    "fetch.wait.max.ms": 20,  # an answer that the broker holds back delays the next share
    "fetch.queue.backoff.ms": 5,  # librdkafka's default of a second would stop each share for a second
    "queued.min.messages": 10_000,  # what is fetched beyond the end of a share is thrown away
    "queued.max.messages.kbytes": 32_768,
    "max.partition.fetch.bytes": 1_048_576,
    "topic.metadata.propagation.max.ms": 5_000,  # how long a topic may be unknown before that is an error
}
# After the user's options: rules that keep reading exact.
FIXED: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # never read at another offset than the one we ask for
    "allow.auto.create.topics": False,  # don't create a topic again that somebody has deleted
    "enable.partition.eof": True,
    "statistics.interval.ms": 5_000,
    "log_level": 0,  # librdkafka prints to stderr; what matters comes back as an error
}


@dataclass
class KeptConsumer:
    """One consumer, and what it has said and done."""

    consumer: Consumer
    log: str
    epoch: int
    said: deque[KafkaError]  # errors of connections; a request that times out does not say why
    statistics: deque[str]  # the newest text, if any
    passed: dict[int, int] = field(default_factory=dict)  # for each partition, the highest position that it had

    def fits(self, shares: Sequence[Share], epoch: int) -> bool:
        ahead = all(self.passed.get(share.partition, -1) < share.end for share in shares)
        return ahead and (self.log, self.epoch) == (shares[0].log, epoch)


Key = tuple[str, str]  # digest of the client's options, and topic
_kept: OrderedDict[Key, KeptConsumer] = OrderedDict()
_before_the_fork: list[object] = []  # never used and never freed: their threads are in the parent process
_process = os.getpid()
_lock = Lock()


@contextmanager
def borrowed(settings: SourceSettings, group: str, epoch: int, shares: Sequence[Share]) -> Iterator[KeptConsumer]:
    """A consumer for shares of one topic. It is kept for others if all goes well."""
    client = _client(settings, group)
    key = (sha256(repr(sorted(client.items())).encode()).hexdigest(), shares[0].topic)
    _drop_older(key[0], epoch)
    kept = _taken(key)
    if kept and not kept.fits(shares, epoch):
        let_go(kept.consumer)
        kept = None
    kept = kept or _made(client, settings, shares[0].log, epoch)
    try:
        yield kept
    except BaseException:  # also if the reader is abandoned
        let_go(kept.consumer)
        raise
    _put_back(key, kept)


def let_go_all() -> None:
    """Close all consumers that nobody uses."""
    with _lock:
        found = list(_kept.values())
        _kept.clear()
    for kept in found:
        let_go(kept.consumer)


def _client(settings: SourceSettings, group: str) -> dict[str, Any]:
    options = for_librdkafka(settings)
    return {
        **TUNED,
        **options,
        **_small_answers(options.get("fetch.max.bytes", "")),
        **FIXED,
        "isolation.level": settings.isolation,
        "group.id": group,  # the client demands one; no group is joined, and no offset is committed
    }


def _small_answers(size: str) -> dict[str, Any]:
    """librdkafka refuses answers that are smaller than its own requests may be. Java's client takes any size."""
    if not size.isdigit() or int(size) >= LARGEST_REQUEST:
        return {}
    return dict.fromkeys(("fetch.max.bytes", "message.max.bytes"), max(SMALLEST_REQUEST, int(size)))


def _made(client: dict[str, Any], settings: SourceSettings, log: str, epoch: int) -> KeptConsumer:
    said, statistics = deque[KafkaError](maxlen=ERRORS_KEPT), deque[str](maxlen=1)
    try:
        consumer = Consumer({**client, "error_cb": said.append, "stats_cb": statistics.append})
    except KafkaException as refusal:
        why = refusal.args[0].str()
        raise refusals.of_text(why, settings) or SettingsRefused(
            f"the Kafka client refuses the settings under `source`: {why}"
        ) from None
    return KeptConsumer(consumer, log, epoch, said, statistics)


def _taken(key: Key) -> KeptConsumer | None:
    global _process  # noqa: PLW0603 - the consumers belong to the process that made them
    with _lock:
        if os.getpid() != _process:
            _before_the_fork.extend(_kept.values())
            _kept.clear()
            _process = os.getpid()
        return _kept.pop(key, None)


def _drop_older(digest: str, epoch: int) -> None:
    """Close the consumers of earlier starts, which nobody asks for again."""
    with _lock:
        older = [key for key, kept in _kept.items() if key[0] == digest and kept.epoch < epoch]
        found = [_kept.pop(key) for key in older] if os.getpid() == _process else []
    for kept in found:
        let_go(kept.consumer)


def _put_back(key: Key, kept: KeptConsumer) -> None:
    with _lock:
        others = [_kept.pop(key)] if key in _kept else []
        _kept[key] = kept
        others += [_kept.popitem(last=False)[1] for _ in range(len(_kept) - KEPT)]
    for other in others:
        let_go(other.consumer)


def let_go(consumer: Consumer) -> None:
    """Close it in a thread, because closing may wait for brokers that are away."""
    Thread(target=consumer.close, daemon=True).start()
