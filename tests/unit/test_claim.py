"""Who waits for the holder of a folder, and for how long."""

from pathlib import Path

import pytest

from lakehouse_ingest.environment.embedded import claim
from lakehouse_ingest.environment.embedded.claim import FolderClaim, Note
from lakehouse_ingest.errors import SettingsRefused, TryAgain

DIES_AT = 25


class Clock:
    """Whose looks are a second each; the holder dies, and its JVM lets go when it is told to."""

    def __init__(self, free_at: float) -> None:
        self._free_at, self.now = free_at, 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 1

    def alive(self, _: int) -> bool:
        return self.now < DIES_AT

    def locked(self, _: int) -> bool:
        return self.now >= self._free_at


@pytest.fixture
def waiting(tmp_path: Path) -> FolderClaim:
    found = FolderClaim(tmp_path, "note.json", "held by {}".format)
    found.write(Note("http://127.0.0.1:1", 1, pid=1, java=2, passing=True))
    return found


def _told_by(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "time", clock)
    monkeypatch.setattr(claim, "alive", clock.alive)
    monkeypatch.setattr(claim, "_locked", clock.locked)


class TestFolderClaim:
    def test_waits_again_for_the_jvm_after_its_holder_died(
        self, waiting: FolderClaim, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _told_by(clock := Clock(free_at=33), monkeypatch)
        waiting.take()
        waiting.release()
        assert clock.now == 33

    def test_gives_up_with_try_again_while_the_holder_lives(
        self, waiting: FolderClaim, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A service that is started meanwhile is started again by its supervisor, which is told so by the exit code."""
        clock = Clock(free_at=1_000)
        _told_by(clock, monkeypatch)
        monkeypatch.setattr(claim, "alive", lambda _: True)
        with pytest.raises(TryAgain, match=r"held by process 1 at http"):
            waiting.take()
        assert clock.now == claim.PASSING_SECONDS

    def test_gives_up_on_a_jvm_that_does_not_end(self, waiting: FolderClaim, monkeypatch: pytest.MonkeyPatch) -> None:
        _told_by(clock := Clock(free_at=1_000), monkeypatch)
        with pytest.raises(SettingsRefused, match=r"held by process 2 at http"):
            waiting.take()
        assert clock.now == DIES_AT + claim.PREDECESSOR_SECONDS
