"""Every source keeps what the suite for sources asks, on its real server."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.stages.sources.kafka import consumers
from lakehouse_ingest.stages.sources.kafka.reader import KafkaReader
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from lakehouse_ingest.testing.sources import CHECKS, GAP, Check, Filled, Value
from tests.services.kafka import PATIENCE, create_topic, open_transaction, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

TOPIC = "conformance_of_sources"
PLAIN: Mapping[int, Sequence[bytes | None]] = {0: [b"a", None, b"", b"\xff", b"e"], 1: [b"f", b"g", b"h"], 2: []}
IN_TRANSACTIONS: Sequence[bytes] = [b"i", b"j"]
# The marker of a commit, then aborted records, and their marker.
VALUES: Mapping[int, Sequence[Value]] = {**PLAIN, 3: [*IN_TRANSACTIONS, GAP, *(GAP for _ in IN_TRANSACTIONS), GAP]}


class Impatient(Kafka):
    """Waits less for records that do not come, but longer than the client waits for an unknown topic."""

    def reader(self, group: str, epoch: int) -> KafkaReader:
        return replace(super().reader(group, epoch), silence_s=8.0)


def kafka(servers: Callable[[str], str]) -> Filled:
    broker = servers("broker")
    create_topic(broker, TOPIC, len(VALUES))
    produce(broker, TOPIC, [(None, value, None, None, at) for at, values in PLAIN.items() for value in values])
    for is_kept in (True, False):
        with open_transaction(broker, TOPIC, [(None, value, None, None, 3) for value in IN_TRANSACTIONS]) as producer:
            if is_kept:
                producer.commit_transaction(PATIENCE)
    settings = SourceSettings(brokers=broker)
    assert sources.chosen(settings) is Kafka
    filled = Filled(Impatient, settings, TOPIC, VALUES)
    # The markers are written after the transactions have ended.
    assert until(lambda: sum(filled.source.ends().values()) == sum(filled.counts.values()), PATIENCE)
    return filled


# One for each name in the table: what fills a topic of it.
FILL: dict[str, Callable[[Callable[[str], str]], Filled]] = {"kafka": kafka}


@pytest.fixture(scope="module", params=sources.SOURCES)
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    yield FILL[request.param](request.getfixturevalue)
    consumers.let_go_all()


class TestSource:
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_passes_the_suite(self, filled: Filled, check: Check) -> None:
        check(filled)
