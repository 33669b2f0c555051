"""Committing batches with one request each, on every catalog of `tests/services/catalogs.py`."""

from collections.abc import Iterator

import pytest

from catalog import (
    CatalogClient,
    has_namespace,
    names_in,
    probe,
)
from tests.services.catalogs import NAMESPACE, Can, Kind, OfPyiceberg
from tests.services.landing_cases import *  # noqa: F403 - the cases that any catalog passes
from tests.services.landing_interleavings import *  # noqa: F403
from tests.services.landing_refusals import *  # noqa: F403
from tests.services.landings import LandingBench


@pytest.fixture
def bench(kind: Kind, lake: CatalogClient, unmade: str) -> LandingBench:
    if isinstance(kind, OfPyiceberg):
        pytest.skip("tests/unit/catalog_package/test_landing.py runs these cases on it")
    odd = [version for version, can in ((1, Can.OLD_FORMATS), (3, Can.NEW_FORMATS)) if can not in kind.cannot]
    return LandingBench(lake, unmade, formats=(2, *odd))


@pytest.fixture
def before(lake: CatalogClient) -> Iterator[set[str]]:
    """The tables of the namespace; a test leaves no others."""
    there = {*names_in(lake, NAMESPACE)}
    yield there
    assert {*names_in(lake, NAMESPACE)} == there


class TestAbilities:
    """Rule 7."""

    def test_of_every_catalog_here_are_enough(self, lake: CatalogClient, before: set[str]) -> None:
        assert probe(lake, NAMESPACE).failures == (), before

    def test_are_tried_in_a_namespace_that_goes_away_again(self, lake: CatalogClient) -> None:
        assert probe(lake, "lakehouse_probed").keeps_fences
        assert not has_namespace(lake, "lakehouse_probed")
