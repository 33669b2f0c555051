"""Many records at once: msgspec decodes them to objects made from the columns, and Arrow takes their attributes.

A record is called sound only if it fits the columns completely. The reference decoder reads all others.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.schema.arrow_types import wire_type
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.stages.formats.json_object.nodes import NO_VALUE, Digits, Fields, Node, node_of
from lakehouse_ingest.stages.formats.json_object.reference import DIGITS, LEVELS, tree

CHUNK = 2_000  # so many objects stay in the processor's cache
LOOKED_AT = 8  # records that are learned from at once
WORTH_LEARNING = 0.02  # share of records that the decoder doesn't read
REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
EVERY = 64
NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % (DIGITS // EVERY))


def columns(
    values: pa.BinaryArray, columns: Sequence[ColumnPlan], *, drops: bool = False
) -> tuple[pa.StructArray, pa.BooleanArray]:
    """The fields of the columns, in their wire types, and which records are sound."""
    return _decoder(tuple(columns), drops).read(values)


@lru_cache(maxsize=256)
def _decoder(columns: tuple[ColumnPlan, ...], drops: bool) -> "Decoder":  # noqa: FBT001 - a key of the cache
    return Decoder(columns, drops=drops)


class Decoder:
    """Decodes records to these columns, and learns what they look like."""

    def __init__(self, columns: Sequence[ColumnPlan], *, drops: bool = False) -> None:
        kinds = {each.field: wire_type(each) for each in columns}
        self._type = pa.struct(list(kinds.items()))
        fields = {field: (kind, node_of(kind, drops=drops)) for field, kind in kinds.items()}
        self._fields = Fields(fields, drops=drops)
        self._json: msgspec.json.Decoder[Any] | None = None

    def read(self, values: pa.BinaryArray) -> tuple[pa.StructArray, pa.BooleanArray]:
        values = pc.fill_null(values, b"") if values.null_count else values
        found, sound = [pa.array([], self._type)], [True] * len(values)
        for start in range(0, len(values), CHUNK):
            rows, unsound = self._chunk(values[start : start + CHUNK])
            found.append(rows)
            for number in unsound:
                sound[start + number] = False
        return pa.concat_arrays(found), pa.array(sound, pa.bool_())

    def _chunk(self, values: pa.BinaryArray) -> tuple[pa.StructArray, list[int]]:
        """The fields, and the numbers of the records that are not sound."""
        texts = values.to_pylist()
        if self._json is None:
            self._learn(texts[:LOOKED_AT])
        objects, unsound = self._objects(texts)
        if len(unsound) > WORTH_LEARNING * len(texts):
            unread = [texts[number] for number in unsound]
            if self._learn(unread[:: 1 + len(unread) // LOOKED_AT]):
                again, still = self._objects(unread)
                for number, each in zip(unsound, again, strict=True):
                    objects[number] = each
                unsound = [unsound[number] for number in still]
        if pc.max(pc.binary_length(values)).as_py() > 2 * LEVELS:
            for number, text in enumerate(texts):
                if len(text) > 2 * LEVELS and _is_extreme(text):
                    objects[number] = self._fields.nothing
                    unsound.append(number)
        children = [self._column(name, node, objects, unsound) for name, node in self._fields.nodes.items()]
        return self._fields.together(children, len(objects)), unsound

    def _objects(self, texts: Sequence[bytes]) -> tuple[list[Any], list[int]]:
        """What msgspec makes of the records, and the numbers of those that it refuses."""
        assert self._json
        decode, nothing = self._json.decode, self._fields.nothing
        found: list[Any] = []
        refused: list[int] = []
        each = map(decode, texts)
        while len(found) < len(texts):
            try:
                found.extend(each)  # goes on behind the last record that was refused
            except REFUSALS:
                refused.append(len(found))
                found.append(nothing)
        return found, refused

    def _learn(self, texts: Sequence[bytes]) -> bool:
        """Learn from records, and whether that may change what is read of them."""
        trees = [each for each in map(tree, texts) if isinstance(each, dict)]
        change = max(map(self._fields.learn, trees), default=False)
        if change or self._json is None:
            self._json = msgspec.json.Decoder(self._fields.python(), float_hook=msgspec.Raw)
        return change

    def _column(self, name: str, node: Node, objects: Sequence[Any], unsound: list[int]) -> pa.Array:
        values = self._fields.of(name, objects)
        try:
            return node.array(values)
        except NO_VALUE:
            numbers = node.misfits(values) if isinstance(node, Digits) else _misfits(node, values)
        kept = list(values)
        for number in numbers:
            kept[number] = None
            unsound.append(number)
        return node.array(kept)


def _misfits(node: Node, values: Sequence[Any], first: int = 0) -> Iterator[int]:
    """The numbers of the values that the node refuses, found by halving."""
    try:
        node.array(values)
    except NO_VALUE:
        if len(values) == 1:
            yield first
        else:
            half = len(values) // 2
            yield from _misfits(node, values[:half], first)
            yield from _misfits(node, values[half:], first + half)


def _is_extreme(text: bytes) -> bool:
    """Whether a record may have too many levels, or a number of too many digits. msgspec reads both.

    A long number shows in every 64th character.
    """
    return text.count(b"[") + text.count(b"{") > LEVELS or NUMBER.search(text[::EVERY]) is not None
