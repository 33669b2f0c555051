"""Types as text and back: `list<struct<lat: required double "north", "odd name": map<string, long>>>`.

Nested fields are optional unless the text says `required`. The quoted text behind a field's type is its doc string.
Ids are numbered from 1; a catalog assigns its own when it takes the type.
"""

import re
from collections.abc import Callable
from functools import lru_cache
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
_REQUIRED = "required"
# Other systems' names for these types, for a hint in the error.
_ELSEWHERE = {
    **dict.fromkeys(["bigint", "int64"], "long"),
    **dict.fromkeys(["integer", "smallint", "tinyint", "int32"], "int"),
    **dict.fromkeys(["text", "varchar", "char", "str"], "string"),
    **dict.fromkeys(["real", "float32"], "float"),
    "float64": "double",
    "bool": "boolean",
    "bytes": "binary",
}
_PRIMITIVE: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)


def parse_type(text: str) -> IcebergType:
    """Read a type from its text; a ValueError names what was not understood."""
    reader = _Reader(text)
    parsed = reader.type()
    reader.end()
    return parsed


def type_text(iceberg_type: IcebergType, *, bare: bool = False) -> str:
    """Write a type as the text that `parse_type` reads; `bare` leaves out `required` and doc strings."""

    def part(field: NestedField) -> str:
        return f"{'required ' if field.required and not bare else ''}{type_text(field.field_type, bare=bare)}"

    def doc(field: NestedField) -> str:
        return "" if field.doc is None or bare else f" {_in_quotes(field.doc)}"

    match iceberg_type:
        case StructType():
            fields = (f"{_quoted(field.name)}: {part(field)}{doc(field)}" for field in iceberg_type.fields)
            return f"struct<{', '.join(fields)}>"
        case ListType():
            return f"list<{part(iceberg_type.element_field)}>"
        case MapType():
            return f"map<{type_text(iceberg_type.key_type, bare=bare)}, {part(iceberg_type.value_field)}>"
        case _:
            # pyiceberg writes decimal(10, 2) with a space, unlike most others.
            text = str(iceberg_type)
            return text.replace(", ", ",") if text.startswith("decimal") else text


def canonical(text: str) -> str:
    """Give the one spelling of a type, so that texts can be compared."""
    return type_text(parse_type(text))


def bare(text: str) -> str:
    """Leave `required` and doc strings out of a type's text; a text without any is returned unchanged."""
    parsed = parse_type(text)
    alone = type_text(parsed, bare=True)
    return text if alone == type_text(parsed) else alone


def fields_of(text: str) -> dict[str, str]:
    """Give a struct's fields with their types; any other type has none."""
    parsed = parse_type(text)
    fields = parsed.fields if isinstance(parsed, StructType) else ()
    return {each.name: type_text(each.field_type, bare=True) for each in fields}


@lru_cache(256)
def _primitive(name: str) -> IcebergType:
    return _PRIMITIVE.validate_python(name)


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else _in_quotes(name)


def _in_quotes(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""'))


def _out_of_quotes(text: str) -> str:
    return text[1:-1].replace('""', '"')


class _Reader:
    """Reads one text from left to right."""

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
            return _primitive("".join(name.split()))
        except (ValueError, OutOfRange):
            hint = f": Iceberg says {known}" if (known := _ELSEWHERE.get(name.lower())) else ""
            raise ValueError(f"{name!r} in {self._text!r} is no Iceberg type{hint}") from None

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
            name = _out_of_quotes(name)
        self._mark(":")
        number = next(self._ids)
        required, kind = self._part()
        doc = _out_of_quotes(self._next("quoted")) if self._peek().startswith('"') else None
        return NestedField(field_id=number, name=name, field_type=kind, required=required, doc=doc)

    def _list(self) -> ListType:
        number = next(self._ids)
        required, element = self._part()
        return ListType(element_id=number, element_type=element, element_required=required)

    def _map(self) -> MapType:
        key_id, value_id = next(self._ids), next(self._ids)
        key = self.type()
        self._mark(",")
        required, value = self._part()
        return MapType(key_id=key_id, key_type=key, value_id=value_id, value_type=value, value_required=required)

    def _part(self) -> tuple[bool, IcebergType]:
        required = self._peek() == _REQUIRED
        if required:
            self._next("word")
        return required, self.type()

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
