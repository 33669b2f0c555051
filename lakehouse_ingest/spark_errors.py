"""What Spark and py4j raise, in words."""

import re

from pyspark.sql.streaming.query import StreamingQuery


def sentence(failure: BaseException) -> str:
    """One line for a person, without Java's stack."""
    return first_line(whole(failure))


def whole(failure: BaseException) -> str:
    """All of it, with the stack of Java."""
    found = "\n".join(str(each) for each in (failure, getattr(failure, "_stackTrace", None)) if each)
    return found or type(failure).__name__


def causes(query: StreamingQuery) -> str:
    """What Python's exception of a query leaves out."""
    found, cause = [], query._jsq.exception().get()  # noqa: SLF001 - nothing public leads there
    while cause is not None:
        found.append(f"Caused by: {cause.toString()}")
        cause = cause.getCause()
    return "\n".join(found)


def first_line(said: str) -> str:
    """The last cause that is named."""
    named = re.findall(r"(?:^|Caused by): ([\w.$]+: [^\n]+)", said, re.MULTILINE)
    return " ".join((named[-1] if named else said).splitlines()[0].split())[:300]
