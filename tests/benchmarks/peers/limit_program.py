"""Consumes a topic, and if a folder for files is given, decodes and writes: python limit_program.py settings.json"""

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

STEP = 10_000  # records at once
CHUNK = 50_000  # rows that are written at once
FILE = 500_000  # rows after which files are closed, as a sink would before it commits
REPORT = 100_000
SILENCE_S = 30.0
DAY_MS = 86_400_000


class Device(msgspec.Struct):
    fw: str
    battery: int
    rssi: int


class Event(msgspec.Struct):
    ts_ms: int
    sensor_id: str
    location: str
    temperature: float
    humidity: float
    seq: int
    status: str
    device: Device


DEVICE = pa.struct({"fw": pa.string(), "battery": pa.int32(), "rssi": pa.int32()})
SCHEMA = pa.schema(
    {
        "ts_ms": pa.timestamp("ms", "UTC"),
        "sensor_id": pa.string(),
        "location": pa.string(),
        "temperature": pa.float64(),
        "humidity": pa.float64(),
        "seq": pa.int64(),
        "status": pa.string(),
        "device": DEVICE,
    }
)


def consumer_of(settings: dict[str, Any]) -> tuple[Consumer, list[TopicPartition]]:
    """With the ends of its partitions. The topic is full, and a consumer at work answers half a second late."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings["brokers"],
            "group.id": "bench-limit",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 65_536,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 10_485_760,
        }
    )
    parts = [TopicPartition(settings["topic"], number, 0) for number in range(settings["partitions"])]
    ends = [TopicPartition(part.topic, part.partition, consumer.get_watermark_offsets(part)[1]) for part in parts]
    consumer.assign(parts)
    return consumer, ends


def messages(consumer: Consumer, count: int) -> Iterator[list[Message]]:
    found = 0
    while found < count:
        some = consumer.consume(STEP, SILENCE_S)
        if not some:
            raise TimeoutError(f"{found} of {count} records, and no more within {SILENCE_S:.0f} seconds")
        for error in filter(None, map(Message.error, some)):
            raise KafkaException(error)
        found += len(some)
        yield some


class Files:
    """One for each day, until they are full."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._writers, self._rows, self._number = folder, dict[int, pq.ParquetWriter](), 0, 0
        folder.mkdir()

    def write(self, events: list[Event]) -> None:
        rows = table_of(events)
        days = pc.divide(rows["ts_ms"].cast(pa.int64()), DAY_MS)
        for day in pc.unique(days).to_pylist():
            if day not in self._writers:
                file = self._folder / f"day-{day}-{self._number}.parquet"
                self._writers[day] = pq.ParquetWriter(file, SCHEMA, compression="zstd")
            self._writers[day].write_table(rows.filter(pc.equal(days, day)))
        self._rows += len(events)
        if self._rows >= FILE:
            self.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers, self._rows, self._number = {}, 0, self._number + 1


def table_of(events: list[Event]) -> pa.Table:
    devices = [event.device for event in events]
    device = pa.StructArray.from_arrays(
        [pa.array([getattr(each, part.name) for each in devices], part.type) for part in DEVICE], fields=[*DEVICE]
    )
    columns = [
        pa.array([getattr(event, part.name) for event in events], part.type) for part in SCHEMA if part.name != "device"
    ]
    return pa.Table.from_arrays([*columns, device], schema=SCHEMA)


def keep(file: Path, text: str) -> None:
    """At once, for the one who reads it meanwhile."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    gc.disable()  # nothing here is part of a cycle, and the collector would look at every message
    pa.set_cpu_count(1)
    consumer, ends = consumer_of(settings)
    if settings["files"]:
        files, decode, waiting = Files(Path(settings["files"])), msgspec.json.Decoder(Event).decode, list[Event]()
        for some in messages(consumer, settings["count"]):
            waiting += [decode(message.value() or b"") for message in some]
            if len(waiting) >= CHUNK:
                files.write(waiting)
                waiting = []
        if waiting:
            files.write(waiting)
        files.close()
        return
    consumed, reported, progress = 0, 0, Path(settings["consumed"])
    for some in messages(consumer, settings["count"]):
        consumed += len(some)
        if reported + REPORT <= consumed < settings["count"]:
            reported = consumed
            keep(progress, str(consumed))
    # With so many messages, and each partition at its end, each message came once.
    last = [end.offset for end in ends]
    complete = [at.offset for at in consumer.position(ends)] == last and sum(last) == consumed
    keep(progress, f"{consumed} {'complete' if complete else 'incomplete'}")


if __name__ == "__main__":
    main()
