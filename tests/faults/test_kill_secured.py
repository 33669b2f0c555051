"""The same kills with every connection secured: SCRAM over TLS, OAuth2 with tokens that expire, keys to an S3 store."""

import os
from pathlib import Path

import pytest

from lakehouse_ingest.fail_points import FailPoint
from tests.faults.test_kill import BLIND, EVENTS, KILLS, SURE, Kill, kill_and_count, kills
from tests.services.crashes import STAGED, WRITING
from tests.services.dice import Dice
from tests.services.ingesting import Bench, drained
from tests.services.pipelines import Pipelines
from tests.services.surroundings import locked

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(1_800)]

LONG = "LAKEHOUSE_TEST_LONG" in os.environ
FEW = (FailPoint.WRITING, FailPoint.STAGED, FailPoint.PUBLISHED, BLIND)
TOKENS_LIVE = 4.0


class TestKilledProcess:
    def test_with_secured_connections_leaves_every_offset_in_exactly_one_place(
        self, bench: Bench, tmp_path: Path, jars_folder: Path | None, pipelines: Pipelines, dice: Dice
    ) -> None:
        few = [Kill(point, 1, 0.0 if point in SURE else dice.uniform(0.0, 0.3)) for point in FEW]
        planned = kills(dice, KILLS) if LONG else few
        with locked(tmp_path, jars_folder) as doors:
            doors.gateway.tokens_live = TOKENS_LIVE
            pipelines.environment |= doors.surroundings.environment
            done = kill_and_count(
                doors.surroundings,
                pipelines,
                dice,
                planned,
                EVENTS if LONG else EVENTS // 4,
                drain=lambda settings: drained(bench, settings, pipelines.environment),
            )
            print(dict(doors.gateway.seen))
        assert any(kill.fell in (WRITING, STAGED) for kill in done)
        assert doors.gateway.seen["expired"], "no token ended while it was used"
