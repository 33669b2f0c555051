"""Committing batches with one request each, on pyiceberg's own catalog over SQLite; it enforces every requirement."""

import uuid

import pytest

from catalog import CatalogClient
from tests.services.landing_cases import *  # noqa: F403 - the cases that any catalog passes
from tests.services.landing_interleavings import *  # noqa: F403
from tests.services.landing_refusals import *  # noqa: F403
from tests.services.landings import LandingBench, without_waiting


@pytest.fixture
def bench(file_lake: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> LandingBench:
    without_waiting(monkeypatch)
    return LandingBench(file_lake, f"ns.t{uuid.uuid4().hex[:12]}")
