"""Writes a record whose header has a name that is no text. Kafka allows that, but no client in Python writes it."""

from ctypes import CDLL, c_int32, c_size_t, c_ssize_t, c_void_p, create_string_buffer
from pathlib import Path

import confluent_kafka

TOPIC, PARTITION, VALUE, FLAGS, HEADER, END = 1, 3, 4, 7, 9, 0  # what an argument of `rd_kafka_producev` is
COPY = 2
PRODUCER = 0
PATIENCE_MS = 30_000


def produce_with_header(brokers: str, topic: str, value: bytes, name: bytes) -> None:
    """One record in partition 0, written with librdkafka itself."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (file,) = folder.glob("librdkafka*")
    library = CDLL(str(file))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = c_void_p
    said = create_string_buffer(500)
    settings = c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", brokers.encode(), said, c_size_t(500))
    producer = c_void_p(library.rd_kafka_new(PRODUCER, settings, said, c_size_t(500)))
    assert producer.value, said.value
    record = (TOPIC, topic.encode(), PARTITION, c_int32(0), VALUE, value, c_size_t(len(value)), FLAGS, COPY)
    header = (HEADER, name, b"x", c_ssize_t(1))
    assert library.rd_kafka_producev(producer, *record, *header, END) == 0
    assert library.rd_kafka_flush(producer, PATIENCE_MS) == 0
    library.rd_kafka_destroy(producer)
