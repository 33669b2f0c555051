"""Shares of Kafka topics are read exactly, on a real broker, whatever the log looks like and whatever happens to it."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.records import Range
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.accounting import shares
from lakehouse_ingest.stages.records import Records, Share
from lakehouse_ingest.stages.sources.kafka import consumers
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.header_names import produce_with_header
from tests.services.kafka import (
    PATIENCE,
    cleaning_at_once,
    create_topic,
    delete_topic,
    open_transaction,
    produce,
)
from tests.services.pipelines import until

pytestmark = pytest.mark.live

COMPACTION_S = 60.0
LONG = 300  # records, which a client that may fetch little has not fetched at once


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[EmbeddedBroker]:
    """A broker of this module's own, because it is stopped now and then."""
    broker = EmbeddedBroker(tmp_path_factory.mktemp("broker"), port=0, jars=jars_folder)
    try:
        broker.start()
        yield broker
    finally:
        consumers.let_go_all()
        broker.stop()


@pytest.fixture
def brokers(kafka: EmbeddedBroker) -> str:
    assert kafka.uri
    return kafka.uri


def reader(brokers: str, isolation: str = "read_committed", silence_s: float = 10.0, **more: Any) -> KafkaReader:
    settings = SourceSettings.model_validate({"brokers": brokers, "isolation": isolation, **more.pop("source", {})})
    return KafkaReader(settings, "tests", 1, silence_s=silence_s, **more)


def everything(brokers: str, topic: str, isolation: str = "read_committed") -> list[Share]:
    """All that a reader gets now, in one share for each partition."""
    settings = SourceSettings.model_validate({"brokers": brokers, "isolation": isolation})
    source = Kafka(settings, [topic])
    low, _ = source.bounds()
    tasks = shares(Range(low, source.ends()), source.identity())
    return [share for task in tasks for share in task]


def rows(found: Iterator[Records]) -> list[dict[str, Any]]:
    gathered: list[dict[str, Any]] = []
    for records in found:
        gathered += [{"partition": records.partition, **row} for row in records.rows.to_pylist()]
    return gathered


def offsets(found: Iterator[Records]) -> list[int]:
    return [row["offset"] for row in rows(found)]


def cut(share: Share, dice: Random) -> list[Share]:
    """The share in pieces, one or more offsets each."""
    inner = sorted(dice.sample(range(share.start + 1, share.end), min(12, share.end - share.start - 1)))
    bounds = pairwise([share.start, *inner, share.end])
    return [Share(share.topic, share.partition, start, end, share.log) for start, end in bounds]


def is_read_in_any_pieces(brokers: str, share: Share, wanted: Sequence[int], isolation: str = "read_committed") -> None:
    seed = Random().randrange(2**32)
    print("seed", seed)
    dice = Random(seed)
    assert offsets(reader(brokers, isolation).read(share)) == list(wanted)
    for _ in range(3):
        pieces = cut(share, dice)
        dice.shuffle(pieces)
        for piece in pieces:
            found = offsets(reader(brokers, isolation).read(piece))
            assert found == [each for each in wanted if piece.start <= each < piece.end], piece


def fill(brokers: str, topic: str, count: int) -> None:
    produce(brokers, topic, ((None, b"%d" % number, None, None, 0) for number in range(count)))


def begun(brokers: str, topic: str, silence_s: float = 10.0) -> Iterator[Records]:
    """A reading that has far to go, by a client that has fetched little."""
    create_topic(brokers, topic)
    small = {"batch.num.messages": 20, "linger.ms": 0}
    produce(brokers, topic, ((None, os.urandom(10_000), None, None, 0) for _ in range(LONG)), small)
    (share,) = everything(brokers, topic)
    few = {"options": {"queued.min.messages": "1", "max.partition.fetch.bytes": "1000", "fetch.max.bytes": "1000"}}
    reading = reader(brokers, source=few, most_records=5, silence_s=silence_s).read(share)
    assert next(reading).rows["offset"].to_pylist() == list(range(5))
    return reading


class TestRecord:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_is_read_as_it_was_written(self, codec: str, brokers: str, topic: str) -> None:
        create_topic(brokers, topic, 2)
        values = [b"a" * 500, None, b"", b"\xff\x00"]
        written = [
            (
                b"k%d" % number if number % 3 else None,
                value,
                {"h": b"1", "n": None} if number % 5 == 0 else None,
                number + 1,
                number % 2,
            )
            for number, value in enumerate(values * 100)
        ]
        produce(brokers, topic, written, {"compression.type": codec})
        found = rows(reader(brokers).read_all(everything(brokers, topic)))
        assert len(found) == len(written)
        for partition in (0, 1):
            mine = [row for row in found if row["partition"] == partition]
            assert [row["offset"] for row in mine] == list(range(len(mine)))
            for row, (key, value, headers, stamp, _) in zip(mine, written[partition::2], strict=True):
                assert (row["key"], row["value"], int(row["timestamp"].timestamp() * 1000)) == (key, value, stamp)
                has = headers and [{"key": name, "value": each} for name, each in headers.items()]
                assert row["headers"] == has

    def test_with_a_header_whose_name_is_no_text_has_no_headers(self, brokers: str, topic: str) -> None:
        """The others keep theirs."""
        create_topic(brokers, topic)
        for name in (b"good", b"\xff\xfe", b"also good"):
            produce_with_header(brokers, topic, name, name)
        found = rows(reader(brokers).read_all(everything(brokers, topic)))
        assert [row["value"] for row in found] == [b"good", b"\xff\xfe", b"also good"]
        assert [row["headers"] and row["headers"][0]["key"] for row in found] == ["good", None, "also good"]


