"""Named moments at which a test can kill this process.

Each moment has a name, so a test can try all of them and prove that it missed none:

    LAKEHOUSE_TEST_FAIL_AT="published:2+0.15"    # kills 0.15 s after the process reaches this for the second time

Without the variable nothing happens here. The seconds after the plus sign reach moments inside a call, as while the
tasks of a batch run. A proxy before the catalog reaches moments between a request and its answer. Python workers of
Spark have the variable too: a moment inside a task kills the worker alone, and each worker counts for itself.
"""

import json
import os
import re
import signal
from collections import Counter
from enum import StrEnum
from threading import Lock, Timer

VARIABLE = "LAKEHOUSE_TEST_FAIL_AT"


class FailPoint(StrEnum):
    CLAIMED = "claimed"  # a start has taken its epoch, but opened no table yet
    OPENED = "opened"  # it has opened all its tables, but not registered them yet
    OFFSETS_LOGGED = "offsets_logged"  # Spark has fixed the offsets of the batch
    EVOLVING = "evolving"  # before a table gets a new column
    EVOLVED = "evolved"  # after that
    REGISTERED = "registered"  # a new table is registered, but has no rows yet
    WRITING = "writing"  # before the tasks read records and write data files
    IN_TASK = "in_task"  # a task has rows for a table
    WRITING_LETTERS = "writing_letters"
    STAGED = "staged"  # all files are written, and there are some, but in no table yet
    PUBLISHING = "publishing"  # before the files of one table are committed
    PUBLISHED = "published"  # they are committed, those of the next table perhaps not
    EXPIRING = "expiring"
    LANDED = "landed"  # all tables have the batch, the batch log does not
    RECORDED = "recorded"  # the batch log has it, but the group offsets are not published yet


_reached: Counter[str] = Counter()
_lock = Lock()


def reached(point: FailPoint) -> None:
    wanted = re.fullmatch(r"(\w+):(\d+)\+([\d.]+)", os.environ.get(VARIABLE, ""))
    if not wanted or wanted[1] != point:
        return
    with _lock:
        _reached[point] += 1
        if _reached[point] != int(wanted[2]):
            return
    if seconds := float(wanted[3]):
        Timer(seconds, _die, [point]).start()
    else:
        _die(point)


def _die(point: FailPoint) -> None:
    os.write(2, (json.dumps({"event": "fail_point", "name": point}) + "\n").encode())
    os.kill(os.getpid(), signal.SIGKILL)
