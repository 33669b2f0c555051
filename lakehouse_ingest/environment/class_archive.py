"""Spark's classes as Java maps them into memory, made once: a start then takes two fifths less of the processor's time.

Java's own means (a dynamic archive of class data): it belongs to one Java and one class path, after which it is named
here, and a Java that finds another one than it was made by goes on without it.

    lakehouse-ingest jars warm        # makes it; every later start on this machine uses it
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from filelock import FileLock

from lakehouse_ingest.environment.jars import cache_folder, mistrust, refuse_what_others_may_write
from lakehouse_ingest.errors import SettingsRefused, TryAgain

QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # it would name each class that it can't keep
PATIENCE_S = 300.0


def archive(java: Path) -> Path:
    """Where it is, or will be."""
    home = java.resolve().parent.parent
    release = home / "release"
    said = release.read_text(encoding="utf-8") if release.is_file() else ""
    made_of = "\n".join((str(home), said, pyspark.__version__, str(Path(pyspark.__file__).parent)))
    return cache_folder() / "classes" / f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


def java_options(java: Path) -> str:
    """What a start says to use it; nothing while there is none, or where others may write it: Java runs it."""
    made = archive(java)
    usable = made.is_file() and not mistrust(_kept(made))
    return f'"-XX:SharedArchiveFile={made}" -Xshare:auto {QUIET}' if usable else ""


def _kept(made: Path) -> tuple[Path, ...]:
    return made.parent.parent, made.parent, made


def prepare(java: Path) -> bool:
    """Makes it where there is none: in a process of its own, for Java writes it when it ends. False: it was there."""
    made = archive(java)
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        refuse_what_others_may_write(_kept(made))
        return _made(java, made)
    except OSError as broken:
        raise SettingsRefused(
            f"Java's classes can't be kept in {made.parent} ({broken.strerror}): set XDG_CACHE_HOME to a folder that"
            " can be written"
        ) from broken
    except subprocess.TimeoutExpired as late:
        raise TryAgain(f"Java has not kept its classes within {PATIENCE_S:.0f} s; it starts without them") from late


def _made(java: Path, made: Path) -> bool:
    with FileLock(made.with_suffix(".lock")):
        if made.is_file():
            return False
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            fresh = Path(folder, made.name)
            command = [sys.executable, "-m", "lakehouse_ingest.environment.warming", str(java), str(fresh)]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # noqa: S603
            if not fresh.is_file():
                said = (ended.stderr.strip().splitlines() or ["nothing was said"])[-1]
                raise TryAgain(f"Java has not kept its classes in {made.parent} ({said[:80]}); it starts without them")
            fresh.rename(made)
    return True
