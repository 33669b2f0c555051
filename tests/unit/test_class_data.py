"""Java's archive of Spark's classes: it makes a start quicker, and may never keep one from happening."""

import shlex
import subprocess
from pathlib import Path

import pytest

from lakehouse_ingest.environment.class_archive import archive, java_options, prepare
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.errors import LONGEST, SettingsRefused


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


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
