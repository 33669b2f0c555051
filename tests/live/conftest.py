"""What the live tests share."""

from pathlib import Path
from zlib import crc32

import pytest

from lakehouse_ingest.pipeline import one_start, sampler


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; for topic and namespace. No word of it is one that a test looks for in a log."""
    return f"t_{crc32(request.node.nodeid.encode()):08x}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "LOOK_S", 0.2)
    monkeypatch.setattr(one_start, "BEAT_S", 0.1)
