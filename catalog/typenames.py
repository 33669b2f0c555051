"""Types as text and back: `list<struct<lat: double, "odd name": map<string, long>>>`.

Nested fields are always optional. Their ids are numbered from 1; a catalog assigns its own when it takes
the type.
"""

import re
from collections.abc import Callable
from itertools import count

from pydantic import TypeAdapter
from pyiceberg.exceptions import ValidationError as OutOfRange
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<sized>(?:decimal|fixed|geometry|geography)\s*[(\[][^)\]]*[)\]])
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<word>\w+)
      | (?P<mark>[<>,:])
    )""",
    re.VERBOSE,
)
_WORD = re.compile(r"\w+")
_PRIMITIVE: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)


def parse_type(text: str) -> IcebergType:
    """Read a type's text; a ValueError names what was not understood."""
    reader = _Reader(text)
    parsed = reader.type()
    reader.end()
    return parsed


def type_text(iceberg_type: IcebergType) -> str:
    """Write a type as the text that `parse_type` reads."""
    match iceberg_type:
        case StructType():
            fields = (f"{_quoted(field.name)}: {type_text(field.field_type)}" for field in iceberg_type.fields)
            return f"struct<{', '.join(fields)}>"
        case ListType():
            return f"list<{type_text(iceberg_type.element_type)}>"
        case MapType():
            return f"map<{type_text(iceberg_type.key_type)}, {type_text(iceberg_type.value_type)}>"
        case _:
            # pyiceberg puts a space into decimal(10, 2), and so do few others.
            text = str(iceberg_type)
            return text.replace(", ", ",") if text.startswith("decimal") else text


def canonical(text: str) -> str:
    """Give the one spelling of a type, so that texts can be compared."""
    return type_text(parse_type(text))


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else '"{}"'.format(name.replace('"', '""'))


class _Reader:
    """One pass over one text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._ids = text, 0, count(1)
        self._nested: dict[str, Callable[[], IcebergType]] = {
            "struct": self._struct,
            "list": self._list,
            "map": self._map,
        }

    def type(self) -> IcebergType:
        token = self._next("sized", "word")
        nested = self._nested.get(token)
        if nested is None:
            return self._primitive(token)
        self._mark("<")
        parsed = nested()
        self._mark(">")
        return parsed

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._misread("nothing more")

    def _primitive(self, name: str) -> IcebergType:
        try:
            return _PRIMITIVE.validate_python("".join(name.split()))
        except (ValueError, OutOfRange):
            raise ValueError(f"{name!r} in {self._text!r} is no Iceberg type") from None

    def _struct(self) -> StructType:
        if self._peek() == ">":
            return StructType()
        fields = [self._field()]
        while self._peek() == ",":
            self._mark(",")
            fields.append(self._field())
        return StructType(*fields)

    def _field(self) -> NestedField:
        name = self._next("quoted", "sized", "word")
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        self._mark(":")
        return NestedField(field_id=next(self._ids), name=name, field_type=self.type(), required=False)

    def _list(self) -> ListType:
        return ListType(element_id=next(self._ids), element_type=self.type(), element_required=False)

    def _map(self) -> MapType:
        key_id, value_id = next(self._ids), next(self._ids)
        key = self.type()
        self._mark(",")
        return MapType(key_id=key_id, key_type=key, value_id=value_id, value_type=self.type(), value_required=False)

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[0].strip() if found else ""

    def _mark(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._misread(repr(mark))
        self._next("mark")

    def _next(self, *kinds: str) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup not in kinds:
            raise self._misread("a type or a name")
        self._at = found.end()
        return found[0].strip()

    def _misread(self, wanted: str) -> ValueError:
        return ValueError(f"{self._text!r} is no Iceberg type: {wanted} was expected at position {self._at}")
