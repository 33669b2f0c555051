"""A folder for one process: gone when it ends, or when the next one begins where it was killed.

Checkpoints, and what Spark keeps beside them, are as large as a batch: a service that is killed now and then would
fill the disk with them. The lock goes with its holder, however that ends; a folder without one is not ours to judge.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    for file in among.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # another user's, in use, or gone by now
            lock = os.open(file, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(file.parent, ignore_errors=True)
            finally:
                os.close(lock)
