"""Finds the error of ours that a task raised, in what Spark says of the failed task.

Spark gives the driver the traceback as text, within sentences of its own. The last line of the traceback names the
class and repeats the message, which is always one line.
"""

import re

from lakehouse_ingest import errors
from lakehouse_ingest.errors import LakehouseError

RAISED = re.compile(r"^\s*lakehouse_ingest\.errors\.(\w+): (\S.*?)\s*$", re.MULTILINE)


def raised(said: str) -> LakehouseError | None:
    """The error, with its message. None if the task failed for another reason."""
    for name, message in reversed(RAISED.findall(said)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LakehouseError):
            return kind(message)
    return None
