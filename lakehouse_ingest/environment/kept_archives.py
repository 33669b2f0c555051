"""The folder of `class_archive`: one process makes an archive, every start notes its use, and unused ones are removed.

An archive has up to 170 MB, and each new version of Java, Spark, the jars or of us needs another one: in a month of
changes they filled a disk.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

NEWEST = 4  # archives of a kind that are kept, if a start has used them lately
UNUSED_S = 14 * 86_400.0  # an archive that no start has used for so long is removed
LOCK, FRESH = "lock", "fresh-"


def note_use(made: Path) -> None:
    with suppress(OSError):  # it may be root's; or just removed, and then Java starts without it
        os.utime(made)


def make(made: Path, write: Callable[[Path], None]) -> bool:
    """Lets `write` make the archive where there is none, and removes those of its kind that are no longer used.

    One process does so at a time, and the others wait for it. There is one lock for all archives: if each had its own,
    these would have to be removed as well, and a process that waits for a removed lock excludes no other.
    """
    with FileLock(made.with_name(LOCK)):
        if made.is_file():
            return False
        _remove_unfinished(made.parent)
        with tempfile.TemporaryDirectory(prefix=FRESH, dir=made.parent) as folder:
            fresh = Path(folder, made.name)
            write(fresh)
            fresh.rename(made)
        _remove_unused(made)
    return True


def _remove_unfinished(folder: Path) -> None:
    """What a process that was killed has left. Only the holder of the lock makes such folders."""
    for left in folder.glob(f"{FRESH}*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_unused(made: Path) -> None:
    """Removes all other archives of this kind that no start has used for long, and all but the newest few.

    A start that has just found such an archive goes on without it, and a Java that has it open keeps it until it ends.
    """
    kind, now, others = made.name.partition("-")[0], time.time(), dict[Path, float]()
    for other in made.parent.glob(f"{kind}-*.jsa"):
        with suppress(OSError):  # `lakehouse-ingest clean` may be removing them as well
            others[other] = other.stat().st_mtime
    others.pop(made, None)
    newest = sorted(others, key=others.__getitem__, reverse=True)
    for place, other in enumerate(newest, 1):
        if place >= NEWEST or now - others[other] > UNUSED_S:
            other.unlink(missing_ok=True)
    for lock in made.parent.glob(f"{kind}-*.lock"):  # earlier versions had one for each archive
        lock.unlink(missing_ok=True)
