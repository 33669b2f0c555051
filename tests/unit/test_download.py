"""Downloads of the locked jars: complete and right, or refused by one sentence that says what to do."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from lakehouse_ingest.environment.jars import cache, cache_folder, ensure, lock, present
from lakehouse_ingest.environment.jars import download as downloads
from lakehouse_ingest.environment.jars.download import Received, download
from lakehouse_ingest.environment.jars.lock import Jar
from lakehouse_ingest.environment.jars.repository import MIRROR
from lakehouse_ingest.errors import SettingsRefused, TryAgain, fitted
from tests.services.maven import Maven, locked_as, put_into

SMALL = "org/tukaani/xz/1.10/xz-1.10.jar"
LARGE = "org/example/large/1/large-1.jar"
CONTENT = bytes(range(256)) * 4096
NOBODY = 65_534


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE_S", 0.01)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maven]:
    """A repository, below a path of its host, that is asked instead of the central one."""
    with Maven(tmp_path / "served").serving() as serving:
        monkeypatch.setenv(MIRROR, f"{serving.uri}/a%20&%20b/maven2")
        yield serving


@pytest.fixture
def root(maven: Maven) -> Path:
    return maven.root / "a & b" / "maven2"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "got"
    folder.mkdir()
    return folder


def downloaded(jars: list[Jar], into: Path) -> list[Received]:
    return [*download("small", jars, into)]


class TestDownload:
    def test_puts_each_file_where_it_belongs_and_says_how_far_it_is(self, root: Path, into: Path) -> None:
        jars = [put_into(root, SMALL, b"small"), put_into(root, LARGE, CONTENT)]
        steps = downloaded(jars, into)
        assert {file.name: file.read_bytes() for file in into.iterdir()} == {
            "xz-1.10.jar": b"small",
            "large-1.jar": CONTENT,
        }
        assert {step.file for step in steps if step.file} == {"xz-1.10.jar", "large-1.jar"}
        assert steps[-1].size == len(CONTENT) + 5
        assert [step.size for step in steps] == sorted(step.size for step in steps)

    def test_runs_several_at_a_time(self, maven: Maven, root: Path, into: Path) -> None:
        """Each is answered only when two have been asked for."""
        both = threading.Barrier(2, timeout=20)
        maven.before = lambda _: both.wait()
        downloaded([put_into(root, SMALL, b"small"), put_into(root, LARGE, CONTENT)], into)

    def test_reads_a_repository_that_is_a_folder(
        self, root: Path, into: Path, monkeypatch: pytest.MonkeyPatch, maven: Maven
    ) -> None:
        monkeypatch.setenv(MIRROR, root.as_uri())
        downloaded([put_into(root, LARGE, CONTENT)], into)
        assert (into / "large-1.jar").read_bytes() == CONTENT
        assert not maven.asked


class TestWrongChecksum:
    @pytest.mark.parametrize("served", [b"SMALL", b"small and more", CONTENT], ids=["other", "longer", "much longer"])
    def test_is_refused_and_nothing_of_the_file_stays(self, served: bytes, root: Path, into: Path) -> None:
        put_into(root, SMALL, served)
        with pytest.raises(
            TryAgain,
            match=r"Of the downloaded small jars xz-1\.10\.jar has a wrong checksum.*; run again, or name a folder",
        ):
            downloaded([locked_as(SMALL, b"small")], into)
        assert not [*into.iterdir()]

    def test_leaves_the_files_that_are_right(self, root: Path, into: Path) -> None:
        downloaded([put_into(root, LARGE, CONTENT)], into)
        put_into(root, SMALL, b"SMALL")
        with pytest.raises(TryAgain):
            downloaded([locked_as(SMALL, b"small")], into)
        assert [file.name for file in into.iterdir()] == ["large-1.jar"]


class TestRefusal:
    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_names_file_and_status_and_is_not_repeated(self, status: int, maven: Maven, root: Path, into: Path) -> None:
        jar = put_into(root, SMALL, b"small")
        maven.statuses["xz-1.10.jar"] = [status]
        with pytest.raises(
            TryAgain,
            match=rf"\(xz-1\.10\.jar: {status} .*\); check the repository in {MIRROR} and run again",
        ):
            downloaded([jar], into)
        assert maven.requests == {"xz-1.10.jar": 1}
        assert {path for path, _ in maven.asked} == {f"/a & b/maven2/{SMALL}"}, "nobody else is asked"

    def test_of_a_folder_says_what_the_system_says(
        self, tmp_path: Path, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(MIRROR, (tmp_path / "nowhere").as_uri())
        with pytest.raises(TryAgain, match=r"\(xz-1\.10\.jar: No such file or directory\)"):
            downloaded([locked_as(SMALL, b"small")], into)

    def test_stops_the_other_files(self, maven: Maven, root: Path, into: Path) -> None:
        """Of many files those that wait for their turn are not asked for."""
        jars = [put_into(root, f"org/example/j{number}/1/j{number}-1.jar", b"jar") for number in range(100)]
        maven.statuses["j0-1.jar"] = [404]
        with pytest.raises(TryAgain):
            downloaded(jars, into)
        assert len(maven.asked) < len(jars)


class TestConnection:
    def test_that_is_cut_is_resumed(self, maven: Maven, root: Path, into: Path) -> None:
        jar = put_into(root, LARGE, CONTENT)
        maven.cuts["large-1.jar"] = [1_000, 500_000]
        downloaded([jar], into)
        assert (into / "large-1.jar").read_bytes() == CONTENT
        ranges = [asked for _, asked in maven.asked]
        assert (ranges[0], len(ranges)) == ("", 3)
        assert 0 < int(ranges[2].removeprefix("bytes=").rstrip("-")) <= 501_000

    def test_that_is_cut_is_begun_again_where_ranges_are_unknown(self, maven: Maven, root: Path, into: Path) -> None:
        maven.ranges = False
        maven.cuts["large-1.jar"] = [700_000]
        downloaded([put_into(root, LARGE, CONTENT)], into)
        assert (into / "large-1.jar").read_bytes() == CONTENT

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_to_a_server_in_trouble_is_tried_again(self, status: int, maven: Maven, root: Path, into: Path) -> None:
        maven.statuses["xz-1.10.jar"] = [status, status]
        downloaded([put_into(root, SMALL, b"small")], into)
        assert maven.requests == {"xz-1.10.jar": 3}

    def test_that_is_cut_again_and_again_ends_with_one_sentence(self, maven: Maven, root: Path, into: Path) -> None:
        maven.cuts["large-1.jar"] = [10] * 10
        with pytest.raises(TryAgain, match=r"The small jars could not be downloaded \(large-1\.jar: .*\); check the"):
            downloaded([put_into(root, LARGE, CONTENT)], into)
        assert maven.requests == {"large-1.jar": downloads.ATTEMPTS}

    def test_that_nobody_takes_is_named_once(self, into: Path, monkeypatch: pytest.MonkeyPatch, maven: Maven) -> None:
        monkeypatch.setenv(MIRROR, "http://127.0.0.1:9/maven2")
        with pytest.raises(TryAgain, match=r"\(\w+-1[.\d]*\.jar: [^()]*\[Errno 111\] Connection refused\)") as refused:
            downloaded([locked_as(SMALL, b"small"), locked_as(LARGE, CONTENT)], into)
        assert str(refused.value).count("jar: ") == 1
        assert not maven.asked

    def test_to_nowhere_says_to_see_to_the_network(self, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a mirror, by a proxy that is not there: what a machine without a network looks like."""
        monkeypatch.delenv(MIRROR, raising=False)
        for variable in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, "http://me:secret@127.0.0.1:9")
        began = monotonic()
        with pytest.raises(
            TryAgain, match=r"; check the network and run again, or name a folder of `jars bundle`"
        ) as refused:
            downloaded([locked_as(SMALL, b"small")], into)
        assert "secret" not in str(refused.value)
        assert fitted(str(refused.value)).endswith("in LAKEHOUSE_INGEST_JARS"), "what to do is not cut off"
        assert monotonic() - began < 20


