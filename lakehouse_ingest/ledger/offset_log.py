"""Reads Spark's note of where a batch ends, and checks that it is as Spark wrote it.

The note lies in the checkpoint, which is scratch, and goes from there into the ledger, which is durable. A digit that a
bad disk changed would move the offset at which the next start begins.
"""

import struct
from pathlib import Path
from zlib import crc32

from lakehouse_ingest.errors import TryAgain

HEAD = struct.Struct(">4si")  # head of Hadoop's checksum file: a magic word, and the bytes that one sum covers
MAGIC = b"crc\0"


def entry(folder: Path, number: int) -> str:
    """The note of one batch. If it can't be read, the stream starts again with a new checkpoint."""
    file = folder / str(number)
    try:
        said = file.read_bytes()
        sums = file.with_name(f".{number}.crc")
        # Only Hadoop's local file system writes checksums; others check their bytes themselves.
        if sums.exists() and not _fits(said, sums.read_bytes()):
            raise TryAgain(f"Spark's checkpoint was damaged, because {file} is not as it was written; check the disk")
        return said.decode()
    except (OSError, ValueError) as broken:
        raise TryAgain(f"Spark's checkpoint can't be read: {broken}") from broken


def _fits(said: bytes, sums: bytes) -> bool:
    if len(sums) < HEAD.size:
        return False
    magic, size = HEAD.unpack_from(sums)
    if magic != MAGIC or size <= 0:
        return False
    parts = (said[at : at + size] for at in range(0, len(said), size))
    return sums[HEAD.size :] == b"".join(struct.pack(">I", crc32(part)) for part in parts)
