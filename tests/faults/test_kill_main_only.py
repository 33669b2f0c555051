"""The same kills with a catalog that allows no ref but main, so that no branch shows how far a start came."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse_ingest.fail_points import FailPoint
from tests.faults.test_kill import BLIND, EVENTS, KILLS, Kill, kill_and_count, kills
from tests.services.dice import Dice
from tests.services.main_only import MainOnly
from tests.services.pipelines import Pipelines
from tests.services.surroundings import PREFIX, unlocked

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(1_800)]

LONG = "LAKEHOUSE_TEST_LONG" in os.environ
FEW = (
    FailPoint.CLAIMED,
    FailPoint.OPENED,
    FailPoint.WRITING,
    FailPoint.STAGED,
    FailPoint.PUBLISHING,
    FailPoint.PUBLISHED,
    FailPoint.EXPIRING,
    BLIND,
)


class TestKilledProcess:
    def test_with_main_as_the_only_ref_leaves_every_offset_in_exactly_one_place(
        self, broker: str, rest_uri: str, warehouse: Path, pipelines: Pipelines, dice: Dice
    ) -> None:
        planned = kills(dice, KILLS) if LONG else [Kill(point, 1, dice.uniform(0.0, 0.3)) for point in FEW]
        pipelines.environment[f"{PREFIX}CATALOG__PUBLISH"] = "direct"
        with MainOnly(rest_uri) as gate:
            surroundings = replace(unlocked(broker, rest_uri, warehouse), locked_catalog=gate.uri)
            kill_and_count(surroundings, pipelines, dice, planned, EVENTS if LONG else EVENTS // 4, "direct")
            assert not gate.refused
        assert len(pipelines.started[-1].events("publishes_directly")) == 1
