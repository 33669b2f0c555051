"""The locked jars: what is not exactly what the lock says is refused, and the sentence says what to do."""

import shutil
from pathlib import Path

import pytest

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.jars import cache_folder, ensure, fetch, jars_folder_from, present, remove_cache
from lakehouse_ingest.java import find_java


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


def test_a_folder_with_the_right_files_is_used(folder: Path) -> None:
    found = ensure("catalog", folder=folder)
    assert {jar.parent for jar in found} == {folder / "catalog"}
    assert ensure("catalog", folder=folder / "catalog") == found, "without a folder for each kind"


def test_a_wrong_checksum_is_refused(folder: Path) -> None:
    replace(folder / "catalog" / "avro-1.12.1.jar", b"something else")
    with pytest.raises(SettingsRefused, match=r"avro-1\.12\.1\.jar has a wrong checksum: put the files"):
        ensure("catalog", folder=folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "catalog" / "avro-1.12.1.jar").unlink()
    with pytest.raises(SettingsRefused, match=r"avro-1\.12\.1\.jar is missing: put the files"):
        ensure("catalog", folder=folder)


def test_a_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match=r"nowhere, where .* is missing \(and 28 more\)"):
        ensure("catalog", folder=tmp_path / "nowhere")


@pytest.mark.parametrize("kind", fetch.KINDS)
def test_every_locked_file_has_a_checksum(kind: str) -> None:
    lock = (fetch.HERE / f"{kind}.xml").read_text()
    extra = lock.count('e:classifier="tests"')  # beside a main file, not instead of one
    named = lock.count("<dependency ") + extra
    assert len(fetch._checksums(kind)) == named
    assert "://" not in lock.replace("http://ant.apache.org/ivy/extra", "")


def test_a_cache_that_lost_a_part_is_not_used(tmp_path: Path, folder: Path) -> None:
    home = fetch._home("catalog", tmp_path)
    shutil.copytree(folder / "catalog", home)
    sizes = (f"{jar.stat().st_size} {jar.name}\n" for jar in home.iterdir())
    marker = "".join(sizes)
    assert present("catalog", cache=tmp_path) == [], "nobody has compared the checksums"
    (home / fetch.VERIFIED).write_text(marker)
    assert len(present("catalog", cache=tmp_path)) == 29
    (home / "avro-1.12.1.jar").write_bytes(b"torn")
    assert present("catalog", cache=tmp_path) == []


def test_the_cache_is_removed_as_a_whole(tmp_path: Path) -> None:
    cache = cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert remove_cache(cache) == (cache, 0)
    (cache / "jars").mkdir(parents=True)
    (cache / "jars" / "one.jar").write_bytes(b"12345")
    assert remove_cache(cache) == (cache, 5)
    assert not cache.exists()


def test_an_empty_variable_names_no_folder() -> None:
    assert jars_folder_from({"LAKEHOUSE_INGEST_JARS": ""}) is None
    assert jars_folder_from({"LAKEHOUSE_INGEST_JARS": "/jars"}) == Path("/jars")


def fake_java(home: Path, release: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    wanted, other = fake_java(tmp_path / "a", "21.0.4"), fake_java(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": str(other.parent)}) == wanted
    assert find_java({"PATH": str(other.parent)}) == other


def test_a_java_that_spark_does_not_run_on_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "new", "25")
    right = fake_java(tmp_path / "right", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(right.parent)}) == right


def test_only_a_wrong_java_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "new", "25")
    with pytest.raises(SettingsRefused, match=f"needs Java 17 or 21, found only Java 25 at {java}"):
        find_java({"JAVA_HOME": str(tmp_path / "new")}, usual=())


def test_no_java_at_all_is_one_sentence() -> None:
    with pytest.raises(SettingsRefused, match="No Java was found: install Java 17 or 21"):
        find_java({}, usual=())
