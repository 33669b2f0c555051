"""Events for a topic with known fates: sound ones, broken ones, and those of aborted transactions."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count, islice
from threading import Event, Lock, Thread

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.services.kafka import PATIENCE, produce
from tests.services.readers import Coordinates

BROKEN_EVERY = 250  # four per mille
TICK = 0.05
SHARE = 1 / 150  # of what is left, each second
IN_TRANSACTION = 40
TRANSACTION_EVERY = 3.0


def value(number: int) -> bytes:
    if number % BROKEN_EVERY == BROKEN_EVERY // 2:
        return b'{"n": ' + str(number).encode()
    return json.dumps({"n": number, "text": f"event {number}"}).encode()


def fill(broker: str, topic: str, events: int, partitions: int = 1) -> int:
    """So many events at once, evenly over the partitions."""
    return produce(broker, topic, ((None, value(number), None, None, number % partitions) for number in range(events)))


class Feeder:
    """Produces all the time in a thread of its own, until `finish` sends what is left at full speed.

    Each second it sends the same share of what is left: so it never runs dry, however slow the machine is. With a
    `rate` it sends so many a second until then, and `finish` sends no more.

    `landing` is what has to be found in the end: the coordinates of all that was acknowledged, `digests` the sha256 of
    each value. Every few seconds a transaction is committed, and the next one aborted; what is aborted must not be
    found, and is not counted.
    """

    def __init__(
        self,
        broker: str,
        topic: str,
        partitions: int,
        total: int | None,
        made: Callable[[int], bytes] = value,
        rate: float = 0.0,
        *,
        transactions: bool = True,
    ) -> None:
        self.landing: Coordinates = Counter()
        self.digests: dict[tuple[str, int, int], bytes] = {}
        self.aborted = 0
        self._topic, self._partitions, self._total, self._made, self._rate = topic, partitions, total, made, rate
        self._numbers = iter(range(total)) if total is not None else count()
        self._sent, self._failed, self._lock = 0, list[object](), Lock()
        self._hurry = Event()
        self._transactions = transactions  # none of them outlives a broker that is killed
        common = {"bootstrap.servers": broker, "linger.ms": 5, "log_level": 2}
        self._plain = Producer({**common, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000})
        if transactions:
            self._transactional = Producer({**common, "transactional.id": f"feeder-{topic}"})
            self._transactional.init_transactions(PATIENCE)
        self._thread = Thread(target=self._feed, name="feeder", daemon=True)

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def producing(self) -> bool:
        return self._thread.is_alive() and (self._total is None or self._sent < self._total)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Returns when all of it is acknowledged."""
        self._hurry.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the feeder did not come to an end"
        assert not self._failed, self._failed[:3]
        assert len(self.landing) == sum(self.landing.values()) == self._sent

    def _feed(self) -> None:
        try:
            began, transactions = time.monotonic(), 0
            while not self._hurry.wait(TICK):
                elapsed = time.monotonic() - began
                self._send(self._plain, self._take(self._due(elapsed) - self._sent), self._acknowledged)
                if self._transactions and elapsed > TRANSACTION_EVERY * transactions:
                    transactions += 1
                    self._transaction(commit=transactions % 2 == 1)
            if self._total is not None:
                self._send(self._plain, self._numbers, self._acknowledged)
                self._sent = self._total
            if left := self._plain.flush(PATIENCE):
                self._failed.append(f"{left} were not acknowledged")
        except (KafkaException, BufferError) as failure:
            self._failed.append(failure)

    def _due(self, elapsed: float) -> int:
        if self._total is None:
            return int(self._rate * elapsed)
        return int(self._total * (1 - math.exp(-SHARE * elapsed)))

    def _take(self, many: int) -> Iterator[int]:
        for number in islice(self._numbers, max(0, many)):
            self._sent += 1
            yield number

    def _transaction(self, *, commit: bool) -> None:
        self._transactional.begin_transaction()
        if commit:
            self._send(self._transactional, self._take(IN_TRANSACTION), self._acknowledged)
            self._transactional.commit_transaction(PATIENCE)
            return
        self._send(self._transactional, iter(range(IN_TRANSACTION)), self._will_be_aborted, value)
        self._transactional.flush(PATIENCE)  # they reach the log, or nothing would have to be skipped
        self._transactional.abort_transaction(PATIENCE)

    def _send(
        self, producer: Producer, numbers: Iterator[int], answered: object, made: Callable[[int], bytes] | None = None
    ) -> None:
        for number in numbers:
            at = number % self._partitions
            while True:
                try:
                    producer.produce(self._topic, (made or self._made)(number), partition=at, on_delivery=answered)  # type: ignore[arg-type]
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        at = (self._topic, message.partition() or 0, message.offset() or 0)
        self.landing[at] += 1
        self.digests[at] = sha256(message.value() or b"").digest()

    def _will_be_aborted(self, error: KafkaError | None, _message: Message) -> None:
        self.aborted += error is None
