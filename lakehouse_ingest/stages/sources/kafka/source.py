"""Kafka topics: their offsets, their ids, and how tasks read their records."""

import datetime as dt
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, TypeVar
from weakref import finalize

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TryAgain
from lakehouse_ingest.printable import many
from lakehouse_ingest.records import Offsets, SourceIdentity
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.sources.kafka import refusals
from lakehouse_ingest.stages.sources.kafka.clients import for_librdkafka
from lakehouse_ingest.stages.sources.kafka.log import KafkaLog
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader

Answer = TypeVar("Answer")

EARLIEST, LATEST = EarliestSpec(), LatestSpec()  # type: ignore[no-untyped-call]
ASK_S = 10.0  # limit of one request to the brokers; the pipeline's back-off repeats it
LOOK_S = 0.1  # how often we look at the errors of connections while we wait for an answer
# How long a commit of group offsets waits for the group's coordinator. librdkafka's default is 45 s. Freeing the
# client meanwhile takes as long, and keeps a core of the processor busy for nothing.
COORDINATOR_MS = 6_000
NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
NO_TOPIC = "?"  # no topic can have this name, so the answer is about the cluster alone, and no topic is created
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the topic id that old brokers give to every topic
SHOWN = 12  # how many partitions a sentence lists
NONE_LATER = -1  # a broker's answer if no record is as late as the given time

# Clients of sources that are garbage. An error refers to its source, and the source to the error, so only Python's
# garbage collector frees them. It may run in the client's own thread, for an answer that came too late. If a client
# were destroyed there, librdkafka would end the whole process. So the next source destroys it, in a thread of ours.
_retired: deque[AdminClient] = deque()


