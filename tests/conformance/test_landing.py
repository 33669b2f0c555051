"""Committing batches with one request each: what a batch adds, and whether it landed.

On the embedded catalog, whose commits Iceberg's own server checks, and on a given one. `tests/unit/catalog_package`
runs the same cases on pyiceberg's own catalog, and `test_landing_behind_a_gate.py` runs some through a gate.
"""

import pytest

from tests.services.catalogs import GIVEN, Embedded
from tests.services.landing_cases import *  # noqa: F403 - the cases that any catalog passes

pytestmark = pytest.mark.parametrize("kind", [Embedded.name, *GIVEN], indirect=True, scope="package")
