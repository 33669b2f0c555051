"""What tests of single functions share."""

from collections.abc import Iterator

import pytest

from catalog import CatalogClient, ensure_namespace
from tests.services.sqlite_catalog import sqlite_catalog


@pytest.fixture(scope="module")
def file_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogClient]:
    """A catalog in a file with the namespace `ns`, where each test makes a table of its own."""
    there = sqlite_catalog(tmp_path_factory.mktemp("lake"))
    lake = CatalogClient(there)
    ensure_namespace(lake, "ns")
    yield lake
    there.close()
