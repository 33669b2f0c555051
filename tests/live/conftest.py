"""What the live tests share."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from lakehouse_ingest.pipeline import one_start, sampler
from tests.live.test_many_tables import settings as of_types
from tests.live.test_many_tables import typed
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.verdicts import Landed, numbered, undone


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; for topic and namespace. No word of it is one that a test looks for in a log."""
    return f"t_{crc32(request.node.nodeid.encode()):08x}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "LOOK_S", 0.2)
    monkeypatch.setattr(one_start, "BEAT_S", 0.1)


@pytest.fixture(scope="session")
def twenty(bench: Bench) -> Landed:
    """Twenty records in two batches, of one partition, in one table."""
    topic = "verify_twenty"
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, numbered(range(20)))
    settings = bench.settings(topic, stream={"max_records": 10})
    bench.ingest(settings)
    return Landed(settings, topic)


@pytest.fixture(scope="session")
def sorted_out(bench: Bench) -> Landed:
    """Two partitions, three tables, dead letters, and one type in six that is filtered."""
    topic = "verify_sorted_out"
    create_topic(bench.broker, topic, 2)
    settings = of_types(bench, topic, keep_types="^(order|payment|refund)$", max_records=14)
    typed(bench, topic, ["order", "payment", "debug", "order", "refund", None] * 4)
    produce(bench.broker, topic, [(None, b'{"type": "order", ')] * 3)
    bench.ingest(settings)
    return Landed(settings, topic)


@pytest.fixture
def filled(bench: Bench, twenty: Landed) -> Iterator[Landed]:
    with undone(bench, twenty):
        yield twenty


@pytest.fixture
def parted(bench: Bench, sorted_out: Landed) -> Iterator[Landed]:
    with undone(bench, sorted_out):
        yield sorted_out
