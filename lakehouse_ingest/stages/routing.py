"""Which records go where: those that a table holds already go nowhere, and all others to the table of their route.

A start looks once for the coordinates of the records of an interrupted batch. A task gets the sets of its own shares
only, and leaves these records out.

The table of a record is chosen by its topic and its type. A record that no entry takes has a fault. Python looks at
each distinct type of a chunk once. The records themselves are only sorted and sliced, in Arrow.
"""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import Reason
from lakehouse_ingest.settings import StreamSettings, TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.stages.records import Fault, Faults, Records, Share

STAGE = "route"
NOT_KEPT: Final = "not kept"  # the route of records that `keep_types` filters out
SEPARATOR = "\x1f"
LONGEST_TYPE = 255  # characters
SHOWN = 60  # characters of a type in the detail of a fault
UTF8_MOST = 4  # bytes of a character
NO_ENTRY = "no entry of `streams.tables` takes the topic"


Held = Mapping[tuple[str, int], BitMap64]
"""The offsets that the tables hold at and beyond the start, by log and partition."""


def held_in(held: Held, shares: Iterable[Share]) -> Held:
    """Only the offsets of these shares: little to send to a task, even if a topic is read again from its beginning."""
    found: dict[tuple[str, int], BitMap64] = {}
    for share in shares:
        at = (share.log, share.partition)
        if at in held and (part := held[at] & BitMap64(range(share.start, share.end))):
            found[at] = found.get(at, BitMap64()) | part
    return found


def without(records: Records, held: Held) -> tuple[pa.UInt64Array, int]:
    """The numbers of the rows that no table holds yet, and how many are trimmed."""
    every, known = row_numbers(len(records)), held.get((records.log, records.partition))
    if known is None or not len(records):
        return every, 0
    offsets = records.rows["offset"]
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    there = (known & BitMap64(range(first, last + 1))).to_array()
    if not there:
        return every, 0
    known_here = pa.Array.from_buffers(pa.uint64(), len(there), [None, pa.py_buffer(array("Q", there))])
    kept = pc.indices_nonzero(pc.invert(pc.is_in(offsets.cast(pa.uint64()), known_here)))
    return kept, len(records) - len(kept)


# -- routes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """Where the records of one topic and type go."""

    entry: int  # its number in `streams.tables`
    topic: str = ""  # empty if the template does not name it
    type: str = ""

    def __str__(self) -> str:
        return SEPARATOR.join((str(self.entry), self.topic, self.type))

    @classmethod
    def parse(cls, text: str) -> "Route":
        entry, topic, kind = text.split(SEPARATOR, 2)
        return cls(int(entry), topic, kind)


Way = Route | Literal["not kept"] | None  # None: no entry takes the record


@dataclass(frozen=True)
class Routed:
    """The records of a chunk that go one way."""

    way: Way
    rows: pa.UInt64Array  # the numbers of their rows, ascending

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Only these rows of a batch that has one row for each record of the chunk."""
        return batch if len(self.rows) == batch.num_rows else batch.take(self.rows)


class Router:
    """The routes of one stream. It is made once and sees each chunk of records."""

    def __init__(self, stream: StreamSettings, form: Format) -> None:
        self._stream = stream
        self._form = form
        self._keeps = _searching(stream.keep_types) if stream.keep_types else None
        self._by_type = bool(stream.keep_types) or any(map(_needs_type, stream.tables))

    def split(self, records: Records) -> list[Routed]:
        """Every record is in exactly one of them."""
        if not len(records):
            return []
        if not self._by_type:
            return [Routed(self._way(records.topic, None), row_numbers(len(records)))]
        types, codes = self._types(records)
        kept = self._keeps(types) if self._keeps else [True] * len(types)
        ways: dict[Way, int] = {}
        number_of = [
            ways.setdefault(self._way(records.topic, kind) if keeps else NOT_KEPT, len(ways))
            for kind, keeps in zip(types, kept, strict=True)
        ]
        if codes.null_count:
            codes = pc.fill_null(codes, len(types))
            number_of.append(ways.setdefault(self._way(records.topic, None), len(ways)))
        if len(ways) == 1:
            return [Routed(next(iter(ways)), row_numbers(len(records)))]
        return _grouped([*ways], pa.array(number_of, pa.int32()).take(codes))

    def astray(self, records: Records, rows: pa.Array) -> Faults:
        """The faults of records that no entry takes, by the numbers of their rows in `records`.

        A record that can't be read has no type either. So read it first, and its fault says so.
        """
        few = Records(records.topic, records.partition, records.log, records.rows.take(rows))
        types: Sequence[str | None] = [None] * len(few)
        if self._stream.type_from:
            known, codes = self._types(few)
            types = [None if code is None else known[code] for code in codes.to_pylist()]
        found: dict[int, Fault] = {}
        for row, value, kind in zip(rows.to_pylist(), few.rows["value"].to_pylist(), types, strict=True):
            read = self._form.tree(value)
            found[row] = read if isinstance(read, Fault) else self._untaken(records.topic, kind)
        return found

    def _way(self, topic: str, kind: str | None) -> Route | None:
        for number, entry in enumerate(self._stream.tables):
            wanted = (not entry.topics or topic in entry.topics) and (not entry.types or kind in entry.types)
            if wanted and not ("{type}" in entry.table and kind is None):
                names = (topic if "{topic}" in entry.table else "", kind if "{type}" in entry.table else "")
                return Route(number, names[0], names[1] or "")
        return None

    def _untaken(self, topic: str, kind: str | None) -> Fault:
        if not self._stream.type_from:
            return Fault(Reason.NO_TABLE, f"{NO_ENTRY} {topic}", STAGE, NO_ENTRY)
        if kind is None:
            words = f"no type is found at {self._stream.type_from}"
            return Fault(Reason.NO_TABLE, words, STAGE, words)
        detail = f"{NO_ENTRY} {topic} with the type {kind[:SHOWN]}"
        return Fault(Reason.NO_TABLE, detail, STAGE, f"{NO_ENTRY} with this type")

    # -- the types of records -----------------------------------------------------------------------------

    def _types(self, records: Records) -> tuple[list[str], pa.Int32Array]:
        """The distinct types, and for each record the number of its type, or null if it has none."""
        found = self._texts(records).dictionary_encode()
        names = [_name(each) for each in found.dictionary.to_pylist()]
        types = {name: number for number, name in enumerate(dict.fromkeys(each for each in names if each is not None))}
        if len(types) == len(names):
            return [*types], found.indices
        codes = pa.array([None if name is None else types[name] for name in names], pa.int32())
        return [*types], codes.take(found.indices)

    def _texts(self, records: Records) -> pa.Array:
        where, _, name = (self._stream.type_from or "").partition(":")
        match where:
            case "key":
                return records.rows["key"]
            case "header":
                return _last_header(records.rows["headers"], name)
            case "field":
                return self._form.field(records.rows["value"], name.split("."))
        return pa.nulls(len(records), pa.string())


def refused(rows: pa.Array, reason: Reason, detail: str, told: str = "") -> Faults:
    """The same fault for all of these records: their route leads to no table. `told` quotes nothing of a record."""
    return dict.fromkeys(rows.to_pylist(), Fault(reason, detail, STAGE, told))


def unreadable_or(form: Format, records: Records, fault: Fault) -> Faults:
    """The faults of records whose route leads to no table. A record that can't be read says so instead."""
    read = (form.tree(value) for value in records.rows["value"].to_pylist())
    return {row: each if isinstance(each, Fault) else fault for row, each in enumerate(read)}


