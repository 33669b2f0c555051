"""Every source keeps what the suite for sources asks, on its real server."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages import sources
from lakehouse_ingest.testing.sources import CHECKS, Check, Filled
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live

TOPIC = "conformance_of_sources"
VALUES: dict[int, list[bytes | None]] = {0: [b"a", None, b"", b"\xff", b"e"], 1: [b"f", b"g", b"h"], 2: []}


def kafka(servers: Callable[[str], str]) -> Filled:
    broker = servers("broker")
    create_topic(broker, TOPIC, len(VALUES))
    produce(broker, TOPIC, [(None, value, None, None, at) for at, values in VALUES.items() for value in values])
    settings = SourceSettings(brokers=broker)
    return Filled(sources.chosen(settings), settings, TOPIC, VALUES)


# One for each name in the table: what fills a topic of it.
FILL: dict[str, Callable[[Callable[[str], str]], Filled]] = {"kafka": kafka}


@pytest.fixture(scope="module", params=sources.SOURCES)
def filled(request: pytest.FixtureRequest) -> Filled:
    return FILL[request.param](request.getfixturevalue)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_suite(filled: Filled, check: Check, spark: SparkSession, tmp_path: Path) -> None:
    check(filled, spark, tmp_path)
