"""Kafka topics: where they stand, who they are, and their records as a streaming frame."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.ledger import SourceIdentity
from lakehouse_ingest.records import FAULT, RECORD, Offsets
from lakehouse_ingest.settings import SourceSettings

EARLIEST, LATEST = EarliestSpec(), LatestSpec()  # type: ignore[no-untyped-call]
ASK_S = 10.0  # one question to the broker; the pipeline's back-off asks again

FAULT_TYPE = "struct<reason: string, detail: string, stage: string>"
# What Spark decides itself; to set these would be silently without effect, or break the ledger.
OURS = {
    "auto.offset.reset": "source.start",
    "enable.auto.commit": "nothing: offsets live in the tables",
    "key.deserializer": "nothing: records are read as bytes",
    "value.deserializer": "nothing: records are read as bytes",
    "isolation.level": "source.isolation",
    "bootstrap.servers": "source.brokers",
}


class Kafka:
    """The topics of one stream at one cluster."""

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        for key in settings.options:
            if key in OURS:
                raise SettingsRefused(f"the setting `source.options` can't hold {key}; use {OURS[key]}")
        self._settings = settings
        self._topics = list(topics)
        client: dict[str, Any] = {
            "bootstrap.servers": settings.brokers,
            "socket.timeout.ms": int(ASK_S * 1000),
            "log_level": 0,  # librdkafka prints to stderr; what matters comes back as an error
            "error_cb": lambda _: None,
            **settings.options,
        }
        try:
            self._admin = AdminClient(client)
        except KafkaException as refusal:
            raise SettingsRefused(
                f"the Kafka client refuses `source.options`: {refusal.args[0].str()}; so far only settings that the"
                " Java client and librdkafka spell alike can be given"
            ) from None

    def identity(self) -> SourceIdentity:
        """Cluster and topic ids. A broker before 2.8 gives no topic id: then the name alone is compared."""
        cluster = self._ask(lambda: self._admin.describe_cluster(request_timeout=ASK_S).result())
        described = self._ask(
            lambda: {
                topic: future.result()
                for topic, future in self._admin.describe_topics(
                    TopicCollection(self._topics), request_timeout=ASK_S
                ).items()
            }
        )
        ids = {topic: str(found.topic_id) if found.topic_id else "" for topic, found in described.items()}
        return SourceIdentity(cluster.cluster_id or "", ids)

    def bounds(self) -> tuple[Offsets, Offsets]:
        """Of every partition the first offset that is still there and the next one to be written."""
        return self._offsets(EARLIEST), self._offsets(LATEST)

    def ends(self) -> Offsets:
        """How far a reader of our isolation can get: not beyond a transaction that is still open."""
        return self._offsets(LATEST, getattr(IsolationLevel, self._settings.isolation.upper()))

    def _offsets(self, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Offsets:
        parts = self._partitions()
        answers = self._ask(
            lambda: {
                (asked.topic, asked.partition): future.result().offset
                for asked, future in self._admin.list_offsets(
                    dict.fromkeys(parts, spec), isolation_level=isolation, request_timeout=ASK_S
                ).items()
            }
        )
        return dict(sorted(answers.items()))

    def _partitions(self) -> list[TopicPartition]:
        cluster = self._ask(lambda: self._admin.list_topics(timeout=ASK_S))
        missing = [topic for topic in self._topics if topic not in cluster.topics or cluster.topics[topic].error]
        if missing:
            raise TryAgain(
                f"the topic {missing[0]} is not there at {self._settings.brokers}; create it or mend `topics`"
            )
        return [TopicPartition(topic, number) for topic in self._topics for number in cluster.topics[topic].partitions]

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except KafkaException as failure:
            raise self._explained(failure.args[0]) from failure

    def _explained(self, error: KafkaError) -> LakehouseError:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TryAgain(
                f"a topic of {self._topics} is not there at {self._settings.brokers}: create it or mend `topics`"
            )
        if error.code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
            return TryAgain(f"a partition of {self._topics} has no leader yet at {self._settings.brokers}")
        return TryAgain(f"no answer from the brokers at {self._settings.brokers}: {error.str()}")

    def publish(self, offsets: Offsets, group: str) -> None:
        """Group offsets for lag tools: a hint that nothing here ever reads."""
        parts = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        hint = ConsumerGroupTopicPartitions(group, parts)
        self._ask(
            lambda: [
                future.result()
                for future in self._admin.alter_consumer_group_offsets([hint], request_timeout=ASK_S).values()
            ]
        )

    def stream(self, spark: SparkSession, start: Offsets, max_records: int) -> DataFrame:
        """The records from `start` on, as the source gave them."""
        return spark.readStream.format("kafka").options(**self._options(start, max_records)).load()

    def _options(self, start: Offsets, max_records: int) -> Mapping[str, str]:
        return {
            "kafka.bootstrap.servers": self._settings.brokers,
            "kafka.isolation.level": self._settings.isolation,
            # A broker that is away is the pipeline's to wait for: it says so, where the client is silent.
            "kafka.request.timeout.ms": "10000",
            "kafka.default.api.timeout.ms": "15000",
            "fetchOffset.numRetries": "1",
            "kafkaConsumer.pollTimeoutMs": "30000",
            "subscribe": ",".join(self._topics),
            "startingOffsets": as_json(start),
            "maxOffsetsPerTrigger": str(max_records),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            **{f"kafka.{key}": value for key, value in self._settings.options.items()},
        }


def envelope(rows: DataFrame) -> DataFrame:
    """Kafka's columns as the record that travels down the street, without a fault yet."""
    fields = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return rows.select(F.struct(*fields).alias(RECORD), F.lit(None).cast(FAULT_TYPE).alias(FAULT))


def as_json(offsets: Offsets) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return json.dumps(by_topic)
