"""Produces events at a steady rate, and notes when.

python -m tests.benchmarks.feeder BROKERS TOPIC FIRST RATE SECONDS FILE

A process of its own, so that nothing delays it but the machine. Event `number` goes to partition `number` modulo the
number of partitions, as everywhere in the bench. The file gets, as JSON, the time of each tick in seconds since 1970;
tick t has the events from FIRST + t * RATE / A_SECOND on.
"""

import json
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks.systems import event
from tests.benchmarks.topics import PARTITIONS

A_SECOND = 100  # ticks
PATIENCE = 30.0


def feed(brokers: str, topic: str, first: int, rate: int, seconds: int) -> list[float]:
    producer = Producer(
        {"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}
    )
    refused: list[KafkaError] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    number, each, count = first, rate // A_SECOND, first + rate * seconds
    times: list[float] = []
    began = time.monotonic()
    for tick in range(seconds * A_SECOND):
        producer.poll(max(0.0, began + tick / A_SECOND - time.monotonic()))
        while (early := began + tick / A_SECOND - time.monotonic()) > 0:
            time.sleep(early)
        times.append(time.time())
        for _ in range(each):
            key, value = event(number, count)
            producer.produce(topic, value, key, number % PARTITIONS, on_delivery=answered)
            number += 1
    left = producer.flush(PATIENCE)
    if refused or left:
        raise RuntimeError(f"{left} events were not acknowledged, {len(refused)} refused: {refused[:1]}")
    return times


if __name__ == "__main__":
    brokers, topic, first, rate, seconds, file = sys.argv[1:]
    Path(file).write_text(json.dumps(feed(brokers, topic, int(first), int(rate), int(seconds))), encoding="utf-8")
