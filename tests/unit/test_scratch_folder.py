"""What a process leaves behind is removed by the next one, and nothing of one that lives."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lakehouse_ingest.scratch import PREFIX, scratch_folder

HOLDS_ONE = """
from pathlib import Path
from lakehouse_ingest.scratch import scratch_folder
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


def test_a_folder_ends_with_its_block(temporary: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temporary
        (folder / "checkpoint").mkdir()
    assert [*temporary.iterdir()] == []


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(temporary: Path) -> None:
    (temporary / f"{PREFIX}of-somebody-else").mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLDS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        held = Path(holder.stdout.readline().decode().strip())
        with scratch_folder() as mine:
            assert {each.name for each in temporary.iterdir()} == {held.name, mine.name, f"{PREFIX}of-somebody-else"}
        holder.kill()
        holder.wait()
        assert held.exists()
        with scratch_folder():
            assert not held.exists()
    assert [each.name for each in temporary.iterdir()] == [f"{PREFIX}of-somebody-else"]
