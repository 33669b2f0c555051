"""Spark's note of where a batch ends, believed only as Spark wrote it.

It lies in the checkpoint, which is scratch, and goes from there into the ledger, which is not: a digit that was
changed on a bad disk would move the place from which the next start reads.
"""

import struct
from pathlib import Path
from zlib import crc32

from lakehouse_ingest.errors import TryAgain

HEAD = struct.Struct(">4si")  # of Hadoop's file of sums: a magic word, and for how many bytes each of them is
MAGIC = b"crc\0"


def entry(folder: Path, number: int) -> str:
    """That of one batch; with none that can be read the stream begins again, with a new log."""
    file = folder / str(number)
    try:
        said = file.read_bytes()
        sums = file.with_name(f".{number}.crc")
        # Other file systems have none, and look after their bytes themselves.
        if sums.exists() and not _fits(said, sums.read_bytes()):
            raise TryAgain(f"Spark's checkpoint was damaged: {file} is not as it was written")
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
