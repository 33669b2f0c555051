"""Named moments at which a test ends this process: a crash is only as well tested as the moments it was tried at.

Each has its name, so that a test can go through all of them and say that none was missed:

    LAKEHOUSE_TEST_FAIL_AT="published:2+0.15"    # killed 0.15 s after this was reached for the second time

Without that variable nothing happens here. What lies within a call to Spark is reached by the seconds behind the plus
sign; what lies between a request to the catalog and its answer, by a proxy before the catalog.
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
    CLAIMED = "claimed"  # a start has taken its epoch, and opened no table yet
    OPENED = "opened"  # and stands on all of them, with nothing noted of it
    OFFSETS_LOGGED = "offsets_logged"  # Spark has fixed what the batch is
    PARSING = "parsing"  # and looks what is in it
    EVOLVING = "evolving"  # before a table gets a new column
    EVOLVED = "evolved"  # and after
    REGISTERED = "registered"  # before the rows of a new table, of which the next start knows now
    WRITING = "writing"  # data files, with a commit that nobody sees at the end
    STAGED = "staged"  # which has been made
    WRITING_LETTERS = "writing_letters"
    PUBLISHING = "publishing"  # before main is moved
    PUBLISHED = "published"  # of one table, maybe not of the next
    EXPIRING = "expiring"
    LANDED = "landed"  # in all tables, and not yet in the batch record
    RECORDED = "recorded"  # and not yet told to the broker


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