class TestTransaction:
    def test_that_was_aborted_is_not_read(self, brokers: str, topic: str) -> None:
        """In any pieces: some end at a marker, some hold nothing but aborted records."""
        create_topic(brokers, topic)
        committed: list[int] = []
        at = 0
        for number in range(12):
            count = 1 + 7 * (number % 4)
            with open_transaction(brokers, topic, [(None, b"x", None, None, 0)] * count) as transaction:
                if number % 3:
                    transaction.commit_transaction(PATIENCE)
                    committed += range(at, at + count)
            at += count + 1  # the marker
        (share,) = everything(brokers, topic)
        assert (share.start, share.end) == (0, at)
        is_read_in_any_pieces(brokers, share, committed)

    def test_that_was_aborted_is_read_if_the_settings_say_so(self, brokers: str, topic: str) -> None:
        create_topic(brokers, topic)
        for _ in range(3):
            with open_transaction(brokers, topic, [(None, b"x", None, None, 0)] * 5):
                pass
        (share,) = everything(brokers, topic, "read_uncommitted")
        assert share.end == 18
        wanted = [offset for offset in range(18) if offset % 6 != 5]
        is_read_in_any_pieces(brokers, share, wanted, "read_uncommitted")

    def test_that_is_open_ends_what_can_be_read(self, brokers: str, topic: str) -> None:
        create_topic(brokers, topic)
        with open_transaction(brokers, topic, [(None, b"x", None, None, 0)] * 3) as transaction:
            transaction.commit_transaction(PATIENCE)
        with open_transaction(brokers, topic, [(None, b"x", None, None, 0)] * 3):
            fill(brokers, topic, 5)
            (share,) = everything(brokers, topic)
            assert share.end == 4
            began = time.monotonic()
            assert offsets(reader(brokers).read(share)) == [0, 1, 2]
            assert time.monotonic() - began < 8
            with pytest.raises(TryAgain, match="ends at offset 4 now, but was to be read up to 6"):
                offsets(reader(brokers, silence_s=1).read(Share(topic, 0, 0, 6, share.log)))

    def test_that_follows_does_not_hide_the_end_of_a_share(self, brokers: str, topic: str) -> None:
        """A share whose last offset is a marker ends while only aborted records and markers follow, and no end."""
        create_topic(brokers, topic)
        with open_transaction(brokers, topic, [(None, b"x", None, None, 0)] * 3) as transaction:
            transaction.commit_transaction(PATIENCE)
        (share,) = everything(brokers, topic)
        stopped = Event()

        def abort_again_and_again() -> None:
            producer = Producer({"bootstrap.servers": brokers, "transactional.id": topic, "log_level": 2})
            producer.init_transactions(PATIENCE)
            for _ in range(5_000):
                if stopped.is_set():
                    return
                producer.begin_transaction()
                producer.produce(topic, value=b"x", partition=0)
                producer.flush(PATIENCE)
                producer.abort_transaction(PATIENCE)

        thread = Thread(target=abort_again_and_again)
        thread.start()
        try:
            for _ in range(5):
                consumers.let_go_all()
                assert offsets(reader(brokers).read(share)) == [0, 1, 2]
                assert offsets(reader(brokers).read(Share(topic, 0, 3, 4, share.log))) == []
        finally:
            stopped.set()
            thread.join(PATIENCE)


class TestCompactedTopic:
    def test_is_read_with_its_gaps(self, brokers: str, topic: str) -> None:
        config = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}
        create_topic(brokers, topic, 1, config)
        for _ in range(5):
            produce(brokers, topic, ((b"k%d" % (number % 3), b"x") for number in range(10)))
            time.sleep(0.06)  # a segment is closed by the first record that comes too late for it

        def held() -> list[int]:
            with Kafka(SourceSettings(brokers=brokers), [topic]).looking_back("tests") as log:
                return list(log.between((topic, 0), 0, 49))

        with cleaning_at_once(brokers):
            assert until(lambda: len(held()) < 40, COMPACTION_S, 0.1)
            (share,) = everything(brokers, topic)
            found: list[int] = []

            def rests() -> bool:
                before, found[:] = list(found), held()
                return before == found

            assert until(rests, COMPACTION_S, 1.0)
        share = Share(topic, 0, 0, 50, share.log)
        is_read_in_any_pieces(brokers, share, held())


