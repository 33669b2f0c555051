"""The reader of Kafka, on the broker that librdkafka brings along for tests. It needs neither Java nor a process."""

import json
import pickle
import time
from collections import deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from pyspark import cloudpickle

from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.records import Records, Share
from lakehouse_ingest.stages.sources import Reader
from lakehouse_ingest.stages.sources.kafka import consumers
from lakehouse_ingest.stages.sources.kafka import reader as kafka
from lakehouse_ingest.stages.sources.kafka.consumers import KeptConsumer
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader

PARTITIONS, EACH = 3, 1_000
SECRET = "s3cr3t-planted"


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    """The broker lives as long as this client does."""
    found = Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 1})
    yield found
    consumers.let_go_all()


@pytest.fixture(scope="module")
def brokers(producer: Producer) -> str:
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for number in range(PARTITIONS * EACH):
        partition, offset = divmod(number, EACH)
        producer.produce("t", value=b"%d" % offset, key=b"%d" % partition, partition=partition)
        if number % 70 == 0:
            producer.poll(0.002)  # so that there are many batches of records
    for value in (None, b"", None, b"", b"last"):
        producer.produce("empty", value=value, partition=0)
    for size in (10, 900_000, 20, 500_000, 500_000):
        producer.produce("large", value=b"x" * size, partition=0)
    assert producer.flush(10) == 0
    return f"{broker.host}:{broker.port}"


def reader(brokers: str, epoch: int = 1, **more: float) -> KafkaReader:
    return KafkaReader(SourceSettings(brokers=brokers), "tests", epoch, **more)  # type: ignore[arg-type]


def offsets(found: Sequence[Records]) -> dict[int, list[int]]:
    gathered: dict[int, list[int]] = {}
    for records in found:
        gathered.setdefault(records.partition, []).extend(records.rows["offset"].to_pylist())
    return gathered


def wanted(shares: Sequence[Share]) -> dict[int, list[int]]:
    gathered: dict[int, list[int]] = {}
    for share in shares:
        gathered.setdefault(share.partition, []).extend(range(share.start, share.end))
    return {partition: found for partition, found in gathered.items() if found}


def kept() -> list[object]:
    return [each.consumer for each in consumers._kept.values()]


class TestShare:
    def test_gives_its_records_and_no_others(self, brokers: str) -> None:
        (found,) = reader(brokers).read(Share("t", 1, 200, 203, "log"))
        assert (found.topic, found.partition, found.log) == ("t", 1, "log")
        assert found.rows["offset"].to_pylist() == [200, 201, 202]
        assert found.rows["value"].to_pylist() == [b"200", b"201", b"202"]
        assert found.rows["key"].to_pylist() == [b"1"] * 3
        assert found.rows["timestamp"].null_count == 0

    def test_of_empty_records_gives_them_all(self, brokers: str) -> None:
        """The client's messages count as false if they are empty, and some come alone."""
        for start in range(5):
            consumers.let_go_all()
            assert offsets(list(reader(brokers).read(Share("empty", 0, start, 5)))) == {0: list(range(start, 5))}
        (found,) = reader(brokers).read(Share("empty", 0, 0, 5))
        assert found.rows["value"].to_pylist() == [None, b"", None, b"", b"last"]

    def test_of_nothing_asks_nobody(self) -> None:
        assert list(reader("127.0.0.1:1").read(Share("t", 0, 7, 7))) == []

    def test_comes_in_batches_of_bounded_count(self, brokers: str) -> None:
        found = list(reader(brokers, most_records=64).read(Share("t", 0, 0, EACH)))
        assert [len(each) for each in found] == [64] * 15 + [40]
        assert offsets(found) == {0: list(range(EACH))}

    def test_comes_in_batches_of_bounded_size(self, brokers: str) -> None:
        with_first = Share("large", 0, 0, 5)
        found = list(reader(brokers, most_bytes=1_000_000).read(with_first))
        sizes = [[len(value) for value in each.rows["value"].to_pylist()] for each in found]
        assert all(sum(each) <= 1_000_000 for each in sizes)
        assert sum(map(len, sizes)) == 5

    def test_that_the_log_does_not_hold_is_an_outage(self, brokers: str) -> None:
        with pytest.raises(TryAgain, match=r"topic t partition 0 no longer holds offset 5000.*finds out what is miss"):
            list(reader(brokers).read(Share("t", 0, 5_000, 6_000)))

    def test_that_the_log_does_not_hold_to_its_end_is_an_outage(self, brokers: str) -> None:
        began = time.monotonic()
        with pytest.raises(TryAgain, match=r"topic t partition 0 ends at offset 1000 now, .* up to 1001"):
            list(reader(brokers, silence_s=0.5).read(Share("t", 0, 900, 1_001)))
        assert 0.5 <= time.monotonic() - began < 10


