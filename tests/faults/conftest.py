"""A pipeline to be maltreated, and the seed of it all."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.pipelines import Pipelines


@pytest.fixture
def pipelines(tmp_path: Path, jars_folder: Path | None) -> Iterator[Pipelines]:
    with Pipelines(tmp_path, jars_folder) as started:
        yield started


@pytest.fixture
def dice() -> random.Random:
    """Seeded: LAKEHOUSE_TEST_SEED repeats a run's decisions, though not the machine's pace."""
    seed = int(os.environ.get("LAKEHOUSE_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"\nLAKEHOUSE_TEST_SEED={seed}")
    return random.Random(seed)
