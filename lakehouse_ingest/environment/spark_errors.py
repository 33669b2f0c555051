"""Errors of Spark and py4j as sentences for a person."""

import errno
import re
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.environment.spark_internals import java_query
from lakehouse_ingest.errors import TryAgain, fitted

FRAMES = 40  # of a cause: they show whose file it was
# The error of a disk, and then one of Spark's frames.
DISK = re.compile(
    r"(?P<why>No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Mkdirs failed)"
    r".*?\bat (?:\S+/)?org\.apache\.spark\.",
    re.DOTALL,
)
WORKER = "Python worker exited unexpectedly"
DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def sentence(failure: BaseException) -> str:
    """One line, without Java's stack."""
    return first_line(whole(failure))


def whole(failure: BaseException) -> str:
    """The whole text, with Java's stack."""
    found = "\n".join(str(each) for each in (failure, getattr(failure, "_stackTrace", None)) if each)
    return found or type(failure).__name__


def causes(query: StreamingQuery) -> str:
    """The causes that Python's exception of a query leaves out."""
    found, cause = [], java_query(query).exception().get()
    while cause is not None:
        frames = [f"\tat {frame.toString()}" for frame in [*cause.getStackTrace()][:FRAMES]]
        found += [f"Caused by: {cause.toString()}", *frames]
        cause = cause.getCause()
    return "\n".join(found)


def first_line(said: str) -> str:
    """The last cause that is named."""
    named = re.findall(r"(?:^|Caused by): ([\w.$]+: [^\n]+)", said, re.MULTILINE)
    return " ".join((named[-1] if named else said).splitlines()[0].split())[:300]


def of_disk(failure: BaseException, said: str, scratch: Path) -> TryAgain | None:
    """Says that Spark's disk takes no more, and what to do. In our process pyspark writes there too: what tasks get."""
    if isinstance(failure, OSError) and failure.errno in DISK_REFUSES:
        return of_scratch(failure.strerror or str(failure), scratch)
    return of_scratch(found["why"], scratch) if (found := DISK.search(said)) else None


def of_worker(said: str) -> TryAgain | None:
    """Says that the process of a task is gone. Spark advises to find out where its Python was, which tells nothing."""
    if WORKER not in said:
        return None
    advice = "see the system's log, and allow more memory, or set a smaller `max_records`"
    return TryAgain(f"a Python worker of Spark ended in the middle of its work, or was killed for its memory; {advice}")


def of_scratch(why: str, scratch: Path) -> TryAgain:
    advice = "make room there, or set TMPDIR to a folder on another disk"
    return TryAgain(fitted(f"Spark's scratch in {scratch} can't be written ({why}); {advice}"))
