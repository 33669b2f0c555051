"""A folder for one process: gone when it ends, or when the next one begins where it was killed.

Checkpoints, and what Spark keeps beside them, are as large as a batch: a service that is killed now and then would
fill the disk with them. The lock goes with its holder, however that ends; a folder without one is not ours to judge.
Anyone may make a folder of such a name in the temporary folder, with a link in it to a file of ours: only what is our
user's own is opened, and no link is followed.
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
        # Under another name until it is locked: whoever looks meanwhile is not to take it for an orphan.
        unseen = folder / f"{LOCK}.new"
        lock, itself = os.open(unseen, os.O_RDWR | os.O_CREAT, 0o600), os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # What nobody has touched for ten days is removed by systemd's tmpfiles, but where that is taken.
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
    """Of our user's own, and no link."""
    opened = os.open(path, how | os.O_NOFOLLOW, dir_fd=within)
    stack.callback(os.close, opened)
    if os.fstat(opened).st_uid != os.geteuid():
        raise PermissionError
    return opened
