"""Committing batches with one request each, on every catalog of `tests/services/catalogs.py`."""

from collections.abc import Iterator

import pytest

from catalog import (
    Attempts,
    CatalogClient,
    Column,
    Expected,
    FileLayout,
    FormatUnwritable,
    TableSpec,
    create_table,
    has_namespace,
    land,
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
    return LandingBench(lake, unmade, formats=(2,) if Can.OLD_FORMATS in kind.cannot else (1, 2))


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


class TestTableOfFormatThree:
    def test_is_refused_by_name(self, kind: Kind, lake: CatalogClient, unmade: str) -> None:
        kind.needs(Can.NEW_FORMATS)
        state = create_table(lake, TableSpec(unmade, (Column("id", "long"),), properties={"format-version": "3"}))
        layout, expected = FileLayout(state.schema_id, state.spec_id), Expected(state.uuid, None)
        with pytest.raises(FormatUnwritable, match="format version 3"):
            land(lake, unmade, [], layout, expected, lambda _: {}, Attempts())
