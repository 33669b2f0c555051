"""A folder for one process. It is deleted when the process ends, or by the next process where the first was killed.

Checkpoints, and what Spark keeps beside them, are as large as a batch, and Java unpacks libraries there: a service that
is killed now and then would fill the disk with them. The lock ends with its holder, however that ends. A folder without
a lock is left alone: it may not be ours. Anyone may make a folder of such a name in the temporary folder, with a link
in it to a file of ours. So only what belongs to our user is opened, and no link is followed.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PREFIX = "lakehouse-ingest-"
LOCK = "in-use"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    _remove_orphans(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Under another name until it is locked, or a process that starts meanwhile would take it for an orphan.
        unseen = folder / f"{LOCK}.new"
        lock, itself = os.open(unseen, os.O_RDWR | os.O_CREAT, 0o600), os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # systemd's tmpfiles removes what nobody has touched for ten days, but not a folder that is locked.
            fcntl.flock(itself, fcntl.LOCK_EX)
            unseen.rename(folder / LOCK)
            yield folder
        finally:
            os.close(itself)
            os.close(lock)


def _remove_orphans(among: Path) -> None:
    for folder in among.glob(f"{PREFIX}*"):
        with suppress(OSError), ExitStack() as stack:  # another user's, in use, or gone by now
            itself = _opened(stack, folder, os.O_RDONLY | os.O_DIRECTORY)
            lock = _opened(stack, LOCK, os.O_RDWR | os.O_NONBLOCK, within=itself)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _opened(stack: ExitStack, path: Path | str, how: int, within: int | None = None) -> int:
    """Opens what belongs to our user and is no link."""
    opened = os.open(path, how | os.O_NOFOLLOW, dir_fd=within)
    stack.callback(os.close, opened)
    if os.fstat(opened).st_uid != os.geteuid():
        raise PermissionError
    return opened
