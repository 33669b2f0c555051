"""Committing batches through a gate that asks for tokens and passes all else on to the embedded catalog.

Who refuses a commit is the catalog behind the gate, and the troubles strike before a request leaves the client. So the
gate can matter only for whether requests and their answers come through, which these cases show; see `test_landing.py`
for the others.
"""

import pytest

from tests.services.catalogs import Gated
from tests.services.landing_cases import TestLanding, writer

__all__ = ["TestLanding", "writer"]

pytestmark = pytest.mark.parametrize("kind", [Gated.name], indirect=True, scope="package")
