"""A Kafka broker for one machine: KRaft in one JVM, loopback only, topics made on first use.

Its folder holds everything: records, settings, log. Records survive SIGKILL of the broker, because they are in the
machine's page cache. They do not survive a power cut: for that Kafka relies on replicas, and here are none. After
SIGKILL the controller waits until the former broker's session ends: three seconds here, nine by Kafka's default.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, Note, any_free_port
from lakehouse_ingest.environment.embedded.jvm import Jvm
from lakehouse_ingest.environment.embedded.server import Server

SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=true
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
log.cleaner.dedupe.buffer.size=16777216
"""
LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


class EmbeddedBroker(Server):
    """`start` returns the bootstrap servers."""

    kind, usual_port = "broker", 9092

    def __init__(self, folder: Path, port: int | None = None, *, jars: Path | None = None) -> None:
        """Port None: the last one, else 9092 or the next free one; 0: any. `jars`: see `ensure`."""
        super().__init__(folder.absolute(), port, jars)

    def _refusal(self, holder: str) -> str:
        return f"The folder {self.folder} is already served by {holder}: use that broker with --brokers."

    def _address(self, port: int) -> str:
        return f"{LOOPBACK}:{port}"

    def _java(self, files: Sequence[Path], lock: int) -> Jvm:
        logging = self.folder / "log4j2.properties"
        logging.write_text(LOGGING.format(log=_escaped(self.log)))
        options = ("-Xmx512m", f"-Dlog4j2.configurationFile={logging.as_uri()}", *self.java_options)
        return Jvm("broker", files, options, self.folder / "java.log", lock)

    def _build(self, jvm: Jvm, note: Note) -> None:
        settings, data = self.folder / "server.properties", self.folder / "data"
        settings.write_text(self._settings(note.port, data))
        if not (data / "meta.properties").exists():
            _format(jvm, settings)
        common, server = jvm.classes.org.apache.kafka.common.utils, jvm.classes.kafka.server
        config = server.KafkaConfig.fromProps(common.Utils.loadProps(str(settings)))
        kafka = server.KafkaRaftServer(config, common.Time.SYSTEM)
        _shut_down_at_exit(jvm, kafka)
        kafka.startup()

    def _settings(self, port: int, data: Path) -> str:
        """Where a key comes twice, the last one counts."""
        return SETTINGS.format(host=LOOPBACK, port=port, controller=any_free_port(), data=_escaped(data))

    def _ask(self, note: Note) -> None:
        try:
            AdminClient({"bootstrap.servers": note.uri, "log_level": 0}).list_topics(timeout=5)
        except KafkaException as error:
            raise ConnectionError(str(error)) from error


def _escaped(path: Path) -> str:
    """For a file of Java's properties, which are read as Latin-1; their escapes are JSON's."""
    return json.dumps(str(path))[1:-1]


def _shut_down_at_exit(jvm: Jvm, kafka: Any) -> None:
    """Closes Kafka's logs properly however the JVM ends, except by SIGKILL: so the next start is quicker."""
    java = jvm.classes.java.lang
    handles = java.invoke
    shutdown = handles.MethodHandles.publicLookup().findVirtual(
        kafka.getClass(), "shutdown", handles.MethodType.methodType(java.Void.TYPE)
    )
    runnable = java.Class.forName("java.lang.Runnable")
    hook = handles.MethodHandleProxies.asInterfaceInstance(runnable, shutdown.bindTo(kafka))
    java.Runtime.getRuntime().addShutdownHook(java.Thread(hook))


def _format(jvm: Jvm, settings: Path) -> None:
    java = jvm.classes
    said = java.java.io.ByteArrayOutputStream()
    cluster = java.org.apache.kafka.common.Uuid.randomUuid().toString()
    words = jvm.array("format", "--ignore-formatted", "-t", cluster, "-c", str(settings))
    if java.kafka.tools.StorageTool.execute(words, java.java.io.PrintStream(said)) != 0:
        raise OSError(f"its folder could not be formatted: {said.toString()}")
