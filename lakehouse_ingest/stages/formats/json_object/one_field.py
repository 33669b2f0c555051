"""One field of many records, for `type_from`. msgspec skips all others, so a broken record may have this field too."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from lakehouse_ingest.stages.formats.json_object.nodes import can_be_expected
from lakehouse_ingest.stages.formats.json_object.reference import tree
from lakehouse_ingest.stages.trees import plain_text

CHUNK = 2_000  # so many texts stay in the processor's cache


def field(values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
    """The text of the field as a text column has it. Null if it is null, missing or can't be read."""
    read, found = _reader(tuple(path)), [pa.array([], pa.string())]
    for start in range(0, len(values), CHUNK):
        texts = list(map(read, values[start : start + CHUNK].to_pylist()))
        found.append(pa.array(texts, pa.string()))
    return pa.concat_arrays(found)


@lru_cache(maxsize=64)
def _reader(path: tuple[str, ...]) -> Callable[[bytes | None], str | None]:
    if not all(map(can_be_expected, path)):
        return lambda value: _exactly(value, path)
    expected: Any = str
    for name in reversed(path):
        expected = msgspec.defstruct("Expected", [("it", expected | None, None)], rename={"it": name}, gc=False)
    decode, depth = msgspec.json.Decoder(expected).decode, len(path)

    def read(value: bytes | None) -> str | None:
        try:
            found = decode(value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _exactly(value, path)
        for _ in range(depth):
            if found is None:
                return None
            found = found.it
        return found  # type: ignore[no-any-return]

    return read


def _exactly(value: bytes | None, path: Sequence[str]) -> str | None:
    found: Any = tree(value)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return None if found is None else plain_text(found)