class TestShares:
    @pytest.mark.parametrize("look", [0.0, kafka.LOOK_S], ids=["always looking", "looking when idle"])
    def test_in_any_order_are_read_exactly(self, look: float, brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """With consumers that are kept, used for other offsets, and read further than the share went."""
        monkeypatch.setattr(kafka, "LOOK_S", look)
        seed = Random().randrange(2**32)
        print("seed", seed)
        dice = Random(seed)
        for _ in range(30):
            shares = []
            for _ in range(dice.randint(1, 5)):
                start = dice.randrange(EACH)
                end = min(EACH, start + dice.choice((1, 3, 50, 400, EACH)))
                shares.append(Share("t", dice.randrange(PARTITIONS), start, end, "log"))
            most = dice.choice((7, 100, 50_000))
            found = list(reader(brokers, most_records=most).read_all(shares))
            assert offsets(found) == wanted(shares), shares
            assert all(0 < len(each) <= most for each in found)

    def test_of_several_partitions_are_read_at_once_if_small(self) -> None:
        small = [Share("t", number, 0, 10) for number in range(4)]
        groups = kafka._together([*small, Share("t", 4, 0, 30), Share("u", 5, 0, 1), Share("t", 0, 10, 20)], 40)
        assert [[each.partition for each in group] for group in groups] == [[0, 1, 2, 3], [4], [5], [0]]
        twice = [Share("t", 0, 0, 10), Share("t", 0, 10, 20), Share("t", 1, 5, 5)]
        assert [len(group) for group in kafka._together(twice, 40)] == [1, 1]

    def test_that_end_do_not_keep_the_others_waiting(self, brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka, "UNWANTED", 5)
        shares = [Share("t", 0, 0, 1), Share("t", 1, 0, EACH), Share("t", 2, 10, 20)]
        assert offsets(list(reader(brokers).read_all(shares))) == wanted(shares)


class TestConsumer:
    def test_is_kept_from_share_to_share(self, brokers: str) -> None:
        consumers.let_go_all()
        list(reader(brokers).read(Share("t", 0, 0, 10, "log")))
        first = kept()
        list(reader(brokers).read(Share("t", 0, 10, 20, "log")))
        list(reader(brokers).read(Share("t", 1, 0, 20, "log")))
        assert kept() == first
        assert len(first) == 1

    @pytest.mark.parametrize(
        ("share", "epoch"),
        [
            (Share("t", 0, 10, 20, "another log"), 1),
            (Share("t", 0, 10, 20, "log"), 2),
            (Share("t", 0, 5, 8, "log"), 1),
        ],
        ids=["another log", "another epoch", "offsets that it has passed"],
    )
    def test_is_replaced_for(self, share: Share, epoch: int, brokers: str) -> None:
        consumers.let_go_all()
        list(reader(brokers).read(Share("t", 0, 0, 10, "log")))
        first = kept()
        assert offsets(list(reader(brokers, epoch).read(share))) == wanted([share])
        assert len(kept()) == 1
        assert kept() != first

    def test_of_an_older_epoch_is_dropped(self, brokers: str) -> None:
        consumers.let_go_all()
        list(reader(brokers, 1).read(Share("large", 0, 0, 1)))
        list(reader(brokers, 2).read(Share("t", 0, 0, 1)))
        assert [each.epoch for each in consumers._kept.values()] == [2]

    def test_is_dropped_after_an_error(self, brokers: str) -> None:
        consumers.let_go_all()
        list(reader(brokers).read(Share("t", 0, 0, 10)))
        with pytest.raises(TryAgain):
            list(reader(brokers).read(Share("t", 0, 5_000, 6_000)))
        assert kept() == []

    def test_is_dropped_if_the_reading_is_abandoned(self, brokers: str) -> None:
        consumers.let_go_all()
        reading = reader(brokers, most_records=10).read(Share("t", 0, 0, 100))
        next(reading)
        reading.close()  # type: ignore[attr-defined]
        assert kept() == []

    def test_of_the_parent_process_is_never_used(self, brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        consumers.let_go_all()
        list(reader(brokers).read(Share("t", 0, 0, 10)))
        first = kept()
        monkeypatch.setattr(consumers, "_process", -1)
        list(reader(brokers).read(Share("t", 0, 10, 20)))
        assert kept() != first
        assert [each.consumer for each in consumers._before_the_fork] == first  # type: ignore[attr-defined]

    def test_of_other_topics_are_kept_up_to_a_bound(self, brokers: str, producer: Producer) -> None:
        consumers.let_go_all()
        topics = [f"many_{number}" for number in range(consumers.KEPT + 2)]
        for topic in topics:
            producer.produce(topic, value=b"x", partition=0)
        producer.flush(10)
        for topic in topics:
            assert len(list(reader(brokers).read(Share(topic, 0, 0, 1)))) == 1
        assert [topic for _, topic in consumers._kept] == topics[2:]


class Silent:
    """A client that gives no message. Its position is first the one before the share, then each of these."""

    def __init__(self, *positions: int) -> None:
        self._positions = list(positions)

    def assign(self, _: object) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, *_: object) -> list[object]:
        return []

    def poll(self, _: float) -> None: ...

    def list_topics(self, *_: object) -> object:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def position(self, _: object) -> list[TopicPartition]:
        at = self._positions.pop(0) if len(self._positions) > 1 else self._positions[0]
        return [TopicPartition("t", 0, at)]


class TestPosition:
    """Markers of transactions are the last offsets of a share, and aborted records follow: no message tells."""

    def read(self, *positions: int) -> list[Records]:
        kept = KeptConsumer(cast("Any", Silent(*positions)), "", 1, deque(), deque())
        return list(kafka.Reading(reader("127.0.0.1:1", silence_s=0.05), kept, [Share("t", 0, 5, 10)]).records())

    def test_at_or_beyond_the_end_ends_the_share(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka, "LOOK_S", 0.0)
        for positions in ((10,), (-1001, 5, 9, 10), (7, 12)):
            assert self.read(*positions) == []

    def test_before_the_end_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka, "LOOK_S", 0.0)
        with pytest.raises(TryAgain, match=r"no answer from `source.brokers`"):
            self.read(-1001, 9)


