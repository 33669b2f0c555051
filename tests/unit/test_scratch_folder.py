"""What a process leaves behind is removed by the next one, and nothing of one that lives."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lakehouse_ingest.environment.scratch import LOCK, PREFIX, scratch_folder

HOLDS_ONE = """
from pathlib import Path
from lakehouse_ingest.environment.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "checkpoint").mkdir()
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


class TestScratchFolder:
    def test_is_gone_after_its_block(self, temporary: Path) -> None:
        with scratch_folder() as folder:
            assert folder.parent == temporary
            (folder / "checkpoint").mkdir()
        assert [*temporary.iterdir()] == []

    def test_of_a_killed_process_is_removed_and_one_in_use_stays(self, temporary: Path) -> None:
        (temporary / f"{PREFIX}of-somebody-else").mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout
            held = Path(holder.stdout.readline().decode().strip())
            with scratch_folder() as mine:
                assert {each.name for each in temporary.iterdir()} == {
                    held.name,
                    mine.name,
                    f"{PREFIX}of-somebody-else",
                }
            holder.kill()
            holder.wait()
            assert held.exists()
            with scratch_folder():
                assert not held.exists()
        assert [each.name for each in temporary.iterdir()] == [f"{PREFIX}of-somebody-else"]

    def test_that_is_or_holds_a_link_is_not_followed(self, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Anyone may make a folder of such a name there, and a link in it, or one that is the folder itself."""
        victim = temporary / "victim"
        victim.mkdir()
        (victim / LOCK).write_text("mine")
        (temporary / f"{PREFIX}planted").mkdir()
        (temporary / f"{PREFIX}planted" / LOCK).symlink_to(victim / LOCK)
        (temporary / f"{PREFIX}itself").symlink_to(victim)
        opened: list[str] = []
        open_as_ever = os.open

        def seen(path: str | Path, *how: int, dir_fd: int | None = None) -> int:
            number = open_as_ever(path, *how, dir_fd=dir_fd)
            opened.append(str(Path(f"/proc/self/fd/{number}").readlink()))
            return number

        monkeypatch.setattr(os, "open", seen)
        with scratch_folder():
            pass
        assert not [path for path in opened if path.startswith(str(victim))]
        assert (victim / LOCK).read_text() == "mine"
        assert {each.name for each in temporary.iterdir()} == {"victim", f"{PREFIX}planted", f"{PREFIX}itself"}

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a folder away")
    @pytest.mark.parametrize("given", ["folder", LOCK])
    def test_of_another_user_is_left_alone(self, temporary: Path, given: str) -> None:
        """By the superuser too, who may open all of it."""
        theirs = temporary / f"{PREFIX}theirs"
        theirs.mkdir()
        (theirs / LOCK).touch()
        os.chown(theirs if given == "folder" else theirs / LOCK, 65_534, 65_534)
        with scratch_folder():
            assert (theirs / LOCK).exists()

    def test_with_a_pipe_instead_of_its_lock_blocks_nobody(self, temporary: Path) -> None:
        (temporary / f"{PREFIX}planted").mkdir()
        os.mkfifo(temporary / f"{PREFIX}planted" / LOCK)
        with scratch_folder():
            pass
