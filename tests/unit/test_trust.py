"""What is run from a cache was put there by nobody but us."""

import os
import shlex
from pathlib import Path

import pytest

from lakehouse_ingest.environment.class_archive import archive, java_options, prepare
from lakehouse_ingest.environment.jars import cache_folder, ensure, mistrust
from lakehouse_ingest.environment.jars.cache import VERIFIED, home_of
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.errors import LONGEST, SettingsRefused

NOBODY = 65_534
superuser = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the catalog's jars in it, as far as a start looks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = home_of("catalog", cache_folder())
    home.mkdir(parents=True)
    (home / "iceberg.jar").write_bytes(b"1234")
    (home / VERIFIED).write_text("4 iceberg.jar\n")
    return home


def places(home: Path) -> list[Path]:
    return [home / "iceberg.jar", home, home.parent, home.parent.parent]


class TestCache:
    def test_of_our_own_is_used(self, cache: Path) -> None:
        assert ensure("catalog") == [cache / "iceberg.jar"]

    @pytest.mark.parametrize("place", range(4))
    def test_that_anyone_may_write_is_refused(self, cache: Path, place: int) -> None:
        open_to_all = places(cache)[place]
        open_to_all.chmod(0o777)
        with pytest.raises(SettingsRefused, match=r"can be written by any user.*run code.*chmod go-w") as refused:
            ensure("catalog")
        assert str(open_to_all) in str(refused.value)
        assert len(str(refused.value)) - len(str(open_to_all)) < LONGEST

    @superuser
    @pytest.mark.parametrize("place", range(4))
    def test_of_another_user_is_refused(self, cache: Path, place: int) -> None:
        os.chown(places(cache)[place], NOBODY, 0)
        with pytest.raises(SettingsRefused, match=r"belongs to another user \(65534\)"):
            ensure("catalog")

    @superuser
    def test_may_be_written_by_a_group_without_others_in_it(self, cache: Path) -> None:
        """The user's own, as a umask of 0002 presumes; root's; or one without a name, as in containers."""
        jar = cache / "iceberg.jar"
        jar.chmod(0o664)
        for gid in (0, 4_000_000):
            os.chown(jar, 0, gid)
            assert mistrust([jar]) == ""
        os.chown(jar, 0, NOBODY)
        assert mistrust([jar]) == f"{jar} can be written by other users of the group {NOBODY}"


class TestClassArchive:
    def test_that_anyone_may_write_is_not_used(self, cache: Path) -> None:
        """A start is slower without it, and no worse; who asks for one is told."""
        java = find_java()
        made = archive(java)
        made.parent.mkdir(parents=True)
        made.write_bytes(b"")
        assert shlex.split(java_options(java))[0] == f"-XX:SharedArchiveFile={made}"
        for place in (made, made.parent, cache.parent.parent):
            before = place.stat().st_mode
            place.chmod(0o777)
            assert java_options(java) == ""
            with pytest.raises(SettingsRefused, match="can be written by any user"):
                prepare(java)
            place.chmod(before)
