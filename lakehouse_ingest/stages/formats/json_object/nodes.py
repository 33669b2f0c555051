"""How the fast decoder reads each part of a column: the type that msgspec decodes it to, and the array made of it.

A node learns from a few records what msgspec should expect: the order of the fields, fields without a column that hold
nothing, and numbers in text columns. What a node has not learned costs time, but never changes a value, because then
the reference decoder reads the record.
"""

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, chain
from operator import attrgetter
from typing import Annotated, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.stages.event_time import INSTANT, instants
from lakehouse_ingest.stages.records import Real, Value
from lakehouse_ingest.stages.trees import holds

INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Larger ones may be infinite. The reference decoder judges them.
FLOAT32 = Annotated[float, msgspec.Meta(ge=-3.4028234e38, le=3.4028234e38)]
NOTHING = list[None] | dict[str, None] | None  # what a field without a column may hold
MOST_SPARE = 1_000  # such fields that an object knows
NO_VALUE = (ValueError, pa.ArrowTypeError)  # ValueError stands for ArrowInvalid as well
PLAIN: dict[pa.DataType, Any] = {
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.float32(): FLOAT32,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): dt.date,
    pa.binary(): bytes,
}


class Node(Protocol):
    """A part of a column."""

    def python(self) -> Any:
        """The type that msgspec decodes it to, unless it is null."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        """The decoded values in Arrow. Raises one of `NO_VALUE` if one of them is not what the column takes."""

    def learn(self, value: Value) -> bool:
        """Prepare for values like this one. Returns whether anything changed."""


def node_of(kind: pa.DataType, *, drops: bool = False) -> Node:  # noqa: PLR0911 - one for each kind
    """The node for a wire type. `drops`: objects may have other fields, and these are dropped."""
    if pa.types.is_string(kind):
        return Text()
    if kind == INSTANT:
        return Instants()
    if pa.types.is_decimal(kind):
        return Digits(kind)
    if pa.types.is_struct(kind):
        return Fields({each.name: (each.type, node_of(each.type, drops=drops)) for each in kind}, drops=drops)
    if pa.types.is_list(kind):
        return Items(kind, node_of(kind.value_type, drops=drops))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return Entries(kind, node_of(kind.item_type, drops=drops))
    # Of a type that is not known here only nulls are read. The reference decoder reads all records with other values.
    return Plain(kind, PLAIN.get(kind, type(None)))


class Plain:
    """A type of which msgspec takes the same values as we do."""

    def __init__(self, kind: pa.DataType, python: Any) -> None:
        self._kind, self._python = kind, python

    def python(self) -> Any:
        return self._python

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self._kind)

    def learn(self, value: Value) -> bool:  # noqa: ARG002 - there is nothing to learn
        return False


class Text:
    """Text. A number becomes text as it is written, and an object or a list becomes JSON without spaces."""

    def __init__(self) -> None:
        self._is_mixed = False

    def python(self) -> Any:
        return Any if self._is_mixed else str | int | bool

    def array(self, values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(list(map(_text, values)), pa.string())

    def learn(self, value: Value) -> bool:
        change = isinstance(value, Real | dict | list) and not self._is_mixed
        self._is_mixed |= change
        return change


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


class Instants:
    """A time inside an object or a list. No later stage looks at it, so it is read completely."""

    def __init__(self) -> None:
        self._text = Text()

    def python(self) -> Any:
        return str | int

    def array(self, values: Sequence[Any]) -> pa.Array:
        texts = self._text.array(values)
        found = instants(texts, "us")
        if found.null_count > texts.null_count:
            raise ValueError("some are no times")
        return found

    def learn(self, value: Value) -> bool:  # noqa: ARG002 - there is nothing to learn
        return False


class Digits:
    """A decimal. All digits of the number count, so it is read as it is written."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        whole, scale = kind.precision - kind.scale, kind.scale
        # Arrow's cast is only right for these: others may become any number, because it does not notice an overflow.
        fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
        self._exact = rf"^-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{fraction}$"

    def python(self) -> Any:
        return Any  # only without a type msgspec hands out the text of a number

    def array(self, values: Sequence[Any]) -> pa.Array:
        if set(map(type, values)) <= {int, type(None)}:
            with suppress(pa.ArrowInvalid, OverflowError):  # a type that does not hold all integers of 64 bits
                return pa.array(values, pa.int64()).cast(self._kind)
        texts, exact = self._texts(values)
        if pc.min(exact).as_py() is False:
            raise ValueError("some are no numbers, or have too many digits")
        return texts.cast(self._kind)

    def learn(self, value: Value) -> bool:  # noqa: ARG002 - there is nothing to learn
        return False

    def misfits(self, values: Sequence[Any]) -> list[int]:
        """The numbers of the values that are not certainly exact."""
        return pc.indices_nonzero(pc.invert(self._texts(values)[1])).to_pylist()  # type: ignore[no-any-return]

    def _texts(self, values: Sequence[Any]) -> tuple[pa.StringArray, pa.BooleanArray]:
        written = [bytes(each) if type(each) is msgspec.Raw else _whole(each) for each in values]
        texts = pa.array(written, pa.binary()).cast(pa.string())
        return texts, pc.match_substring_regex(texts, self._exact)


