"""Committing batches with one request each: what is refused, and what a refusal leaves; see `test_landing.py`."""

import pytest

from tests.services.catalogs import GIVEN, Embedded
from tests.services.landing_refusals import *  # noqa: F403 - the cases that any catalog passes

pytestmark = pytest.mark.parametrize("kind", [Embedded.name, *GIVEN], indirect=True, scope="package")
