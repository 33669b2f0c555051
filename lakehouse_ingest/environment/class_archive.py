"""Classes as Java maps them into memory: of Spark, of the embedded broker and of the embedded catalog.

With these archives a start takes two fifths less processor time. It is Java's class-data sharing (dynamic archives). An
archive belongs to one Java and one class path, so both are part of its name. A Java that finds an archive of another
Java or class path goes on without it.

    lakehouse-ingest jars warm        # makes them; every later start on this machine uses them
    lakehouse-ingest clean            # removes all of them

Java writes an archive when it ends. So a process of its own runs what the archive is for, and thereby loads the classes
that are needed: a Spark that does on no data what a batch does, or a server with a record, or a table.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event

import pyspark
from pyspark.sql import DataFrame, SparkSession

from lakehouse_ingest.environment import kept_archives
from lakehouse_ingest.environment.jars import (
    cache_folder,
    ensure,
    jars_folder_from,
    mistrust,
    place_of,
    present,
    refuse_what_others_may_write,
)
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import SparkSettings

QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # Java would name each class that it can't keep
PATIENCE_S = 300.0
FORM = "5"  # changes with the class path of a JVM that we start, and with what is done below to load the classes
KINDS = ("spark", "broker", "catalog")
TASKS = 2
LOOK_S = 0.2


def archive(java: Path, jars: Path | None = None, kind: str = "spark") -> Path:
    """Where it is, or will be. `jars`: the folder of those that are on the class path beside Spark's own."""
    jars = jars or place_of(kind, folder=jars_folder_from(os.environ))
    home = java.resolve().parent.parent
    release = home / "release"
    about_java = release.read_text(encoding="utf-8") if release.is_file() else ""
    spark = str(Path(pyspark.__file__).parent)
    made_of = "\n".join((FORM, str(home), about_java, pyspark.__version__, spark, str(jars)))
    return cache_folder() / "classes" / f"{kind}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


def java_options(java: Path, jars: Path | None = None, kind: str = "spark") -> str:
    """The options that make a start use it. Empty while there is none, or where others may write it: Java runs it."""
    made = archive(java, jars, kind)
    if not made.is_file() or mistrust(_kept(made)):
        return ""
    kept_archives.note_use(made)
    return f'"-XX:SharedArchiveFile={made}" -Xshare:auto {QUIET}'


def prepare(java: Path) -> Mapping[Path, bool]:
    """Makes those that are missing, and says which it made. Of a server only where its jars have been downloaded."""
    folder = jars_folder_from(os.environ)
    wanted = [kind for kind in KINDS if kind == "spark" or folder is not None or present(kind)]
    return {(made := archive(java, kind=kind)): _prepare(java, made, kind) for kind in wanted}


def _prepare(java: Path, made: Path, kind: str) -> bool:
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        refuse_what_others_may_write(_kept(made))
        return kept_archives.make(made, lambda fresh: _write(java, fresh, kind))
    except OSError as broken:
        raise SettingsRefused(
            f"Java's classes can't be kept in {made.parent} ({broken.strerror}): set XDG_CACHE_HOME to a folder that"
            " can be written"
        ) from broken
    except subprocess.TimeoutExpired as late:
        raise TryAgain(f"Java did not archive its classes within {PATIENCE_S:.0f} s; it starts without them") from late


def warm(java: Path, fresh: Path, kind: str) -> None:
    """Runs a JVM that writes the archive when it ends. For a process of its own."""
    if kind == "spark":
        _warm_spark(java, fresh)
    else:
        # They ask this module for their options.
        from lakehouse_ingest.environment.embedded.class_loading import warm_server  # noqa: PLC0415

        warm_server(kind, _writing(fresh), PATIENCE_S)


def _warm_spark(java: Path, fresh: Path) -> None:
    # A session asks this module for its options.
    from lakehouse_ingest.environment.spark_session import session, session_of_its_own  # noqa: PLC0415

    settings = SparkSettings(master="local[2]", options={"spark.driver.defaultJavaOptions": " ".join(_writing(fresh))})
    nowhere = {"uri": "http://127.0.0.1:1"}
    jars = ensure("spark", folder=jars_folder_from(os.environ))
    with (
        scratch_folder() as scratch,
        session("classes", settings, jars, nowhere, java, scratch, stop_s=PATIENCE_S) as spark,
        session_of_its_own(spark) as own,
    ):
        _imitate_batches(own, scratch)


def _writing(fresh: Path) -> tuple[str, ...]:
    return f"-XX:ArchiveClassesAtExit={fresh}", *QUIET.split()


def _kept(made: Path) -> tuple[Path, ...]:
    return made.parent.parent, made.parent, made


def _write(java: Path, fresh: Path, kind: str) -> None:
    command = [sys.executable, "-m", "lakehouse_ingest.environment.class_archive", str(java), str(fresh), kind]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # noqa: S603
    if not fresh.is_file():
        why = (ended.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        folder = fresh.parent.parent
        raise TryAgain(f"Java did not archive its classes in {folder} ({why[:80]}); it starts without them")


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
    warm(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
