"""Made-up sensor events at a steady rate. One in two hundred is broken, in a way whose reason is known beforehand."""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Event, Thread
from time import monotonic, time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Reason

PARTITIONS = 3
BROKEN_EVERY = 200
DAYS_BACK = 3
LATE = 0.4  # this part of the events comes late, by up to so many days
HALLS = {"paint shop": 27.5, "press shop": 24.0, "assembly": 21.0, "cold store": 4.5}  # and their usual temperature
ASK_S = 15.0

Fields = Mapping[str, Any]


def event(number: int, now: float) -> dict[str, Any]:
    chance = random.Random(number)  # noqa: S311 - a made-up sensor is no secret
    sensor = chance.randrange(40)
    hall = list(HALLS)[sensor % len(HALLS)]
    late = chance.random() * DAYS_BACK * 86_400 if chance.random() < LATE else 0.0
    return {
        "sensor": f"sensor-{sensor:02}",
        "ts_ms": int((now - late) * 1000),
        "temperature": round(chance.gauss(HALLS[hall], 1.5), 2),
        "humidity": round(chance.uniform(30, 70), 1),
        "location": hall,
        "battery": chance.randint(5, 100),
        "ok": chance.random() < 0.98,  # noqa: PLR2004 - how often a sensor is well
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _without(fields: Fields, name: str) -> bytes:
    return _json({key: value for key, value in fields.items() if key != name})


BROKEN: tuple[tuple[Reason, Callable[[Fields], bytes | None]], ...] = (
    (Reason.BROKEN, lambda fields: _json(fields)[:-9]),
    (Reason.EMPTY, lambda _: b""),
    (Reason.NOT_OBJECT, lambda fields: _json([fields])),
    (Reason.WRONG_TYPE, lambda fields: _json({**fields, "temperature": "warm"})),
    (Reason.OUT_OF_RANGE, lambda fields: _json({**fields, "battery": 300})),
    (Reason.MISSING, lambda fields: _without(fields, "sensor")),
    (Reason.EVENT_TIME, lambda fields: _json({**fields, "ts_ms": fields["ts_ms"] * 10**6})),  # that is ns
    (
        Reason.NOT_TEXT,
        lambda fields: json.dumps({**fields, "location": "K\u00fchlhaus"}, ensure_ascii=False).encode("latin-1"),
    ),
    (Reason.BROKEN, lambda fields: _json(fields) + _json(fields)),
    (Reason.EMPTY, lambda _: None),
    (Reason.NOT_OBJECT, lambda fields: _json(fields["temperature"])),
    (Reason.EVENT_TIME, lambda fields: _without(fields, "ts_ms")),
)


def create_topic(brokers: str, topic: str) -> None:
    """Kept for ever: what a run that was broken off left there is for the next one to land."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"})
    try:
        admin.create_topics([new], operation_timeout=ASK_S)[topic].result(ASK_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TryAgain(f"the topic {topic} could not be made: {failure.args[0].str()}") from failure


class Sensors:
    """Produces in a thread from `start` to `stop`, or for so many seconds."""

    def __init__(self, brokers: str, topic: str, rate: float, seconds: float = float("inf")) -> None:
        self.acknowledged = 0
        self.broken: Counter[str] = Counter()  # acknowledged as well, once stopped
        self._refused: list[str] = []
        self._topic, self._rate, self._seconds = topic, rate, seconds
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
        self._thread = Thread(target=self._produce, name="sensors", daemon=True)

    def start(self) -> "Sensors":
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
        began, sent = monotonic(), 0
        first = int(time() * 1000)  # other events in every run
        while not self._end.is_set() and (elapsed := monotonic() - began) < self._seconds:
            while sent < int(elapsed * self._rate):
                self._send(sent, first + sent)
                sent += 1
            self._producer.poll(0)
            self._end.wait(0.02)
        if self._producer.flush(ASK_S):
            self._refused.append(f"some were not acknowledged within {ASK_S:.0f} s")

    def _send(self, number: int, seed: int) -> None:
        fields = event(seed, time())
        value: bytes | None = _json(fields)
        # From the first hundred on, so that the shortest run has some.
        if number % BROKEN_EVERY == BROKEN_EVERY // 2:
            reason, spoil = BROKEN[number // BROKEN_EVERY % len(BROKEN)]
            value = spoil(fields)
            self.broken[str(reason)] += 1
        self._producer.produce(self._topic, key=fields["sensor"].encode(), value=value, on_delivery=self._answered)

    def _answered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._refused.append(error.str())
