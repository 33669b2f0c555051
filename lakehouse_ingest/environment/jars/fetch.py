"""From a kind's lock to verified files, by the Ivy that comes with pyspark.

A kind's folder in the cache carries the lock's hash in its name and appears by one rename, after every file
in it was compared with its checksum; each later start compares sizes only, it need not read 122 MB. So nobody else may
be able to write there: see `trust`.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from lakehouse_ingest.environment.jars import ivy
from lakehouse_ingest.environment.jars.progress import Report, Step, shown
from lakehouse_ingest.environment.jars.trust import refuse_what_others_may_write
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.errors import SettingsRefused, TryAgain

HERE = Path(__file__).parent
KINDS = {"spark": 122, "catalog": 26, "broker": 39}  # about how many MB each
ON_DEMAND = {"catalog-s3": 1}  # likewise, of those that few need
VERIFIED = ".verified"  # in a kind's folder: one line a file, its size and name

__all__ = ["KINDS", "Step", "cache_folder", "ensure", "jars_folder_from", "present", "remove_cache"]


def jars_folder_from(environ: Mapping[str, str]) -> Path | None:
    """The folder that an operator without a network keeps the jars in."""
    return Path(environ["LAKEHOUSE_INGEST_JARS"]) if environ.get("LAKEHOUSE_INGEST_JARS") else None


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the machine's user keeps caches: the XDG folder, not a setting of ours."""
    home = (os.environ if environ is None else environ).get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "lakehouse-ingest"


def ensure(
    kind: str,
    on_progress: Report | None = None,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
) -> list[Path]:
    """The verified jars of a kind: from `folder` if given, else from the cache, fetched there if need be.

    Without `on_progress` the progress of a download is shown on standard error.
    """
    if folder is not None:
        return _from_folder(kind, folder)
    cache = cache or cache_folder()
    folders = (cache, cache / "jars", _home(kind, cache))
    refuse_what_others_may_write(folders)
    found = present(kind, cache=cache)
    if not found:
        with _locked(cache):
            found = present(kind, cache=cache)
            if not found:
                with shown(on_progress) as report:
                    _fetch(kind, cache, report)
                found = present(kind, cache=cache)
    refuse_what_others_may_write((*folders, *found))
    return found


def present(kind: str, *, cache: Path | None = None) -> list[Path]:
    """The cached jars of a kind, or nothing when they have yet to be fetched."""
    home = _home(kind, cache or cache_folder())
    try:
        lines = (home / VERIFIED).read_text().splitlines()
        sizes = {home / name: int(size) for size, name in (line.split(" ", 1) for line in lines)}
        whole = all(jar.stat().st_size == size for jar, size in sizes.items())
    except OSError:
        return []
    return sorted(sizes) if whole else []


def remove_cache(cache: Path | None = None) -> tuple[Path, int]:
    """Takes the whole cache away; says where it was and how many bytes it held."""
    cache = cache or cache_folder()
    if not cache.exists():
        return cache, 0
    with _locked(cache):
        size = sum(file.lstat().st_size for file in cache.rglob("*") if file.is_file())
        shutil.rmtree(cache)
    return cache, size


def _home(kind: str, cache: Path) -> Path:
    lock = hashlib.sha256(_lock(kind).read_bytes()).hexdigest()
    return cache / "jars" / f"{kind}-{lock[:12]}"


def _lock(kind: str) -> Path:
    return HERE / f"{kind}.xml"


def _checksums(kind: str) -> dict[str, str]:
    lines = (line.split() for line in (HERE / "checksums.txt").read_text().splitlines())
    return {name.removeprefix(f"{kind}/"): digest for digest, name in lines if name.startswith(f"{kind}/")}


def _from_folder(kind: str, folder: Path) -> list[Path]:
    wanted = _checksums(kind)
    home = folder / kind if (folder / kind).is_dir() else folder
    wrong = _wrong(home, wanted)
    if wrong:
        raise SettingsRefused(
            f"LAKEHOUSE_INGEST_JARS names {folder}, where {_named(wrong)}: put the files of checksums.txt "
            "there, or unset it to have them downloaded."
        )
    return sorted(home / name for name in wanted)


def _wrong(home: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    """What keeps a folder from being a kind's: each file's name, and why."""
    wrong = {}
    for name, digest in wanted.items():
        try:
            with (home / name).open("rb") as jar:
                if hashlib.file_digest(jar, "sha256").hexdigest() != digest:
                    wrong[name] = "has a wrong checksum"
        except OSError:
            wrong[name] = "is missing"
    return wrong


def _named(wrong: Mapping[str, str]) -> str:
    name, why = next(iter(wrong.items()))
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{name} {why}{more}"


def _fetch(kind: str, cache: Path, report: Callable[[Step], None]) -> None:
    java = find_java()
    home, wanted = _home(kind, cache), _checksums(kind)
    fresh = home.with_name(f"{home.name}.new")
    for leftover in (fresh, home):
        shutil.rmtree(leftover, ignore_errors=True)
    step = Step(kind, done=0, total=len(wanted), megabytes={**KINDS, **ON_DEMAND}[kind], where=home)
    report(step)
    try:
        fresh.mkdir(parents=True)
        fetching = ivy.retrieve(java, _lock(kind), into=fresh, cache=cache / "ivy", log=cache / "ivy.log")
        for done, current in fetching:
            report(step.at(done, current))
        wrong = _wrong(fresh, wanted)
        if wrong:
            shutil.rmtree(cache / "ivy", ignore_errors=True)
            raise TryAgain(
                f"Of the downloaded {kind} jars {_named(wrong)}: nothing of it is used; run again, "
                f"and if it stays so, {ivy.BY_HAND}."
            )
        sizes = (f"{(fresh / name).stat().st_size} {name}\n" for name in wanted)
        (fresh / VERIFIED).write_text("".join(sizes))
        fresh.rename(home)
        shutil.rmtree(cache / "ivy", ignore_errors=True)  # a second copy of everything
    except OSError as broken:
        raise TryAgain(
            f"The {kind} jars could not be kept in {cache} ({broken}): make room there and run again."
        ) from broken
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    report(step.at(len(wanted), ""))


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache.with_name(f"{cache.name}.lock"), thread_local=False)
        lock.acquire()  # one process downloads, the others wait for it
    except OSError as broken:
        raise SettingsRefused(
            f"The jars can't be kept in {cache} ({broken}): set XDG_CACHE_HOME to a folder that can be written."
        ) from broken
    try:
        yield
    finally:
        lock.release()
