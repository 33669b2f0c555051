"""Without a clone the installed package does everything, from an empty folder, and writes nowhere else."""

import os
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from importlib.metadata import version
from pathlib import Path

import pytest

from lakehouse_ingest.environment.jars import cache_folder
from tests.live.test_demo import ROOT, assert_nothing_runs, marked

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]  # half a minute once uv's cache knows the packages

UV = Path(sys.executable).with_name("uv")  # where `make install` puts it
PACKAGES = ("lakehouse_ingest", "catalog", "telemetry")
OF_A_CLONE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


def uv(*words: str | Path) -> None:
    done = subprocess.run([UV, *words], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is installed, in the way of the Makefile but for the clone."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    uv("venv", "--quiet", "--python", sys.executable, home)
    install = ("pip", "install", "--quiet", "--python", home / "bin" / "python")
    uv(*install, "--require-hashes", "-r", ROOT / "requirements.lock")
    uv(*install, "--no-deps", wheel)
    return home / "bin"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """An empty folder, and beside it an empty home and one for what is temporary."""
    for name in ("here", "home", "temporary"):
        (tmp_path / name).mkdir()
    return tmp_path / "here"


def run(programs: Path, elsewhere: Path, *words: str) -> str:
    environment = {name: value for name, value in marked(elsewhere / "x").items() if name not in OF_A_CLONE}
    done = subprocess.run(
        [programs / "lakehouse-ingest", *words],
        cwd=elsewhere,
        env={
            **environment,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HOME": str(elsewhere.with_name("home")),
            "TMPDIR": str(elsewhere.with_name("temporary")),
            "XDG_CACHE_HOME": str(cache_folder().parent),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert not [*elsewhere.with_name("home").iterdir(), *elsewhere.with_name("temporary").iterdir()]
    return done.stdout


class TestWheel:
    def test_holds_the_whole_packages_and_nothing_else(self, wheel: Path) -> None:
        held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        files = (
            file.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file()
        )
        assert held == {str(file) for file in files if "__pycache__" not in file.parts}
        assert {Path(name).suffix for name in held} >= {".py", ".java", ".txt", ".properties"}

    def test_names_its_licence_its_extras_and_what_it_requires(self, wheel: Path) -> None:
        told = metadata(wheel)
        assert (told["Name"], told["Version"]) == ("lakehouse-ingest", version("lakehouse-ingest"))
        assert told["License-Expression"] == "Apache-2.0"
        assert {"otlp", "s3", "demo"} <= set(told.get_all("Provides-Extra", []))
        needed = told.get_all("Requires-Dist", [])
        assert [each for each in needed if each.startswith("pyspark") and "extra" not in each]
        for extra, package in (("otlp", "opentelemetry-sdk"), ("s3", "boto3"), ("demo", "duckdb")):
            assert [each for each in needed if each.startswith(package) and f"extra == '{extra}'" in each]


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        return message_from_string(
            files.read(next(name for name in files.namelist() if name.endswith("/METADATA"))).decode()
        )


class TestInstalledCommand:
    def test_prints_its_version_and_example_settings(self, programs: Path, elsewhere: Path) -> None:
        assert run(programs, elsewhere, "--version").strip() == version("lakehouse-ingest")
        assert "streams" in tomllib.loads(run(programs, elsewhere, "settings", "--example", "toml"))
        assert not [*elsewhere.iterdir()]

    def test_runs_the_demo_in_an_empty_folder(self, programs: Path, elsewhere: Path) -> None:
        said = run(programs, elsewhere, "demo", "--folder", "x", "--seconds", "3")
        assert_nothing_runs(elsewhere / "x")
        assert [each.name for each in elsewhere.iterdir()] == ["x"]
        assert f"{ROOT}/" not in said
