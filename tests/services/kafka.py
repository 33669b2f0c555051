"""What tests do with a broker: make a topic, fill it fast, read it back."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from lakehouse_ingest.stages.sources.kafka.source import LATEST
from tests.services.pipelines import until

PATIENCE = 30.0


def create_topic(broker: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Returns once every partition has a leader, which on a busy machine takes longer than to make the topic.

    Records stay however old they say they are: by itself a broker would remove those of a week ago.
    """
    admin = AdminClient({"bootstrap.servers": broker})
    config = {"retention.ms": "-1", **(config or {})}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    assert until(lambda: _is_made(admin, topic), PATIENCE), f"{name} was not made"
    parts = [TopicPartition(name, number) for number in range(partitions)]
    assert until(lambda: _are_led(admin, parts), PATIENCE), f"{name} has no leader"


def _is_made(admin: AdminClient, topic: NewTopic) -> bool:
    try:
        admin.create_topics([topic], operation_timeout=PATIENCE)[topic.topic].result(PATIENCE)
    except KafkaException as refused:
        # A broker that was held up for three seconds counts as gone until it is heard again: there is none to lead.
        if refused.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def _are_led(admin: AdminClient, parts: Sequence[TopicPartition]) -> bool:
    """Whatever is said of one that has none yet, or one that has not heard of itself."""
    answers = admin.list_offsets(dict.fromkeys(parts, LATEST), request_timeout=PATIENCE)
    failures = [answer.exception(PATIENCE) for answer in answers.values()]
    return not any(failures)


def delete_topic(broker: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.delete_topics([name], operation_timeout=PATIENCE)[name].result(PATIENCE)


def produce(broker: str, topic: str, records: Iterable[tuple[Any, ...]], config: dict[str, Any] | None = None) -> int:
    """Each record is (key, value), then if wanted headers, timestamp in ms, partition.

    Returns how many were acknowledged; a refusal raises. Without a partition the key decides, as in Java.
    """
    settings = {
        "bootstrap.servers": broker,
        "enable.idempotence": True,
        "linger.ms": 5,
        "compression.type": "lz4",
        "log_level": 2,  # a coordinator that is still loading is waited for, not reported
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
        **(config or {}),
    }
    acknowledged, refused = 0, []

    def answered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            refused.append(error)

    producer = Producer(settings)
    for key, value, *rest in records:
        headers, timestamp, partition = [*rest, None, None, None][:3]
        record = {
            "key": key,
            "value": value,
            "headers": headers,
            "timestamp": timestamp,
            "partition": partition,
        }
        given = {name: part for name, part in record.items() if part is not None}
        while True:
            try:
                producer.produce(topic, on_delivery=answered, **given)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(PATIENCE)
    if refused:
        raise KafkaException(refused[0])
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {PATIENCE:.0f} seconds")
    return acknowledged


@contextmanager
def open_transaction(broker: str, topic: str, records: Iterable[tuple[Any, ...]]) -> Iterator[Producer]:
    """One that holds these records, which are in the log; what is neither committed nor aborted is aborted."""
    identity = f"tests-{uuid4()}"
    transactional = Producer({"bootstrap.servers": broker, "transactional.id": identity, "log_level": 2})
    transactional.init_transactions(PATIENCE)
    transactional.begin_transaction()
    for _, value, _, timestamp, partition in records:
        transactional.produce(topic, value=value, timestamp=timestamp or 0, partition=partition)
    assert transactional.flush(PATIENCE) == 0
    try:
        yield transactional
    finally:
        with suppress(KafkaException):  # it has ended
            transactional.abort_transaction(PATIENCE)


def consume(broker: str, topic: str, count: int) -> list[Message]:
    """The first `count` records of a topic, over all partitions; fails if they don't come."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"tests-{uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[Message] = []
        while len(found) < count:
            more = consumer.consume(count - len(found), timeout=PATIENCE)
            if not more:
                raise TimeoutError(f"{len(found)} of {count} records of {topic} within {PATIENCE:.0f} seconds")
            for message in more:
                if message.error():
                    raise KafkaException(message.error())
            found += more
        return found
    finally:
        consumer.close()


@contextmanager
def cleaning_at_once(broker: str) -> Iterator[None]:
    """The broker's cleaner looks every 0.1 s, not every 15."""
    admin = AdminClient({"bootstrap.servers": broker})

    (broker_id,) = admin.list_topics(timeout=PATIENCE).brokers

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        (done,) = admin.incremental_alter_configs(
            [ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])]
        ).values()
        done.result(PATIENCE)

    alter(AlterConfigOpType.SET)
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE)