class Kafka:
    """The topics of one stream at one cluster."""

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        self._settings = settings
        self._topics = list(topics)
        self._said: list[KafkaError] = []  # errors of connections; a request that times out does not say why
        self._is_new = True
        self._hinting: Consumer | None = None
        self._committed: list[KafkaError | None] = []
        client: dict[str, Any] = {
            "socket.timeout.ms": int(ASK_S * 1000),
            "log_level": 0,  # librdkafka prints to stderr; what matters comes back as an error
            "error_cb": self._said.append,
            **for_librdkafka(settings),
        }
        _retired.clear()
        try:
            self._admin = AdminClient(client)
        except KafkaException as refusal:
            said = refusal.args[0].str()
            raise refusals.of_text(said, settings) or SettingsRefused(
                f"the Kafka client refuses the settings under `source`: {said}"
            ) from None
        finalize(self, _retired.append, self._admin)

    def identity(self) -> SourceIdentity:
        """The ids of the cluster and the topics. Brokers before 2.8 have no topic ids; then only names are compared."""
        described = self._ask(lambda: self._admin.describe_topics(TopicCollection(self._topics), request_timeout=ASK_S))
        ids = {topic: "" if str(found.topic_id) == NO_ID else str(found.topic_id) for topic, found in described.items()}
        return SourceIdentity(self._metadata(NO_TOPIC).cluster_id or "", ids)

    def matching(self, pattern: str) -> list[str]:
        """The topics whose whole names match the pattern, without the brokers' own topics."""
        return sorted(topic for topic in self._listed() if re.fullmatch(pattern, topic) and not topic.startswith("__"))

    def bounds(self) -> tuple[Offsets, Offsets]:
        """For each partition, the first offset that is still there, and the next one to be written."""
        parts = self._partitions()  # listed once, because a partition may be added between the two requests
        return self._offsets(EARLIEST, parts), self._offsets(LATEST, parts)

    def ends(self) -> Offsets:
        """How far a reader with our isolation gets. With `read_committed` that is the last stable offset."""
        return self._offsets(LATEST, isolation=getattr(IsolationLevel, self._settings.isolation.upper()))

    def since(self, moment: dt.datetime) -> Offsets:
        """For each partition, the offset of its first record at or after that time, without those that have none."""
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        return {at: offset for at, offset in self._offsets(spec).items() if offset != NONE_LATER}

    def _offsets(
        self,
        spec: OffsetSpec,
        parts: Sequence[TopicPartition] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Offsets:
        parts = self._partitions() if parts is None else parts
        answers = self._ask(
            lambda: self._admin.list_offsets(
                dict.fromkeys(parts, spec), isolation_level=isolation, request_timeout=ASK_S
            )
        )
        return dict(sorted(((asked.topic, asked.partition), found.offset) for asked, found in answers.items()))

    def _partitions(self) -> list[TopicPartition]:
        there = self._listed()
        if missing := [topic for topic in self._topics if topic not in there]:
            raise self._absent(missing[0])
        return [
            TopicPartition(topic, number) for topic in self._topics for number in self._read_of(topic, there[topic])
        ]

    def _read_of(self, topic: str, there: Collection[int]) -> Collection[int]:
        stated = self._settings.partitions.get(topic)
        if stated is None:
            return there
        if absent := [number for number in stated if number not in there]:
            raise SettingsRefused(
                f"`source.partitions` names partition {absent[0]} of topic {topic}, whose partitions are 0 to"
                f" {max(there)}"
            )
        return stated

    def _listed(self) -> Mapping[str, Collection[int]]:
        """All topics of the cluster, with their partitions."""
        return {name: topic.partitions for name, topic in self._metadata().topics.items() if not topic.error}

    def _metadata(self, topic: str | None = None) -> ClusterMetadata:
        """The metadata of the cluster. `describe_cluster` can't be used: librdkafka 2.16 ends the process if a broker
        is just starting and does not know any broker yet.
        """
        self._hear_again()
        try:
            return self._admin.list_topics(topic, timeout=ASK_S)
        except KafkaException as failure:
            raise self._explained(failure.args[0]) from failure

    # -- one request ----------------------------------------------------------------------------------------

    def _ask(self, request: Callable[[], Mapping[Any, "Future[Any]"]]) -> dict[Any, Any]:
        """The answers. If every broker has refused us, none will come, so we don't wait for the timeout."""
        self._hear_again()
        looked = False
        answers = request()
        while wait(answers.values(), LOOK_S).not_done:
            self._admin.poll(0)
            if not looked and any(each.code() == refusals.ALL_DOWN for each in self._said):
                looked = True
                if refusal := refusals.of_connections(self._said, self._settings):
                    raise refusal
        return {asked: self._answered(asked, answer) for asked, answer in answers.items()}

    def _answered(self, asked: object, answer: "Future[Any]") -> Any:
        try:
            return answer.result()
        except KafkaException as failure:
            raise self._explained(failure.args[0], getattr(asked, "topic", asked)) from failure

    def _hear_again(self) -> None:
        """Forget older errors of connections. Those of a new client stay, because they concern its first request."""
        if self._is_new:
            self._is_new = False
            return
        while self._admin.poll(0):
            pass
        self._said.clear()

    def _explained(self, error: KafkaError, asked: object = "") -> LakehouseError:
        self._admin.poll(0)
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._absent(str(asked))
        if error.code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
            return TryAgain(f"a partition of {asked or self._topics} has no leader at {self._settings.brokers} yet")
        return (
            refusals.of_answer(error, str(asked), self._settings)
            or refusals.of_connections(self._said, self._settings)
            or refusals.unanswered(self._said, error, self._settings)
        )

    def _absent(self, topic: str) -> LakehouseError:
        return TryAgain(
            f"the topic {topic} is not there at {self._settings.brokers}; create it, or fix `streams.topics`"
        )

    # -- records and group offsets --------------------------------------------------------------------------

    def looking_back(self, group: str) -> KafkaLog:
        """A reader for `verify`, which looks again at records that were read before."""
        return KafkaLog(self._settings, group)

    def publish(self, offsets: Offsets, group: str) -> None:
        """Publish group offsets for lag tools. We never read them."""
        parts = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        if not parts:
            return
        self._committed.clear()
        try:
            committer = self._committer(group)
            committer.commit(offsets=parts, asynchronous=True)
        except KafkaException as failure:
            raise self._explained(failure.args[0], group) from failure
        deadline = monotonic() + ASK_S
        while not self._committed:
            if monotonic() > deadline:
                raise TryAgain(f"{self._settings.brokers} did not take the offsets of the group {group} in time")
            said = committer.poll(LOOK_S)  # this consumer reads nothing, so a message can only be an error
            if said is not None and (refusal := said.error()):
                raise self._explained(refusal, group)
        if error := self._committed.pop():
            raise self._explained(error, group)

    def _committer(self, group: str) -> Consumer:
        """A consumer that joins no group. It is never closed, because closing may wait for brokers that are away.

        The admin client can't be used: librdkafka 2.16 ends the whole process if a broker goes away during a request
        about a group (librdkafka#4605).
        """
        if self._hinting is None:
            client: dict[str, Any] = {
                "session.timeout.ms": COORDINATOR_MS,
                **for_librdkafka(self._settings),
                "group.protocol": "classic",  # the other one has no such timeout, and this client joins no group
                "group.id": group,
                "log_level": 0,
                "enable.auto.commit": False,
                "error_cb": self._said.append,
                "on_commit": lambda error, parts: self._committed.append(
                    error or next((each.error for each in parts if each.error), None)
                ),
            }
            self._hinting = Consumer(client)
        return self._hinting

    def probe(self, group: str) -> str:
        """Say what is there. This tries what a run does: the ends of the topics, one record, and the group."""
        cluster = self.identity().cluster
        low, high = self.bounds()
        held = [TopicPartition(*at, low[at]) for at in low if low[at] < high[at]]
        read = self._read_one(held, group) if held else "nothing to read yet"
        self._describe(group)
        count = sum(high[at] - low[at] for at in low)
        return (
            f"{', '.join(self._shown()) or 'none yet'} at cluster {cluster}: {many(len(low), 'partition')},"
            f" {many(count, 'offset')}, {read}"
        )

    def _shown(self) -> Iterator[str]:
        """The topics, with the partitions that `source.partitions` lists."""
        there = self._listed() if self._settings.partitions else {}
        for topic in self._topics:
            stated = self._settings.partitions.get(topic)
            of = f"{', '.join(map(str, stated[:SHOWN]))}{', …' if len(stated) > SHOWN else ''}" if stated else ""
            yield f"{topic} (partitions {of} of {len(there[topic])})" if stated else topic

    def _describe(self, group: str) -> ConsumerGroupDescription:
        """Describe the group, which shows whether we may use it.

        Don't ask for its offsets: librdkafka 2.16 crashes if the group does not exist yet.
        """

        def described() -> ConsumerGroupDescription:
            found: ConsumerGroupDescription = self._admin.describe_consumer_groups([group], request_timeout=ASK_S)[
                group
            ].result()
            return found

        return self._of_coordinator(group, described)

    def _of_coordinator(self, group: str, request: Callable[[], Answer]) -> Answer:
        """Repeat a request as long as the group has no coordinator, which is normal while brokers start."""
        deadline = monotonic() + ASK_S
        while True:
            try:
                return request()
            except KafkaException as failure:
                if failure.args[0].code() not in NO_COORDINATOR or monotonic() > deadline:
                    raise self._explained(failure.args[0], group) from failure
                sleep(LOOK_S)

    # -- groups of other programs ---------------------------------------------------------------------------

    def members(self, group: str) -> int:
        return len(self._describe(group).members)

    def committed(self, group: str) -> Offsets:
        parts = self._partitions()
        with self._reader(group) as reader:
            found = self._of_coordinator(group, lambda: reader.committed(parts, timeout=ASK_S))
        if refused := next((each.error for each in found if each.error), None):
            raise self._explained(refused, group)
        # A negative number means that the group has committed no offset.
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def values_from(self, start: Offsets, group: str) -> Iterator[bytes]:
        left = set(start)
        with self._reader(group) as reader:
            reader.assign([TopicPartition(*at, offset) for at, offset in start.items()])
            while left:
                if (message := reader.poll(ASK_S)) is None:
                    raise self._explained(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - so it is named
                error = message.error()
                if error is None:
                    yield message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - likewise
                    left.discard((message.topic() or "", message.partition() or 0))
                else:
                    raise self._explained(error, message.topic() or "")

    @contextmanager
    def _reader(self, group: str) -> Iterator[Consumer]:
        """A consumer that joins no group and commits nothing."""
        client: dict[str, Any] = {
            **for_librdkafka(self._settings),
            "group.id": group,
            "log_level": 0,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "error_cb": self._said.append,
        }
        reader = Consumer(client)
        try:
            yield reader
        finally:
            reader.close()

    def _read_one(self, parts: list[TopicPartition], group: str) -> str:
        client = {**for_librdkafka(self._settings), "group.id": group, "log_level": 0, "enable.auto.commit": False}
        reader = Consumer(client)
        try:
            reader.assign(parts)
            message = reader.poll(ASK_S)
            if message is not None and (error := message.error()):
                raise self._explained(error, message.topic() or "")
            return "one record read" if message is not None else f"no record came within {ASK_S:.0f} s"
        finally:
            reader.close()

    def reader(self, group: str, epoch: int) -> KafkaReader:
        """How tasks read the records."""
        return KafkaReader(self._settings, group, epoch)
