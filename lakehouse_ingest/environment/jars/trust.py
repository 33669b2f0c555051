"""Whether the content of a cache may be run: anyone who can write there could run code as our user.

The owner of each file and folder has to be our user or root, and only they may write. A group may write as well if it
is no group of several people. That is root's group, the user's own (which has the user's name on many systems), and a
group without a name on this machine, as in containers. A folder that LAKEHOUSE_INGEST_JARS names is not checked for
this: there each start compares the checksums.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from lakehouse_ingest.errors import SettingsRefused

ADVICE = "take the write permission away from others (chmod go-w), or set XDG_CACHE_HOME to a folder of your own"


def refuse_what_others_may_write(kept: Iterable[Path]) -> None:
    if why := mistrust(kept):
        raise SettingsRefused(f"{why}, who could run code here through it: {ADVICE}")


def mistrust(kept: Iterable[Path]) -> str:
    """Why the first of them that is not ours alone isn't. Empty where all are ours, or are not there yet."""
    return next((f"{path} {why}" for path in kept if (why := _open_to(path))), "")


def _open_to(path: Path) -> str:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to another user ({found.st_uid})"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by any user"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"can be written by other users of the group {found.st_gid}"
    return ""


def _is_private(gid: int) -> bool:
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return True
    try:
        ours = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        ours = ""
    return {*group.gr_mem} <= {ours} and (gid == 0 or group.gr_name == ours)
