"""Committing batches with one request each, on pyiceberg's own catalog over SQLite; it enforces every requirement."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from catalog import CatalogClient, ensure_namespace
from tests.services.landing_cases import *  # noqa: F403 - the cases that any catalog passes
from tests.services.landing_interleavings import *  # noqa: F403
from tests.services.landing_refusals import *  # noqa: F403
from tests.services.landings import LandingBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LandingBench]:
    there = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    client = CatalogClient(there)
    ensure_namespace(client, "ns")
    yield LandingBench(client, "ns.t")
    there.close()
