"""What Debian has packaged: a program taken out of its package into the cache, or a package that is installed.

Taking it out needs no root and starts no service, but works only for what needs nothing beside it.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from lakehouse_ingest.environment.jars import cache_folder

FETCHING = 600.0


class NotToBeHad(Exception):
    """No apt-get, no network, no such package, or no right to install it."""


def taken_out(package: str, *programs: str) -> dict[str, Path]:
    """Programs of a package: those that are installed, or else from the cache, where they come at first use."""
    if all(shutil.which(each) for each in programs):
        return {each: Path(shutil.which(each) or "") for each in programs}
    folder = kept(package)
    if not folder.exists():
        with _one_apt():
            if not folder.exists():
                _take_out(package, folder)
    return {each: folder / "usr" / "bin" / each for each in programs}


def _one_apt() -> FileLock:
    """For every package: two at once can't both have apt-get's own locks."""
    lock = cache_folder() / "engines" / "apt-get.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock)


def kept(package: str) -> Path:
    return cache_folder() / "engines" / f"debian-{package}"


def installed(program: str, *packages: str) -> Path:
    """A program whose package is installed if it is not there, by whoever may."""
    found = shutil.which(program)
    if found is None:
        with _one_apt():
            if shutil.which(program) is None:
                if os.geteuid() != 0:
                    raise NotToBeHad(f"as root: apt-get install {' '.join(packages)}")
                _apt("install", "--yes", "--no-install-recommends", *packages)
        found = shutil.which(program)
    if found is None:
        raise NotToBeHad(f"{' '.join(packages)} did not bring {program}")
    return Path(found)


def version(program: Path) -> str:
    """The first line of what it says of itself."""
    asked = subprocess.run(
        [str(program), "--version"], capture_output=True, text=True, timeout=60, check=False, env=_quiet()
    )
    return (asked.stdout or asked.stderr).strip().partition("\n")[0].partition(" (")[0]


def _take_out(package: str, folder: Path) -> None:
    with TemporaryDirectory(dir=folder.parent) as fresh:
        _apt("download", package, cwd=Path(fresh))
        (archive,) = Path(fresh).glob("*.deb")
        _run("dpkg-deb", "--extract", str(archive), f"{fresh}/all")
        Path(fresh, "all").rename(folder)


def _apt(*words: str, cwd: Path | None = None) -> None:
    try:
        _run("apt-get", *words, cwd=cwd)
    except NotToBeHad:
        _run("apt-get", "update")  # its lists may be old, or not there at all
        _run("apt-get", *words, cwd=cwd)


def _run(*command: str, cwd: Path | None = None) -> None:
    try:
        subprocess.run(
            ["nice", *command], cwd=cwd, env=_quiet(), capture_output=True, text=True, timeout=FETCHING, check=True
        )
    except (subprocess.SubprocessError, OSError) as failure:
        said = getattr(failure, "stderr", None) or str(failure)
        raise NotToBeHad(f"{command[0]} {command[1]}: {said.strip().splitlines()[-1]}") from failure


def _quiet() -> dict[str, str]:
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