class TestProxyVariables:
    def test_that_only_some_clients_read_change_nothing(
        self, root: Path, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Java's clients know nothing of ALL_PROXY."""
        monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
        jar = put_into(root, SMALL, CONTENT)
        downloaded([jar], into)
        assert (into / jar.name).read_bytes() == CONTENT

    @pytest.mark.usefixtures("maven")
    @pytest.mark.parametrize("wrong", ["http://user:pla/nted@h:9", "http://us[er:planted@proxy:80", "socks5://h:9"])
    def test_that_are_wrong_are_refused_without_their_value(
        self, wrong: str, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", wrong)
        with pytest.raises(SettingsRefused, match=r"^http_proxy should be http://HOST:PORT") as refusal:
            downloaded([], into)
        assert "nted" not in str(refusal.value)


class TestMirror:
    @pytest.mark.parametrize("mirror", ["maven.example", "ftp://maven.example", "https://me:secret@maven.example/"])
    def test_that_cannot_be_used_is_refused(self, mirror: str, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(MIRROR, mirror)
        with pytest.raises(SettingsRefused, match="LAKEHOUSE_INGEST_JARS_MIRROR should be the http://") as refused:
            downloaded([locked_as(SMALL, b"small")], into)
        assert "secret" not in str(refused.value)

    def test_with_certificates_that_cannot_be_read_is_refused(
        self, maven: Maven, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(into / "none.pem"))
        with pytest.raises(SettingsRefused, match=r"SSL_CERT_FILE names .*, where no certificates can be read"):
            downloaded([locked_as(SMALL, b"small")], into)
        assert not maven.asked

    def test_may_ask_for_a_login_that_netrc_has(
        self, maven: Maven, root: Path, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        maven.login = "me:secret"
        jar = put_into(root, SMALL, b"small")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        with pytest.raises(TryAgain, match=r"\(xz-1\.10\.jar: 401 Unauthorized\)"):
            downloaded([jar], into)
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
        (tmp_path / "netrc").chmod(0o600)
        downloaded([jar], into)
        assert (into / "xz-1.10.jar").read_bytes() == b"small"

    @pytest.mark.parametrize("ending", ["", "/"])
    def test_may_end_with_a_slash(
        self, ending: str, maven: Maven, root: Path, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(MIRROR, f"{maven.uri}/a%20&%20b/maven2{ending}")
        downloaded([put_into(root, SMALL, b"small")], into)
        assert (into / "xz-1.10.jar").read_bytes() == b"small"


@contextmanager
def as_an_ordinary_user(folder: str | None = None) -> Iterator[None]:
    """Who owns the folder; to the superuser every folder is open."""
    before = os.geteuid()
    if before == 0:
        if folder:
            os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


FETCHES = """
import sys
from lakehouse_ingest.environment.jars import lock
from lakehouse_ingest.environment.jars.lock import Jar, _LOCKED
_LOCKED["small"] = [Jar(path, sha256, int(size)) for path, sha256, size in (each.split() for each in sys.argv[1:])]
from lakehouse_ingest.environment.jars import ensure
print(*(jar.name for jar in ensure("small")))
"""


class TestCache:
    @pytest.fixture
    def small(self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Jar]:
        """A kind of two jars, and an empty cache."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
        jars = [put_into(root, SMALL, b"small"), put_into(root, LARGE, CONTENT)]
        monkeypatch.setitem(lock._LOCKED, "small", jars)
        return jars

    @pytest.mark.usefixtures("small")
    def test_is_filled_once(self, maven: Maven, capsys: pytest.CaptureFixture[str]) -> None:
        assert present("small") == []
        names = [jar.name for jar in ensure("small")]
        assert names == [jar.name for jar in present("small")] == ["large-1.jar", "xz-1.10.jar"]
        ensure("small")
        assert maven.requests == {"xz-1.10.jar": 1, "large-1.jar": 1}
        first, *lines, last = capsys.readouterr().err.splitlines()
        assert first.startswith("Downloading 2 small jars, 1.0 MB, once; they are kept in ")
        assert {line.split()[0] for line in lines} == {"1/2", "2/2"}
        assert last == "The small jars are complete."

    @pytest.mark.usefixtures("small")
    def test_keeps_what_came_before_a_failure(self, maven: Maven, capsys: pytest.CaptureFixture[str]) -> None:
        maven.before = lambda path: threading.Event().wait(0.3) if path.endswith("large-1.jar") else None
        maven.statuses["large-1.jar"] = [404]
        with pytest.raises(TryAgain):
            ensure("small")
        assert present("small") == []
        capsys.readouterr()
        assert len(ensure("small")) == 2
        assert capsys.readouterr().err.startswith("Downloading 1 small jar, 1.0 MB, once")
        assert maven.requests == {"xz-1.10.jar": 1, "large-1.jar": 2}

    def test_takes_from_an_older_version_what_is_the_same(
        self, small: list[Jar], maven: Maven, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = ensure("small")
        newer = put_into(root, "org/tukaani/xz/1.11/xz-1.11.jar", b"newer")
        monkeypatch.setitem(lock._LOCKED, "small", [newer, small[1]])
        assert [jar.name for jar in ensure("small")] == ["large-1.jar", "xz-1.11.jar"]
        assert maven.requests == {"xz-1.10.jar": 1, "large-1.jar": 1, "xz-1.11.jar": 1}
        assert all(jar.exists() for jar in before)

    @pytest.mark.usefixtures("small")
    def test_takes_nothing_that_was_changed(self, maven: Maven, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        ensure("small")[0].write_bytes(bytes(len(CONTENT)))
        newer = put_into(root, "org/tukaani/xz/1.11/xz-1.11.jar", b"newer")
        monkeypatch.setitem(lock._LOCKED, "small", [newer, locked_as(LARGE, CONTENT)])
        assert ensure("small")[0].read_bytes() == CONTENT
        assert maven.requests["large-1.jar"] == 2

    def test_is_filled_by_one_of_two_processes(self, small: list[Jar], maven: Maven) -> None:
        maven.before = lambda _: threading.Event().wait(0.5)
        words = [f"{jar.path} {jar.sha256} {jar.size}" for jar in small]
        both = [
            subprocess.Popen([sys.executable, "-c", FETCHES, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        ended = [process.communicate(timeout=60) for process in both]
        assert [out.decode().split() for out, _ in ended] == [["large-1.jar", "xz-1.10.jar"]] * 2
        assert maven.requests == {"xz-1.10.jar": 1, "large-1.jar": 1}

    @pytest.mark.usefixtures("small")
    def test_that_cannot_be_written_is_one_sentence(self, tmp_path: Path, maven: Maven) -> None:
        """A file in its place: to the superuser every folder is open."""
        (tmp_path / "caches").write_text("")
        with pytest.raises(SettingsRefused, match=r"The jars can't be kept in .*: set XDG_CACHE_HOME to a folder"):
            ensure("small")
        assert not maven.asked

    @pytest.mark.parametrize("closed", ["", "lakehouse-ingest"], ids=["around it", "itself"])
    @pytest.mark.usefixtures("small")
    def test_that_is_read_only_is_one_sentence(
        self, closed: str, maven: Maven, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with tempfile.TemporaryDirectory() as folder, as_an_ordinary_user(folder):
            monkeypatch.setenv("XDG_CACHE_HOME", folder)
            cache_folder().mkdir()
            Path(folder, closed).chmod(0o500)
            with pytest.raises(SettingsRefused, match=r"The jars can't be kept in .*: set XDG_CACHE_HOME to a folder"):
                ensure("small")
            Path(folder, closed).chmod(0o700)
        assert not maven.asked

    @pytest.mark.usefixtures("small")
    def test_that_is_read_only_and_complete_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            monkeypatch.setenv("XDG_CACHE_HOME", folder)
            complete = ensure("small")
            closed = (complete[0].parent, complete[0].parent.parent, cache_folder(), Path(folder))
            for each in closed:
                each.chmod(0o555)
            with as_an_ordinary_user():
                assert ensure("small") == complete
            for each in closed:
                each.chmod(0o700)

    @pytest.mark.usefixtures("small")
    def test_that_is_on_a_read_only_disk_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(cache, "_take_from_older_folders", refuse)
        with pytest.raises(SettingsRefused, match=r"Read-only file system\): set XDG_CACHE_HOME to a folder"):
            ensure("small")

    @pytest.mark.usefixtures("small")
    def test_that_is_full_says_to_make_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cache, "_take_from_older_folders", refuse)
        with pytest.raises(TryAgain, match=r"No space left on device\); make room there and run again"):
            ensure("small")
