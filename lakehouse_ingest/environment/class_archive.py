"""Spark's classes as Java maps them into memory. With this archive a start takes two fifths less processor time.

It is Java's class-data sharing (a dynamic archive). An archive belongs to one Java and one class path, so both are part
of its name. A Java that finds an archive of another Java or class path goes on without it.

    lakehouse-ingest jars warm        # makes it; every later start on this machine uses it
    lakehouse-ingest clean            # removes all of them

Java writes the archive when it ends. So a process of its own runs a Spark that does on no data what a batch does, and
thereby loads the classes that a batch needs.

An archive has 170 MB, and each new version of Java, Spark, the jars or this module needs another one. So whoever makes
one removes the archives that are no longer used; see `_remove_unused`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pyspark
from filelock import FileLock
from pyspark.sql import DataFrame, SparkSession

from lakehouse_ingest.environment.jars import (
    cache_folder,
    ensure,
    jars_folder_from,
    mistrust,
    place_of,
    refuse_what_others_may_write,
)
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import SparkSettings

QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # Java would name each class that it can't keep
PATIENCE_S = 300.0
FORM = "4"  # changes with the class path of `spark_process.command`, and with what `_imitate_batches` does
TASKS = 2
LOOK_S = 0.2
NEWEST = 4  # archives that are kept, if a start has used them lately
UNUSED_S = 14 * 86_400.0  # an archive that no start has used for so long is removed
LOCK, FRESH = "lock", "fresh-"  # in the folder of archives


def archive(java: Path, jars: Path | None = None) -> Path:
    """Where it is, or will be. `jars`: the folder of those that are on the class path beside Spark's own."""
    jars = jars or place_of("spark", folder=jars_folder_from(os.environ))
    home = java.resolve().parent.parent
    release = home / "release"
    about_java = release.read_text(encoding="utf-8") if release.is_file() else ""
    spark = str(Path(pyspark.__file__).parent)
    made_of = "\n".join((FORM, str(home), about_java, pyspark.__version__, spark, str(jars)))
    return cache_folder() / "classes" / f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


def java_options(java: Path, jars: Path | None = None) -> str:
    """The options that make a start use it. Empty while there is none, or where others may write it: Java runs it."""
    made = archive(java, jars)
    if not made.is_file() or mistrust(_kept(made)):
        return ""
    with suppress(OSError):  # it may be root's, or just removed: then Java starts without it
        os.utime(made)  # so that it is known to be in use
    return f'"-XX:SharedArchiveFile={made}" -Xshare:auto {QUIET}'


def prepare(java: Path) -> bool:
    """Makes it where there is none. False: it was there."""
    made = archive(java)
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        refuse_what_others_may_write(_kept(made))
        return make(made, lambda fresh: _write(java, fresh))
    except OSError as broken:
        raise SettingsRefused(
            f"Java's classes can't be kept in {made.parent} ({broken.strerror}): set XDG_CACHE_HOME to a folder that"
            " can be written"
        ) from broken
    except subprocess.TimeoutExpired as late:
        raise TryAgain(f"Java did not archive its classes within {PATIENCE_S:.0f} s; it starts without them") from late


def make(made: Path, write: Callable[[Path], None]) -> bool:
    """Lets `write` make the archive where there is none, and removes those that are no longer used.

    One process does so at a time, and the others wait for it. There is one lock for all archives: if each had its own,
    these would have to be removed as well, and a process that waits for a removed lock waits for nobody.
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


def warm(java: Path, fresh: Path) -> None:
    """Runs a Spark whose Java writes the archive when it ends. For a process of its own."""
    # A session asks this module for its options.
    from lakehouse_ingest.environment.spark_session import session, session_of_its_own  # noqa: PLC0415

    settings = SparkSettings(
        master="local[2]",
        options={"spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={fresh} {QUIET}"},
    )
    nowhere = {"uri": "http://127.0.0.1:1"}
    jars = ensure("spark", folder=jars_folder_from(os.environ))
    with (
        scratch_folder() as scratch,
        session("classes", settings, jars, nowhere, java, scratch, stop_s=PATIENCE_S) as spark,
        session_of_its_own(spark) as own,
    ):
        _imitate_batches(own, scratch)


def _kept(made: Path) -> tuple[Path, ...]:
    return made.parent.parent, made.parent, made


def _write(java: Path, fresh: Path) -> None:
    command = [sys.executable, "-m", "lakehouse_ingest.environment.class_archive", str(java), str(fresh)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # noqa: S603
    if not fresh.is_file():
        why = (ended.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        folder = fresh.parent.parent
        raise TryAgain(f"Java did not archive its classes in {folder} ({why[:80]}); it starts without them")


def _remove_unfinished(folder: Path) -> None:
    """What a process that was killed has left. Only the holder of the lock makes such folders."""
    for left in folder.glob(f"{FRESH}*"):
        shutil.rmtree(left, ignore_errors=True)


def _remove_unused(made: Path) -> None:
    """Removes all archives but `made` that no start has used for long, and all but the newest few.

    A start that has just found such an archive goes on without it, and a Java that has it open keeps it until it ends.
    """
    now, others = time.time(), dict[Path, float]()
    for other in made.parent.glob("spark-*.jsa"):
        with suppress(OSError):  # `lakehouse-ingest clean` may be removing them as well
            others[other] = other.stat().st_mtime
    others.pop(made, None)
    newest = sorted(others, key=others.__getitem__, reverse=True)
    for place, other in enumerate(newest, 1):
        if place >= NEWEST or now - others[other] > UNUSED_S:
            other.unlink(missing_ok=True)
    for lock in made.parent.glob("spark-*.lock"):  # earlier versions had one for each archive
        lock.unlink(missing_ok=True)


def _imitate_batches(spark: SparkSession, scratch: Path) -> None:
    """A query that calls Python, and jobs whose tasks run in Python: all that Java does for a pipeline."""
    ended = Event()

    def batch(_: DataFrame, number: int) -> None:
        numbered = list(enumerate(range(TASKS)))
        spark.sparkContext.parallelize(numbered, TASKS).map(_unchanged).collect()
        if number > 1:  # the later ones find what the first has left in the checkpoint
            ended.set()

    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    while query.isActive and not ended.wait(LOOK_S):
        pass
    if failure := query.exception():
        raise failure
    query.stop()


def _unchanged(task: tuple[int, int]) -> tuple[int, int]:
    return task


if __name__ == "__main__":
    warm(Path(sys.argv[1]), Path(sys.argv[2]))
