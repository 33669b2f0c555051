"""Where the bytes of a new file go, and when they are safe.

A file is created only if there is none of its name. On local files the system itself refuses (O_EXCL). pyarrow's stores
offer no such request, so there it is asked for before, and the 64 random bits of a name do the rest.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO


def local_path(location: str) -> Path | None:
    """Give the path of a local file; None if another store has it."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None


def create(io: FileIO, location: str, folders: set[Path]) -> Any:
    """Open a new file for writing; FileExistsError if it exists. Folders that have changed are added to `folders`."""
    if (path := local_path(location)) is None:
        return io.new_output(location).create(overwrite=False)
    created = path.parent
    while not created.exists():
        created = created.parent
        folders.add(created)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    folders.add(path.parent)
    return pa.OSFile(str(path), "wb")


def sync(paths: Iterable[Path]) -> None:
    """Wait until files or folders are on disk."""
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
