"""One field of many records, for `type_from`. msgspec skips all others, so a broken record may have this field too."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from lakehouse_ingest.stages.formats.json_object.nodes import can_be_expected
from lakehouse_ingest.stages.formats.json_object.reference import tree
from lakehouse_ingest.stages.trees import plain_text

CHUNK = 2_000  # so many texts stay in the processor's cache
UNREAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def field(values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
    """The text of the field as a text column has it. Null if it is null, missing or can't be read."""
    read = _reader(tuple(path))
    texts = [read(values[start : start + CHUNK].to_pylist()) for start in range(0, len(values), CHUNK)]
    return pa.concat_arrays([pa.array(each, pa.string()) for each in texts or [[]]])


@lru_cache(maxsize=64)
def _reader(path: tuple[str, ...]) -> Callable[[Sequence[bytes | None]], list[str | None]]:
    if not all(map(can_be_expected, path)):
        return lambda values: [_exactly(value, path) for value in values]
    expected: Any = str
    for name in reversed(path):
        expected = msgspec.defstruct("Expected", [("it", expected | None, None)], rename={"it": name}, gc=False)
    decode, within = msgspec.json.Decoder(expected).decode, attrgetter(".".join("it" for _ in path))

    def read(values: Sequence[bytes | None]) -> list[str | None]:
        # Nearly always each record has a value, and an object around the field.
        with suppress(*UNREAD, TypeError, AttributeError):
            return list(map(within, map(decode, values)))  # type: ignore[arg-type]
        return [one(value) for value in values]

    def one(value: bytes | None) -> str | None:
        try:
            found = decode(value or b"")
        except UNREAD:
            return _exactly(value, path)
        for _ in path:
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
