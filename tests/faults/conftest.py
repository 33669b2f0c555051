"""A pipeline to be maltreated, and the seed of it all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.dice import Dice
from tests.services.pipelines import Pipelines


@pytest.fixture
def pipelines(tmp_path: Path, jars_folder: Path | None) -> Iterator[Pipelines]:
    with Pipelines(tmp_path, jars_folder) as started:
        yield started


@pytest.fixture
def dice() -> Dice:
    return Dice()
