"""The locked jars: what is not exactly what the lock says is refused, and the sentence says what to do."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from lakehouse_ingest.cli.verbs import jars as command
from lakehouse_ingest.environment.jars import (
    ALL_KINDS,
    cache_folder,
    ensure,
    jars_folder_from,
    present,
    remove_cache,
)
from lakehouse_ingest.environment.jars.bundle import bundle
from lakehouse_ingest.environment.jars.cache import VERIFIED, home_of
from lakehouse_ingest.environment.jars.lock import LOCK, locked
from lakehouse_ingest.environment.jars.repository import MIRROR, _central
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.errors import SettingsRefused, TryAgain


@pytest.fixture
def folder(tmp_path: Path, jars_folder: Path | None) -> Path:
    """A folder of one's own with the catalog's jars in it."""
    home = tmp_path / "jars" / "catalog"
    home.mkdir(parents=True)
    for jar in ensure("catalog", folder=jars_folder):
        (home / jar.name).symlink_to(jar)
    return home.parent


def replace(jar: Path, content: bytes) -> None:
    jar.unlink()
    jar.write_bytes(content)


class TestFolder:
    def test_with_the_right_files_is_used(self, folder: Path) -> None:
        found = ensure("catalog", folder=folder)
        assert {jar.parent for jar in found} == {folder / "catalog"}
        assert ensure("catalog", folder=folder / "catalog") == found, "without a folder for each kind"

    def test_with_a_wrong_checksum_is_refused(self, folder: Path) -> None:
        replace(folder / "catalog" / "avro-1.12.1.jar", b"something else")
        with pytest.raises(SettingsRefused, match=r"avro-1\.12\.1\.jar has a wrong checksum: put the files"):
            ensure("catalog", folder=folder)

    def test_that_misses_a_file_is_refused_and_names_it(self, folder: Path) -> None:
        (folder / "catalog" / "avro-1.12.1.jar").unlink()
        with pytest.raises(SettingsRefused, match=r"avro-1\.12\.1\.jar is missing: put the files"):
            ensure("catalog", folder=folder)

    def test_that_does_not_exist_is_refused_by_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsRefused, match=r"nowhere, where .* is missing \(and 28 more\)"):
            ensure("catalog", folder=tmp_path / "nowhere")


class TestLock:
    @pytest.mark.parametrize("kind", ALL_KINDS)
    def test_names_each_file_once_by_a_path_with_its_version(self, kind: str) -> None:
        names = [jar.name for jar in locked(kind)]
        assert len({*names}) == len(names) > 0
        for jar in locked(kind):
            folder, version, name = jar.path.split("/")[-3:]
            assert name.startswith(f"{folder}-{version}")
            assert re.fullmatch("[0-9a-f]{64}", jar.sha256)
        assert "://" not in LOCK.read_text(encoding="utf-8")

    def test_leaves_the_central_repository_to_sparks_own_ivy(self) -> None:
        """No address is kept here."""
        assert re.fullmatch(r"https://[a-z0-9.]+/maven2/", _central())


class TestCache:
    def test_is_where_the_user_keeps_caches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder() == tmp_path / "lakehouse-ingest"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        if sys.platform == "linux":
            assert cache_folder() == tmp_path / ".cache" / "lakehouse-ingest"

    def test_that_lost_a_part_is_not_used(self, tmp_path: Path, folder: Path) -> None:
        home = home_of("catalog", tmp_path)
        shutil.copytree(folder / "catalog", home)
        sizes = (f"{jar.stat().st_size} {jar.name}\n" for jar in home.iterdir())
        marker = "".join(sizes)
        assert present("catalog", cache=tmp_path) == [], "nobody has compared the checksums"
        (home / VERIFIED).write_text(marker)
        assert len(present("catalog", cache=tmp_path)) == 29
        (home / "avro-1.12.1.jar").write_bytes(b"torn")
        assert present("catalog", cache=tmp_path) == []

    def test_is_removed_as_a_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        cache = cache_folder()
        assert remove_cache(cache) == (cache, 0)
        (cache / "jars").mkdir(parents=True)
        (cache / "jars" / "one.jar").write_bytes(b"12345")
        assert remove_cache(cache) == (cache, 5)
        assert not cache.exists()

    def test_is_used_where_the_variable_is_empty(self) -> None:
        assert jars_folder_from({"LAKEHOUSE_INGEST_JARS": ""}) is None
        assert jars_folder_from({"LAKEHOUSE_INGEST_JARS": "/jars"}) == Path("/jars")


# -- a folder for machines without a network --------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the catalog's jars, on a machine that reaches nobody."""
    monkeypatch.setenv(MIRROR, (tmp_path / "nowhere").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = home_of("catalog", cache_folder())
    shutil.copytree(folder / "catalog", home)
    (home / VERIFIED).write_text("".join(f"{jar.stat().st_size} {jar.name}\n" for jar in home.iterdir()))
    return home


class TestBundle:
    @pytest.mark.usefixtures("cache")
    def test_is_a_folder_of_jars(self, tmp_path: Path) -> None:
        made = bundle("catalog", tmp_path / "usb")
        assert ensure("catalog", folder=tmp_path / "usb") == made.jars
        assert (made.added, len(made.jars)) == (29, 29)
        assert bundle("catalog", tmp_path / "usb").added == 0, "again it is there already"

    @pytest.mark.usefixtures("cache")
    def test_is_completed_where_files_are_missing_or_wrong(self, tmp_path: Path) -> None:
        made = bundle("catalog", tmp_path / "usb")
        replace(made.jars[0], b"torn")
        made.jars[1].unlink()
        assert bundle("catalog", tmp_path / "usb").added == 2
        assert ensure("catalog", folder=tmp_path / "usb") == made.jars

    def test_is_not_made_from_a_broken_cache(self, cache: Path, tmp_path: Path) -> None:
        jar = cache / "avro-1.12.1.jar"
        replace(jar, bytes(jar.stat().st_size))
        with pytest.raises(TryAgain, match=r"avro-1\.12\.1\.jar has a wrong checksum: run `lakehouse-ingest clean`"):
            bundle("catalog", tmp_path / "usb")
        assert not (tmp_path / "usb" / "catalog" / jar.name).exists()

    @pytest.mark.usefixtures("cache")
    def test_downloads_what_the_cache_lacks(self, tmp_path: Path) -> None:
        with pytest.raises(TryAgain, match="The catalog-s3 jars could not be downloaded"):
            bundle("catalog-s3", tmp_path / "usb")

    @pytest.mark.usefixtures("cache")
    def test_that_cannot_be_written_is_refused_by_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "usb").write_text("a file")
        with pytest.raises(SettingsRefused, match=r"can't be put into .*usb .*: name a folder"):
            bundle("catalog", tmp_path / "usb")

    @pytest.mark.usefixtures("cache")
    def test_by_the_command_line_says_what_was_done_and_what_to_do(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for state in ("29 of them new", "all of them there already"):
            command.bundle(tmp_path / "usb", ["catalog"])
            did, to_do = capsys.readouterr().out.splitlines()
            assert did.startswith(f"{tmp_path / 'usb' / 'catalog'}: 29 jars, ")
            assert did.endswith(state)
            assert "set LAKEHOUSE_INGEST_JARS there" in to_do

    def test_of_an_unknown_kind_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(
            SettingsRefused, match="There are no jars for sparkle: choose from spark, catalog, broker, catalog"
        ):
            command.bundle(tmp_path, ["sparkle"])


# -- Java -------------------------------------------------------------------------------------------------------------


def fake_java(home: Path, release: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\"' >&2\n")
    java.chmod(0o755)
    return java


class TestJava:
    def test_of_java_home_comes_before_that_of_the_path(self, tmp_path: Path) -> None:
        wanted, other = fake_java(tmp_path / "a", "21.0.4"), fake_java(tmp_path / "b", "17.0.1")
        assert find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(other.parent)}) == wanted
        assert find_java({"PATH": str(other.parent)}) == other

    def test_that_spark_does_not_run_on_is_passed_over(self, tmp_path: Path) -> None:
        fake_java(tmp_path / "new", "25")
        right = fake_java(tmp_path / "right", "17.0.1")
        assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(right.parent)}) == right

    def test_of_a_wrong_version_is_named_in_one_sentence(self, tmp_path: Path) -> None:
        java = fake_java(tmp_path / "new", "25")
        with pytest.raises(SettingsRefused, match=f"needs Java 17 or 21, found only Java 25 at {java}"):
            find_java({"JAVA_HOME": str(tmp_path / "new")}, usual=())

    def test_that_is_nowhere_is_one_sentence(self) -> None:
        with pytest.raises(SettingsRefused, match="No Java was found: install Java 17 or 21"):
            find_java({}, usual=())
