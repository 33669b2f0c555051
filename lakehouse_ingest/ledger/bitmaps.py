"""Offsets as compressed bitmaps."""

from array import array

import pyarrow as pa
from pyroaring import BitMap64


def bitmap_of(offsets: pa.Array) -> BitMap64:
    values, width = offsets.cast(pa.int64()), 8
    copied = array("Q")
    if len(values):
        copied.frombytes(values.buffers()[1].slice(values.offset * width, len(values) * width))
    bitmap = BitMap64(copied)
    # This chooses the smallest form. The union of two unbroken ranges keeps it, so most sets never have a bit a row.
    bitmap.run_optimize()
    return bitmap
