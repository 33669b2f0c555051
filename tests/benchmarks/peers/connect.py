"""Iceberg Kafka Connect 1.12 in a standalone worker: the sink that Iceberg itself comes with."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from uuid import uuid4

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from lakehouse_ingest.environment.java import find_java
from tests.benchmarks.peers import jars
from tests.benchmarks.peers.alone import run_alone
from tests.benchmarks.peers.program import Program
from tests.benchmarks.peers.targets import IcebergTable
from tests.benchmarks.systems import TIME, Surroundings
from tests.services.kafka import create_topic

TABLE = "connect"
MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
# What the worker logs when a task has failed: by itself it would go on without the task.
FATAL = "Task is being killed and will not recover"
LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class KafkaConnect:
    name = "Iceberg Kafka Connect 1.12"
    kind: Literal["peer"] = "peer"

    def prepare(self) -> None:
        jars.fetched("connect")

    def start(self, here: Surroundings, count: int) -> Program:
        name = f"bench-{uuid4().hex[:8]}"  # of its consumer group, which must not know offsets of an earlier run
        # Made beforehand with one partition: the connector would have to wait for a topic that the broker makes.
        create_topic(here.brokers, f"{name}-control")
        worker, sink, logging = (here.folder / f"{file}.properties" for file in ("worker", "sink", "log4j2"))
        worker.write_text(properties(worker_settings(here)))
        sink.write_text(properties(sink_settings(here, name)))
        logging.write_text(LOGGING)
        path = os.pathsep.join(map(str, jars.fetched("connect")))
        options = ("-Xmx2g", "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={logging.as_uri()}")
        program: list[str | Path] = [find_java(), *options, "-cp", path, MAIN, worker, sink]
        return Program(program, here, IcebergTable(here, TABLE), count, fatal=FATAL)


def worker_settings(here: Surroundings) -> Mapping[str, str]:
    return {
        "bootstrap.servers": here.brokers,
        "listeners": f"http://{LOOPBACK}:{any_free_port()}",
        "plugin.discovery": "hybrid_warn",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "consumer.max.poll.records": "5000",  # the default of 500 costs it more
        "consumer.auto.offset.reset": "earliest",
        # So long a task waits for records of an idle topic, deaf to the commit that is due. The default is a minute.
        "offset.flush.interval.ms": "1000",
        "offset.storage.file.filename": str(here.folder / "offsets"),
    }


def sink_settings(here: Surroundings, name: str) -> Mapping[str, str]:
    return {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",  # one for each core
        "topics": here.topic,
        "transforms": "time",
        "transforms.time.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
        "transforms.time.field": TIME,
        "transforms.time.target.type": "Timestamp",
        "iceberg.tables": f"{here.namespace}.{TABLE}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.default-partition-by": f"day({TIME})",
        "iceberg.tables.auto-create-props.write.parquet.compression-codec": "zstd",
        "iceberg.control.topic": f"{name}-control",
        "iceberg.control.commit.interval-ms": "10000",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": here.catalog_uri,
        "iceberg.catalog.token": here.token,
        "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }


def properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def main() -> None:
    run_alone(KafkaConnect())


if __name__ == "__main__":
    main()
