"""Java's archive of Spark's classes: it makes a start quicker, and may never keep one from happening."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakehouse_ingest.environment.class_archive import archive, java_options, prepare
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.kept_archives import FRESH, LOCK, NEWEST, UNUSED_S, make
from lakehouse_ingest.errors import LONGEST, SettingsRefused


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


MAKER = """
import sys, time
from pathlib import Path
from lakehouse_ingest.environment.kept_archives import make

def write(fresh):
    with log.open("a") as lines:
        lines.write(f"{fresh.name}\\n")
    time.sleep(0.01)
    fresh.write_bytes(b"classes")

log, gate = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not gate.exists():
    time.sleep(0.001)
for made in sys.argv[3:]:
    make(Path(made), write)
"""


def make_at_the_same_moment(folder: Path, wanted: Sequence[Sequence[Path]]) -> list[str]:
    """Each list by a process of its own; the names that were written, in their order."""
    log, gate = folder / "log", folder / "gate"
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER, log, gate, *made], stdout=subprocess.PIPE) for made in wanted
    ]
    try:
        for maker in makers:
            assert maker.stdout is not None
            assert maker.stdout.readline() == b"ready\n"
        gate.touch()
        assert [maker.wait(60) for maker in makers] == [0] * len(makers)
    finally:
        for maker in makers:
            maker.kill()
            maker.communicate()
    return log.read_text().splitlines()


def put(said: bytes) -> Path:
    made = archive(find_java())
    made.parent.mkdir(parents=True)
    made.write_bytes(said)
    return made


class TestClassArchive:
    def test_that_does_not_exist_gives_java_no_option(self, cache: Path) -> None:
        assert java_options(find_java()) == ""
        assert not cache.exists()

    def test_in_a_path_with_a_space_is_one_word(self, cache: Path) -> None:
        made = put(b"")
        assert made.is_relative_to(cache)
        assert shlex.split(java_options(find_java()))[0] == f"-XX:SharedArchiveFile={made}"

    @pytest.mark.usefixtures("cache")
    @pytest.mark.parametrize("said", [b"", b"no archive", bytes(2**16)], ids=["empty", "text", "zeros"])
    def test_that_is_broken_does_not_keep_java_from_starting(self, said: bytes) -> None:
        put(said)
        java = find_java()
        ended = subprocess.run(
            [java, *shlex.split(java_options(java)), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
        assert "version" in ended.stderr
        assert "rchive" not in ended.stderr + ended.stdout

    def test_that_can_not_be_written_names_its_folder(self, cache: Path) -> None:
        """A file in its place: to the superuser every folder is open."""
        cache.write_text("")
        with pytest.raises(SettingsRefused, match=r"Java's classes can't be kept in .*set XDG_CACHE_HOME") as refused:
            prepare(find_java())
        assert len(str(refused.value)) - len(str(cache)) < LONGEST

    @pytest.mark.usefixtures("cache")
    def test_that_was_removed_meanwhile_does_not_keep_java_from_starting(self) -> None:
        made, java = put(b""), find_java()
        options = shlex.split(java_options(java))
        made.unlink()
        ended = subprocess.run([java, *options, "-version"], capture_output=True, text=True, timeout=60, check=True)
        assert "rchive" not in ended.stderr + ended.stdout

    def test_is_made_once_by_processes_that_start_at_the_same_moment(self, tmp_path: Path) -> None:
        made = tmp_path / "spark-1.jsa"
        assert make_at_the_same_moment(tmp_path, [[made]] * 4) == [made.name]
        assert made.read_bytes() == b"classes"

    def test_replaces_older_ones_though_many_processes_make_some_at_the_same_moment(self, tmp_path: Path) -> None:
        folder = tmp_path / "classes"
        folder.mkdir()
        each = [[folder / f"spark-{process}{number}.jsa" for number in range(3)] for process in range(4)]
        written = make_at_the_same_moment(tmp_path, each)
        assert sorted(written) == sorted(made.name for one in each for made in one)
        assert {file.name for file in folder.iterdir()} == {LOCK, *written[-NEWEST:]}


class TestUnusedArchive:
    def test_is_removed_when_another_one_is_made(self, cache: Path) -> None:
        used, now = put(b""), time.time()
        unused, lock, young = (used.with_name(name) for name in ("spark-0.jsa", "spark-0.lock", "spark-1.jsa"))
        for file, age in ((used, 2 * UNUSED_S), (unused, UNUSED_S + 60), (lock, 0), (young, UNUSED_S - 60)):
            file.touch()
            os.utime(file, (now - age, now - age))
        java_options(find_java())  # a start
        made = used.with_name("spark-2.jsa")
        assert make(made, Path.touch)
        assert {*made.parent.glob("spark-*")} == {used, young, made}
        assert made.is_relative_to(cache)

    def test_goes_first_if_there_are_too_many(self, tmp_path: Path) -> None:
        now = time.time()
        others = [tmp_path / f"spark-{age}.jsa" for age in range(NEWEST + 2)]
        for age, file in enumerate(others):
            file.touch()
            os.utime(file, (now - age, now - age))
        made = tmp_path / "spark-new.jsa"
        assert make(made, Path.touch)
        assert {*tmp_path.glob("*.jsa")} == {made, *others[: NEWEST - 1]}

    def test_of_a_maker_that_was_killed_is_removed(self, tmp_path: Path) -> None:
        left = tmp_path / f"{FRESH}1"
        left.mkdir()
        (left / "spark-1.jsa").touch()
        assert make(tmp_path / "spark-1.jsa", Path.touch)
        assert not left.exists()
