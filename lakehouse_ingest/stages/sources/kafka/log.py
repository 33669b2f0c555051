"""A Kafka topic, read again at chosen offsets."""

from collections.abc import Iterator
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.records import TopicPartition as At
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.sources.kafka import refusals
from lakehouse_ingest.stages.sources.kafka.clients import for_librdkafka

SILENCE_S = 10.0  # after so long without an answer, we take the broker to be away
LOOK_S = 0.5
NEAR = 5_000  # reading over so many offsets is faster than a jump


class KafkaLog:
    """One consumer, assigned to the partition to look at. It joins no group and commits nothing."""

    def __init__(self, settings: SourceSettings, group: str) -> None:
        self._settings = settings
        self._said: list[KafkaError] = []
        client: dict[str, Any] = {
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 0,
            **for_librdkafka(settings),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # never read at another offset than the one we ask for
            "isolation.level": settings.isolation,
            "error_cb": self._said.append,
        }
        self._consumer = Consumer(client)
        self._at: At | None = None
        self._asked = -1  # the last offset that a caller asked for
        self._ahead: int | None = None  # the offset of a record that was read, but not yet returned
        self._next = 0  # the next offset that the consumer reads
        self._end: int | None = None  # the end of the log, as soon as we have reached it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def between(self, at: At, first: int, last: int) -> Iterator[int]:
        if at != self._at or not self._asked < first <= self._next + NEAR:
            self._jump(at, first)
        self._asked = last
        while True:
            if self._ahead is None and self._next <= last and self._next != self._end:
                self._read()
            elif self._ahead is not None and self._ahead <= last:
                offset, self._ahead = self._ahead, None
                if offset >= first:
                    yield offset
            else:
                return

    def _jump(self, at: At, offset: int) -> None:
        self._consumer.assign([TopicPartition(*at, offset)])
        self._at, self._next, self._end, self._ahead = at, offset, None, None

    def _read(self) -> None:
        """Read one more record, or find the end of the log."""
        waited = 0.0
        while waited < SILENCE_S:
            message = self._consumer.poll(LOOK_S)
            if message is None:
                waited += LOOK_S
                continue
            if (message.topic(), message.partition()) != self._at:
                continue  # left over from the previous assignment
            offset = message.offset() or 0
            if (error := message.error()) is None:
                self._ahead, self._next = offset, offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so it is named
                self._next = self._end = offset
            else:
                raise self._explained(error)
            return
        raise self._explained(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - likewise

    def _explained(self, error: KafkaError) -> LakehouseError:
        topic = self._at[0] if self._at else ""
        return (
            refusals.of_answer(error, topic, self._settings)
            or refusals.of_connections(self._said, self._settings)
            or refusals.unanswered(self._said, error, self._settings)
        )
