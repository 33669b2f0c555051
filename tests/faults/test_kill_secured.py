"""The same kills where every door has a lock: SCRAM over TLS, OAuth2 with tokens that end, keys to an S3 store."""

import os
import random
from pathlib import Path

import pytest

from tests.faults.test_kill import WHOLE, Extent, kill_and_count
from tests.services.pipelines import Pipelines
from tests.services.surroundings import locked

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(1_800)]

SHORT = Extent(60_000, after_file=3, after_start=1, blind=0, between=1)
EXTENT = WHOLE if "LAKEHOUSE_TEST_LONG" in os.environ else SHORT
TOKENS_LIVE = 10.0


def test_every_offset_is_in_exactly_one_place_behind_locks(
    tmp_path: Path, jars_folder: Path | None, pipelines: Pipelines, dice: random.Random
) -> None:
    with locked(tmp_path, jars_folder) as doors:
        doors.gateway.tokens_live = TOKENS_LIVE
        pipelines.environment |= doors.surroundings.environment
        kill_and_count(doors.surroundings, pipelines, dice, EXTENT)
        print(dict(doors.gateway.seen))
    assert doors.gateway.seen["expired"], "no token ended while it was used"
