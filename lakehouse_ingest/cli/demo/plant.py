"""The producer: events at a steady rate, and a field that appears in the midst of them."""

from collections.abc import Callable, Sequence
from threading import Event, Thread
from time import monotonic, time

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakehouse_ingest.cli.demo.events import HEARTBEAT, Made, as_json, broken, event
from lakehouse_ingest.errors import TryAgain

PARTITIONS = 3
ASK_S, ASK_AGAIN_S = 15.0, 0.5


def create_topic(brokers: str, topic: str) -> None:
    """Kept for ever: what a run that was broken off left there is for the next one to land."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new], operation_timeout=ASK_S)[topic].result(ASK_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TryAgain(f"the topic {topic} could not be created: {failure.args[0].str()}") from failure


class Plant:
    """Produces in a thread from `start` to `stop`, or for so many seconds.

    Alarms have the fields `later` from the first on, and `new` from the middle of the time on, but not before it is
    `ready`; for that, and for events with the new field to come, it may take longer than those seconds.
    """

    def __init__(
        self,
        brokers: str,
        topic: str,
        rate: float,
        first: int,
        later: Sequence[str] = (),
        *,
        seconds: float = float("inf"),
        new: str | None = None,
        ready: Callable[[], bool] = lambda: True,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.made = Made(first, column=new)
        self._refused: list[str] = []
        self._topic, self._rate, self._seconds = topic, rate, seconds
        self.later = tuple(later)
        self._new, self._ready, self._tell = new, ready, tell
        self._end = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.timeout.ms": int(ASK_S * 1000),
                "log_level": 0,
            }
        )
        self._thread = Thread(target=self._produce, name="plant", daemon=True)

    def start(self) -> "Plant":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Twice is once; returns when all that was sent is acknowledged."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def running(self) -> bool:
        """Raises when the broker refused something."""
        if self._refused:
            raise TryAgain(f"the demo's broker refused an event: {self._refused[0]}")
        return self._thread.is_alive()

    def _produce(self) -> None:
        made, began, sent = self.made, monotonic(), 0
        until, asks = self._seconds, self._seconds / 2
        while not self._end.is_set() and ((elapsed := monotonic() - began) < until or self._new):
            if self._new and elapsed >= asks:
                asks = elapsed + ASK_AGAIN_S
                if self._ready():
                    self._tell(f"alarms have a new field from event {made.first + sent:,} on: {self._new}")
                    self.later, self._new = (*self.later, self._new), None
                    until = max(until, elapsed + self._seconds / 4)
            while sent < int(elapsed * self._rate):
                self._send(made.first + sent)
                sent += 1
            self._producer.poll(0)
            self._end.wait(0.02)
        if self._producer.flush(ASK_S):
            self._refused.append(f"some were not acknowledged within {ASK_S:.0f} s")

    def _send(self, number: int) -> None:
        made, spoilt = self.made, broken(number)
        fields = event(number, time(), spoilt[1] if spoilt else None, self.later)
        value: bytes | None = as_json(fields)
        answered: Callable[[KafkaError | None, Message], None] = self._answered
        if spoilt:
            reason, _, spoil = spoilt
            made.broken[str(reason)] += 1
            value = spoil(fields)
        elif fields["type"] == HEARTBEAT:
            answered = self._heard
        else:
            made.sound[fields["type"]] += 1
            if made.column in fields:
                made.since = number if made.since is None else made.since
                made.having += 1
        self._producer.produce(self._topic, key=fields["station"].encode(), value=value, on_delivery=answered)

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        if error is None and (at := message.partition()) is not None:
            self.made.filtered[at] += 1
        self._answered(error, message)

    def _answered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.made.acknowledged += 1
        else:
            self._refused.append(error.str())
