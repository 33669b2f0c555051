"""Committing batches with one request each: random interleavings of writers and troubles; see `test_landing.py`."""

import pytest

from tests.services.catalogs import GIVEN, Embedded
from tests.services.landing_interleavings import *  # noqa: F403 - the cases that any catalog passes

pytestmark = pytest.mark.parametrize("kind", [Embedded.name, *GIVEN], indirect=True, scope="package")
