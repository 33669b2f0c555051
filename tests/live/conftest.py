"""What the live tests share."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.services.ingesting import Bench


@pytest.fixture(scope="session")
def bench(spark: SparkSession, broker: str, rest_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(spark, broker, rest_uri, tmp_path_factory.mktemp("pipelines"))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; for topic and namespace."""
    name: str = request.node.name
    return re.sub(r"\W+", "_", name.removeprefix("test_")).strip("_")[:60]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