class TestStatistics:
    """Long runs of aborted records give no message, but the client says that it fetches."""

    def test_show_how_far_the_client_has_fetched(self, brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(consumers.FIXED, "statistics.interval.ms", 20)
        share, described = Share("t", 0, 0, EACH), reader(brokers, most_records=10)
        with consumers.borrowed(described.settings, "tests", 1, [share]) as kept:
            reading = kafka.Reading(described, kept, [share])
            next(reading.records())
            deadline = time.monotonic() + 10
            while reading._parts[0].fetched < 10 and time.monotonic() < deadline:
                kept.consumer.poll(0.01)
                reading._fetches()
            assert 10 <= reading._parts[0].fetched <= EACH

    def test_count_as_progress_only_if_they_change(self, brokers: str) -> None:
        share, described = Share("t", 0, 0, EACH), reader(brokers)

        def text(at: int) -> str:
            return json.dumps({"topics": {"t": {"partitions": {"0": {"next_offset": at}, "-1": {}}}}})

        with consumers.borrowed(described.settings, "tests", 1, [share]) as kept:
            reading = kafka.Reading(described, kept, [share])
            moved = []
            for said in (text(-1001), text(5), text(5), text(6), "{}", text(6), text(7)):
                kept.statistics.append(said)
                moved.append(reading._fetches())
            assert moved == [False, False, False, True, False, False, True]
            assert reading._fetches() is False


class TestOutage:
    def test_is_found_within_the_time(self) -> None:
        began = time.monotonic()
        with pytest.raises(TryAgain, match=r"no answer from `source.brokers` at 127.0.0.1:1: .*refused"):
            list(reader("127.0.0.1:1", silence_s=1).read(Share("t", 0, 0, 10)))
        assert 1 <= time.monotonic() - began < 10


class TestRefusedSettings:
    def test_are_named(self) -> None:
        settings = SourceSettings(brokers="127.0.0.1:1", options={"fetch.min.bytes": "much"})
        with pytest.raises(SettingsRefused, match=r"fetch.min.bytes"):
            list(KafkaReader(settings, "tests").read(Share("t", 0, 0, 10)))

    def test_may_not_weaken_what_keeps_reading_exact(self) -> None:
        options = {"allow.auto.create.topics": "true", "fetch.wait.max.ms": "7", "statistics.interval.ms": "0"}
        client = consumers._client(SourceSettings(options=options), "tests")
        assert client["fetch.wait.max.ms"] == "7"
        assert {name: client[name] for name in consumers.FIXED} == consumers.FIXED
        assert client["isolation.level"] == "read_committed"

    def test_may_ask_for_small_answers_as_in_java(self, brokers: str) -> None:
        for size in ("1", "5000"):
            settings = SourceSettings(brokers=brokers, options={"fetch.max.bytes": size})
            assert offsets(list(KafkaReader(settings, "tests").read(Share("t", 0, 0, 10)))) == {0: list(range(10))}


class TestDescription:
    def test_can_be_pickled_and_read_with(self, brokers: str) -> None:
        for module in (pickle, cloudpickle):
            again = pickle.loads(module.dumps(reader(brokers)))
            assert offsets(list(again.read(Share("t", 0, 0, 10)))) == {0: list(range(10))}
            assert isinstance(again, Reader)

    def test_shows_no_secret(self) -> None:
        settings = SourceSettings.model_validate(
            {
                "brokers": f"b:1,{SECRET}",
                "security": {"username": "u", "password": SECRET},
                "options": {"client.id": SECRET},
            }
        )
        described = KafkaReader(settings, "tests")
        assert SECRET not in f"{described} {described!r}"
        assert pickle.loads(pickle.dumps(described)) == described