class TestRetention:
    def test_that_took_the_beginning_is_an_outage(self, brokers: str, topic: str) -> None:
        create_topic(brokers, topic)
        fill(brokers, topic, 100)
        (share,) = everything(brokers, topic)
        remove(brokers, topic, 10)
        with pytest.raises(TryAgain, match=f"topic {topic} partition 0 no longer holds offset 0, which is to be read"):
            offsets(reader(brokers).read(share))
        assert offsets(reader(brokers).read(Share(topic, 0, 10, 100, share.log))) == list(range(10, 100))

    def test_that_takes_more_than_was_read_is_an_outage(self, brokers: str, topic: str) -> None:
        """In the middle of a share, beyond what the client has fetched."""
        reading = begun(brokers, topic)
        remove(brokers, topic, LONG - 5)
        with pytest.raises(TryAgain, match=f"topic {topic} partition 0 no longer holds offset"):
            list(reading)


def remove(brokers: str, topic: str, until_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    (done,) = admin.delete_records([TopicPartition(topic, 0, until_offset)]).values()
    done.result(PATIENCE)


class TestTopic:
    def test_that_is_not_there_is_an_outage_and_is_not_created(self, brokers: str) -> None:
        with pytest.raises(TryAgain, match=r"the topic nowhere is not there at .*`streams.topics`"):
            offsets(reader(brokers).read(Share("nowhere", 0, 0, 10)))
        assert "nowhere" not in AdminClient({"bootstrap.servers": brokers}).list_topics(timeout=PATIENCE).topics

    def test_that_was_recreated_is_read_as_another_log(self, brokers: str, topic: str) -> None:
        create_topic(brokers, topic)
        fill(brokers, topic, 20)
        (before,) = everything(brokers, topic)
        assert len(offsets(reader(brokers).read(Share(topic, 0, 0, 10, before.log)))) == 10
        delete_topic(brokers, topic)
        create_topic(brokers, topic)
        fill(brokers, topic, 12)
        (now,) = everything(brokers, topic)
        assert now.log != before.log
        assert offsets(reader(brokers).read(now)) == list(range(12))

    def test_that_is_deleted_meanwhile_is_an_outage(self, brokers: str, topic: str) -> None:
        reading = begun(brokers, topic)
        delete_topic(brokers, topic)
        with pytest.raises(TryAgain, match=f"the topic {topic} is not there"):
            list(reading)

    def test_with_another_partition_than_asked_for_is_an_outage(self, brokers: str, topic: str) -> None:
        create_topic(brokers, topic)
        fill(brokers, topic, 5)
        with pytest.raises(TryAgain, match=f"the topic {topic} is not there"):
            offsets(reader(brokers).read(Share(topic, 7, 0, 10)))


class TestBroker:
    def test_that_stops_for_a_while_is_waited_for(self, kafka: EmbeddedBroker, brokers: str, topic: str) -> None:
        reading = begun(brokers, topic, silence_s=30)
        with halted(kafka):
            waker = Thread(target=self._wake_after, args=(kafka, 2.0))
            waker.start()
            found = [records.rows["offset"].to_pylist() for records in reading]
            waker.join(10)
        assert [offset for each in found for offset in each] == list(range(5, LONG))

    def test_that_stays_away_is_an_outage(self, kafka: EmbeddedBroker, brokers: str, topic: str) -> None:
        reading = begun(brokers, topic, silence_s=2)
        with halted(kafka):
            began = time.monotonic()
            with pytest.raises(TryAgain, match=r"no answer from `source.brokers` at"):
                list(reading)
            assert time.monotonic() - began < 20
            assert topic not in {name for _, name in consumers._kept}
        assert until(lambda: leads(brokers, topic), PATIENCE)
        (share,) = everything(brokers, topic)
        assert offsets(reader(brokers).read(share)) == list(range(LONG))

    def _wake_after(self, kafka: EmbeddedBroker, seconds: float) -> None:
        time.sleep(seconds)
        assert kafka.java
        os.kill(kafka.java, SIGCONT)


@contextmanager
def halted(kafka: EmbeddedBroker) -> Iterator[None]:
    assert kafka.java
    os.kill(kafka.java, SIGSTOP)
    try:
        yield
    finally:
        os.kill(kafka.java, SIGCONT)
        assert until(lambda: answers(kafka.uri or ""), PATIENCE)


def leads(brokers: str, topic: str) -> bool:
    """A broker that was away for long has to take over its partitions again first."""
    try:
        everything(brokers, topic)
    except TryAgain:
        return False
    return True


def answers(brokers: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": brokers, "log_level": 0}).list_topics(timeout=2)
    except Exception:  # noqa: BLE001 - it does not answer yet
        return False
    return True