def row_numbers(count: int) -> pa.UInt64Array:
    """The numbers from 0 on."""
    return _upto(1 << max(count - 1, 2**16 - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=4)
def _upto(count: int) -> pa.UInt64Array:
    return pa.array(range(count), pa.uint64())  # 0.1 µs a number, so the chunks share one


def _grouped(ways: Sequence[Way], numbers: pa.Int32Array) -> list[Routed]:
    """The rows of each way. The sort is stable, so they stay in the order of the records."""
    order = pc.array_sort_indices(numbers)
    ends = pc.run_end_encode(numbers.take(order)).run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    return [Routed(way, order.slice(start, end - start)) for way, start, end in zip(ways, starts, ends, strict=True)]


def _needs_type(entry: TableSettings) -> bool:
    return bool(entry.types) or "{type}" in entry.table


def _last_header(headers: pa.ListArray, name: str) -> pa.Array:
    """The value of the last header of that name, as in Kafka's own clients."""
    flat = headers.flatten()
    wanted = pc.equal(flat.field("key"), name)
    rows, values = pc.list_parent_indices(headers).filter(wanted), flat.field("value").filter(wanted)
    if not len(rows):
        return pa.nulls(len(headers), pa.binary())
    following = pa.chunked_array([rows.slice(1), pa.array([len(headers)], rows.type)])
    is_last = pc.not_equal(rows, following).combine_chunks()
    rows, values = rows.filter(is_last), values.filter(is_last)
    if len(rows) == len(headers):
        return values
    return values.take(pc.index_in(row_numbers(len(headers)).cast(rows.type), rows))


def _name(text: str | bytes | None) -> str | None:
    """The text, if it may name a type.

    A JSON object or list is not a name, but a name may begin with a brace. A text that is longer than the name of any
    topic is not a name either, and would stay in the metadata of each table.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode() if len(text) <= UTF8_MOST * LONGEST_TYPE else None
        except UnicodeDecodeError:
            return None
    if not text or len(text) > LONGEST_TYPE or (text.lstrip()[:1] in ("{", "[") and _is_json(text)):
        return None
    return text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# -- keep_types -------------------------------------------------------------------------------------------

REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
REPETITION = re.compile(r"[*+]|,\s*\}")
FEW = 3  # with so many, the worst pattern that was tried took Python 0.6 s for a type of 254 characters


def _searching(pattern: str) -> Callable[[Sequence[str]], list[bool]]:
    """Says which texts hold a match of the regular expression.

    The senders of records choose the types. Some patterns take Python hours for a type that was made for them:
    those that repeat a repeated part, or many parts in a row. RE2 needs linear time for every pattern that it knows.
    """
    if not REPEATED_GROUP.search(pattern) and len(REPETITION.findall(pattern)) <= FEW:
        return partial(_by_python, re.compile(pattern))
    try:
        _by_re2(pattern, [""])  # without any text Arrow does not read the pattern
    except pa.ArrowInvalid:
        raise SettingsRefused(
            f"`keep_types` could search a single type for hours: {pattern[:SHOWN]}; write it without repeated groups,"
            " or without look-arounds and back references"
        ) from None
    return partial(_by_re2, pattern)


def _by_python(pattern: re.Pattern[str], texts: Sequence[str]) -> list[bool]:
    return [pattern.search(text) is not None for text in texts]


def _by_re2(pattern: str, texts: Sequence[str]) -> list[bool]:
    found: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), pattern).to_pylist()
    return found
