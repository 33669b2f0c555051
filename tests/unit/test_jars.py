"""The locked jars: what is not exactly what the lock says is refused, and the sentence says what to do."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lakehouse_ingest.cli.verbs import jars as command
from lakehouse_ingest.environment.jars import cache_folder, ensure, fetch, ivy, jars_folder_from, present, remove_cache
from lakehouse_ingest.environment.jars.bundle import bundle
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


# -- a mirror of one's own --------------------------------------------------------------------------------------------


def small_lock(folder: Path) -> Path:
    """One jar, the smallest of Spark's."""
    lock = folder / "small.xml"
    lock.write_text(
        '<ivy-module version="2.0"><info organisation="tests" module="small"/>'
        '<dependencies defaultconf="default->master">'
        '<dependency org="org.tukaani" name="xz" rev="1.10" transitive="false"/>'
        "</dependencies></ivy-module>"
    )
    return lock


def maven_repository(folder: Path, jar: Path) -> Path:
    """A folder with that jar, as it lies in a repository."""
    home = folder / "org" / "tukaani" / "xz" / "1.10"
    home.mkdir(parents=True)
    (home / jar.name).symlink_to(jar)
    (home / jar.with_suffix(".pom").name).write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>org.tukaani</groupId><artifactId>xz</artifactId><version>1.10</version></project>"
    )
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def repository(tmp_path: Path, jars_folder: Path | None) -> Path:
    xz = next(jar for jar in ensure("spark", folder=jars_folder) if jar.name.startswith("xz-"))
    return maven_repository(tmp_path / "a & b", xz)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def fetched_by_ivy(folder: Path, **environ: str) -> list[str]:
    names = ivy.retrieve(
        find_java(),
        small_lock(folder),
        into=folder / "got",
        cache=folder / "ivy",
        log=folder / "ivy.log",
        environ=environ,
    )
    return [name for _, name in names]


def test_a_mirror_is_asked_by_its_address(repository: Path, tmp_path: Path) -> None:
    with served(repository.parent) as address:
        mirror = f"{address}/{quote(repository.name, safe='&')}"
        assert fetched_by_ivy(tmp_path, LAKEHOUSE_INGEST_JARS_MIRROR=mirror) == ["xz-1.10.jar"]
    assert (tmp_path / "got" / "xz-1.10.jar").read_bytes() == next(repository.rglob("*.jar")).read_bytes()
    assert not (tmp_path / "ivy" / ivy.OPTIONS).exists()


def test_a_mirror_may_be_a_folder(repository: Path, tmp_path: Path) -> None:
    assert fetched_by_ivy(tmp_path, LAKEHOUSE_INGEST_JARS_MIRROR=repository.as_uri()) == ["xz-1.10.jar"]


def test_a_mirror_without_a_file_is_named_and_nobody_else_is_asked(repository: Path, tmp_path: Path) -> None:
    next(repository.rglob("*.jar")).unlink()
    next(repository.rglob("*.pom")).unlink()
    with pytest.raises(
        TryAgain,
        match=r"\(org\.tukaani#xz;1\.10: not found; .* repository in LAKEHOUSE_INGEST_JARS_MIRROR has them and run",
    ):
        fetched_by_ivy(tmp_path, LAKEHOUSE_INGEST_JARS_MIRROR=repository.as_uri())


@pytest.mark.parametrize("mirror", ["maven.example", "ftp://maven.example", "https://me:secret@maven.example/"])
def test_a_mirror_that_ivy_cannot_use_is_refused(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="LAKEHOUSE_INGEST_JARS_MIRROR should be the http://") as refused:
        fetched_by_ivy(tmp_path, LAKEHOUSE_INGEST_JARS_MIRROR=mirror)
    assert "secret" not in str(refused.value)


def test_a_proxys_password_is_no_argument_and_nobody_elses_to_read(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\necho "downloading $*"; stat -c "downloading %a" ${1#@}; cat ${1#@} >&2\n')
    java.chmod(0o755)
    retrieving = ivy.retrieve(
        java,
        tmp_path / "any.xml",
        into=tmp_path,
        cache=tmp_path / "ivy",
        log=tmp_path / "ivy.log",
        environ={"HTTPS_PROXY": "http://me:secret@proxy:3128"},
    )
    first, second = (name for _, name in retrieving)
    assert ("secret" in first, second) == (False, "600")
    assert '"-Dhttp.proxyPassword=secret"\n' in (tmp_path / "ivy.log").read_text()
    assert "secret" not in "".join(line for line in (tmp_path / "ivy.log").read_text().splitlines() if "@" in line)


# -- a folder for machines without a network --------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the catalog's jars, on a machine that reaches nobody."""
    monkeypatch.setenv(ivy.MIRROR, (tmp_path / "nowhere").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = fetch._home("catalog", cache_folder())
    shutil.copytree(folder / "catalog", home)
    (home / fetch.VERIFIED).write_text("".join(f"{jar.stat().st_size} {jar.name}\n" for jar in home.iterdir()))
    return home


@pytest.mark.usefixtures("cache")
def test_a_bundle_is_a_folder_of_jars(tmp_path: Path) -> None:
    made = bundle("catalog", tmp_path / "usb")
    assert ensure("catalog", folder=tmp_path / "usb") == made.jars
    assert (made.added, len(made.jars)) == (29, 29)
    assert bundle("catalog", tmp_path / "usb").added == 0, "again it is there already"


@pytest.mark.usefixtures("cache")
def test_a_bundle_is_mended(tmp_path: Path) -> None:
    made = bundle("catalog", tmp_path / "usb")
    replace(made.jars[0], b"torn")
    made.jars[1].unlink()
    assert bundle("catalog", tmp_path / "usb").added == 2
    assert ensure("catalog", folder=tmp_path / "usb") == made.jars


def test_a_broken_cache_makes_no_bundle(cache: Path, tmp_path: Path) -> None:
    jar = cache / "avro-1.12.1.jar"
    replace(jar, bytes(jar.stat().st_size))
    with pytest.raises(TryAgain, match=r"avro-1\.12\.1\.jar has a wrong checksum: run `lakehouse-ingest clean`"):
        bundle("catalog", tmp_path / "usb")
    assert not (tmp_path / "usb" / "catalog" / jar.name).exists()


@pytest.mark.usefixtures("cache")
def test_a_bundle_fetches_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TryAgain, match="The catalog-s3 jars could not be downloaded"):
        bundle("catalog-s3", tmp_path / "usb")


@pytest.mark.usefixtures("cache")
def test_a_bundle_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "usb").write_text("a file")
    with pytest.raises(SettingsRefused, match=r"can't be put into .*usb .*: name a folder"):
        bundle("catalog", tmp_path / "usb")


@pytest.mark.usefixtures("cache")
def test_the_command_says_what_it_did_and_what_to_do_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for state in ("29 of them new", "all of them there already"):
        command.bundle(tmp_path / "usb", ["catalog"])
        did, to_do = capsys.readouterr().out.splitlines()
        assert did.startswith(f"{tmp_path / 'usb' / 'catalog'}: 29 jars, ")
        assert did.endswith(state)
        assert "set LAKEHOUSE_INGEST_JARS there" in to_do


def test_a_bundle_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="There are no jars for sparkle, but for spark, catalog, broker, catalog"):
        command.bundle(tmp_path, ["sparkle"])


# -- Java -------------------------------------------------------------------------------------------------------------


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
