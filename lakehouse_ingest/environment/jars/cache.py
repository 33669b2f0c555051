"""The cache of verified jars: one folder a kind.

A kind's folder carries the digest of its lock in its name. It appears by one rename, after every file in it was
compared with its checksum. Each later start compares sizes only, so that it need not read 122 MB. So no one else
may be able to write there: see `trust`.
"""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from lakehouse_ingest.environment.jars.lock import Jar, digest, listed, locked, wrong_files
from lakehouse_ingest.environment.jars.trust import mistrust, refuse_what_others_may_write
from lakehouse_ingest.errors import SettingsRefused, TryAgain

VERIFIED = ".verified"  # in a kind's folder: one line a file, its size and name
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def jars_folder_from(environ: Mapping[str, str]) -> Path | None:
    """The folder that an operator without a network keeps the jars in."""
    return Path(environ["LAKEHOUSE_INGEST_JARS"]) if environ.get("LAKEHOUSE_INGEST_JARS") else None


def cache_folder() -> Path:
    """In the user's folder for caches, as the system and XDG_CACHE_HOME name it: not a setting of ours."""
    return user_cache_path("lakehouse-ingest")


def ensure(kind: str, *, folder: Path | None = None, cache: Path | None = None) -> list[Path]:
    """The verified jars of a kind: from `folder` if given, else from the cache, downloaded if need be.

    The progress of a download is shown on standard error.
    """
    if folder is not None:
        return _from_folder(kind, folder)
    cache = cache or cache_folder()
    folders = (cache, cache / "jars", home_of(kind, cache))
    refuse_what_others_may_write(folders)
    found = present(kind, cache=cache)
    if not found:
        with _locked(cache):
            found = present(kind, cache=cache)
            if not found:
                _fill(kind, cache)
                found = present(kind, cache=cache)
    refuse_what_others_may_write((*folders, *found))
    return found


def present(kind: str, *, cache: Path | None = None) -> list[Path]:
    """The cached jars of a kind, or nothing when they have yet to be downloaded."""
    home = home_of(kind, cache or cache_folder())
    try:
        lines = (home / VERIFIED).read_text().splitlines()
        sizes = {home / name: int(size) for size, name in (line.split(" ", 1) for line in lines)}
        whole = all(jar.stat().st_size == size for jar, size in sizes.items())
    except OSError:
        return []
    return sorted(sizes) if whole else []


def remove_cache(cache: Path | None = None) -> tuple[Path, int]:
    """Removes the whole cache; says where it was and how many bytes it held."""
    cache = cache or cache_folder()
    if not cache.exists():
        return cache, 0
    with _locked(cache):
        size = sum(file.lstat().st_size for file in cache.rglob("*") if file.is_file())
        shutil.rmtree(cache)
    return cache, size


def home_of(kind: str, cache: Path) -> Path:
    """Where the jars of a kind are, or will be."""
    return cache / "jars" / f"{kind}-{digest(kind)[:12]}"


def place_of(kind: str, *, folder: Path | None = None) -> Path:
    """The folder that `ensure` takes the jars of a kind from."""
    if folder is None:
        return home_of(kind, cache_folder())
    return folder / kind if (folder / kind).is_dir() else folder


def place_file(source: Path, place: Path) -> None:
    """Puts a file there as a link where that is possible, else as a copy. It appears whole, or not at all."""
    fresh = place.with_name(f"{place.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:  # on another disk, or on one that knows no links
        shutil.copyfile(source, fresh)
    fresh.replace(place)


def _from_folder(kind: str, folder: Path) -> list[Path]:
    wanted = locked(kind)
    home = place_of(kind, folder=folder)
    if wrong := wrong_files(home, wanted):
        raise SettingsRefused(
            f"LAKEHOUSE_INGEST_JARS names {folder}, where {listed(wrong)}: put the files of checksums.txt "
            "there, or unset it to have them downloaded."
        )
    return sorted(home / jar.name for jar in wanted)


def _fill(kind: str, cache: Path) -> None:
    # Few starts download anything, and to import what does takes a tenth of a second.
    from lakehouse_ingest.environment.jars.download import download  # noqa: PLC0415
    from lakehouse_ingest.environment.jars.progress import shown  # noqa: PLC0415

    home, wanted = home_of(kind, cache), locked(kind)
    fresh = home.with_name(f"{home.name}.new")
    try:
        fresh.mkdir(parents=True, exist_ok=True)
        _take_from_older_folders(wanted, cache, fresh)
        wrong = wrong_files(fresh, wanted)
        if lacking := [jar for jar in wanted if jar.name in wrong]:
            with shown(kind, len(lacking), sum(jar.size for jar in lacking), home) as report:
                for received in download(kind, lacking, fresh):
                    report(received)
        (fresh / VERIFIED).write_text("".join(f"{jar.size} {jar.name}\n" for jar in wanted))
        shutil.rmtree(home, ignore_errors=True)  # one that has lost a part
        fresh.rename(home)
    except OSError as broken:
        if broken.errno in READ_ONLY:
            raise _unwritable(cache, broken) from broken
        raise TryAgain(
            f"The {kind} jars could not be kept in {cache} ({broken}); make room there and run again"
        ) from broken


def _take_from_older_folders(wanted: Sequence[Jar], cache: Path, into: Path) -> None:
    """Most jars stay the same from one version of the lock to the next."""
    for jar in wanted:
        for older in sorted((cache / "jars").glob(f"*/{jar.name}")):
            if older.parent != into and not mistrust((older.parent, older)) and not wrong_files(older.parent, [jar]):
                place_file(older, into / jar.name)
                break


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """One process fills the cache, and the others wait for it."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache.with_name(f"{cache.name}.lock"), thread_local=False)
        lock.acquire()
    except OSError as broken:
        raise _unwritable(cache, broken) from broken
    try:
        yield
    finally:
        lock.release()


def _unwritable(cache: Path, broken: OSError) -> SettingsRefused:
    return SettingsRefused(
        f"The jars can't be kept in {cache} ({broken}): set XDG_CACHE_HOME to a folder that can be written."
    )