def _whole(value: Any) -> bytes | None:
    return None if value is None else str(value).encode() if type(value) is int else b"no number"


class Fields:
    """An object with known fields. They are attributes with names of ours, because a key may be any text."""

    def __init__(self, fields: dict[str, tuple[pa.DataType, Node]], *, drops: bool = False) -> None:
        self._drops = drops
        self.nodes = {name: node for name, (_, node) in fields.items()}
        self._kinds = [pa.field(name, kind) for name, (kind, _) in fields.items()]
        self._names = {name: f"f{number}" for number, name in enumerate(fields) if can_be_expected(name)}
        self._spare: dict[str, str] = {}
        self._order: dict[str, None] = {}
        self.nothing: Any = None  # an object without any field

    def python(self) -> type[msgspec.Struct]:
        names = {**self._names, **self._spare}
        # msgspec looks for a key behind the last one that it found. In another order 40 fields take five times as long.
        order = [name for name in {**self._order, **names} if name in names]
        made = msgspec.defstruct(
            "Expected",
            [(names[name], self._python_of(name) | None, None) for name in order],
            rename={names[name]: name for name in order},
            forbid_unknown_fields=True,
            eq=False,
            gc=False,
        )
        self.nothing = made()
        return made

    def _python_of(self, name: str) -> Any:
        other = Any if self._drops else NOTHING
        return self.nodes[name].python() if name in self.nodes else other

    def of(self, name: str, objects: Sequence[Any]) -> Sequence[Any]:
        """The values of one field."""
        attribute = self._names.get(name)
        return list(map(attrgetter(attribute), objects)) if attribute else [None] * len(objects)

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self.nothing is None:  # it lies below a key that can't be expected, so there is none
            return pa.nulls(len(values), pa.struct(self._kinds))
        missing = [each is None for each in values]
        if not any(missing):
            return self.together([node.array(self.of(name, values)) for name, node in self.nodes.items()], len(values))
        there = [self.nothing if each is None else each for each in values]
        children = [node.array(self.of(name, there)) for name, node in self.nodes.items()]
        return self.together(children, len(values), pa.array(missing, pa.bool_()))

    def together(self, children: list[pa.Array], size: int, missing: pa.Array | None = None) -> pa.StructArray:
        if not children:
            return pa.array([{}] * size, pa.struct([]), mask=missing)
        return pa.StructArray.from_arrays(children, fields=self._kinds, mask=missing)

    def learn(self, value: Value) -> bool:
        change = False
        for name, each in value.items() if isinstance(value, dict) else ():
            if name in self.nodes:
                change |= self.nodes[name].learn(each)
            elif name not in self._spare and (self._drops or not holds(each)) and can_be_expected(name):
                change |= self._expect(name)
            if name in self.nodes or name in self._spare:
                self._order.setdefault(name)
        return change

    def _expect(self, name: str) -> bool:
        """Expect a field without a column: as long as it holds nothing, or whatever it holds if it is dropped."""
        if len(self._spare) == MOST_SPARE:
            return False
        self._spare[name] = f"s{len(self._spare)}"
        return True


def can_be_expected(name: str) -> bool:
    return not any(each in '"\\' or each < " " for each in name)  # else msgspec refuses the name


class Items:
    """A list."""

    def __init__(self, kind: pa.DataType, element: Node) -> None:
        self._kind, self._element = kind, element

    def python(self) -> Any:
        return list[self._element.python() | None]  # type: ignore[misc] # made at run time

    def array(self, values: Sequence[Any]) -> pa.Array:
        elements = self._element.array(list(chain.from_iterable(filter(None, values))))
        return pa.ListArray.from_arrays(_offsets(values), elements, type=self._kind, mask=_missing(values))

    def learn(self, value: Value) -> bool:
        return isinstance(value, list) and max(map(self._element.learn, value), default=False)


class Entries:
    """A map. Its keys are text."""

    def __init__(self, kind: pa.DataType, value: Node) -> None:
        self._kind, self._value = kind, value

    def python(self) -> Any:
        return dict[str, self._value.python() | None]  # type: ignore[misc] # made at run time

    def array(self, values: Sequence[Any]) -> pa.Array:
        there = list(filter(None, values))
        keys = pa.array(list(chain.from_iterable(there)), pa.string())
        found = self._value.array(list(chain.from_iterable(each.values() for each in there)))
        return pa.MapArray.from_arrays(_offsets(values), keys, found, type=self._kind, mask=_missing(values))

    def learn(self, value: Value) -> bool:
        return isinstance(value, dict) and max(map(self._value.learn, value.values()), default=False)


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array([0, *accumulate(0 if each is None else len(each) for each in values)], pa.int32())


def _missing(values: Sequence[Any]) -> pa.Array | None:
    return pa.array([each is None for each in values], pa.bool_()) if None in values else None
