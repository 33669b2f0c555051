"""The rescued fields of a row, and how a column takes them: plain values."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import reduce
from math import isfinite
from struct import pack, unpack
from typing import Any

import pyarrow as pa

from lakehouse_ingest.schema.column_types import are_names


class _Written(Decimal):
    """A number that keeps the text it was written as, because a column of text takes it as that."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


_DECODER = json.JSONDecoder(parse_float=_Written)
_BETWEEN = " \t\r\n,:"
# The times that `stages.rows` reads, but only those whose digits a column keeps completely.
_TIME = re.compile(
    r"(?P<local>\d{4}-\d{2}-\d{2}([T ]([01]\d|2[0-3]):\d{2}(?P<seconds>:\d{2}([.,]\d{1,6}0{0,3})?)?)?)"
    r"(?(seconds)(\s?(?P<zone>Z|[+-]((0\d|1[0-7])(:?[0-5]\d)?|18(:?00)?)))?)",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def parts_of(text: str) -> dict[str, str]:
    """The fields of a JSON object, each value as it is written, so that no number is rounded by a float.

    Any other text gives no fields: another writer put it into the column.
    """
    try:
        is_object = isinstance(value_of(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    found: dict[str, str] = {}
    if not is_object:
        return found
    at = _beyond(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _beyond(text, at)
        _, at = _DECODER.raw_decode(text, start)
        found[key] = text[start:at]
        at = _beyond(text, at)
    return found


def _beyond(text: str, at: int) -> int:
    """The position behind the characters between keys and values."""
    while text[at : at + 1] and text[at] in _BETWEEN:
        at += 1
    return at


def value_of(text: str) -> Any:
    return _DECODER.decode(text)


def written(parts: Mapping[str, str]) -> str | None:
    """The fields as a JSON object again; None if there are none."""
    inside = ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in parts.items())
    return f"{{{inside}}}" if parts else None


def found_at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def put_at(row: Any, path: Sequence[str], value: Any) -> Any:
    """The row with the value put in, inside the objects that lead to it; those that are there are kept."""
    if not path:
        return value
    return {**(row or {}), path[0]: put_at((row or {}).get(path[0]), path[1:], value)}


def holds(value: Any) -> bool:
    """Whether there is anything in a value. `null`, `[]` and `{}` hold nothing, nor do values made of these alone."""
    inside = value.values() if isinstance(value, dict) else value
    return any(map(holds, inside)) if isinstance(value, dict | list) else value is not None


def covered(value: Any, got: Any) -> bool:
    """Whether the column holds all of the value. Parts that hold nothing may be missing."""
    if not holds(value):
        return True
    match value, got:
        case dict(), list():  # a map, as Arrow gives it
            return covered(value, dict(got))
        case dict(), dict():
            return all(covered(each, got.get(key)) for key, each in value.items())
        case list(), list():
            return len(value) == len(got) and all(map(covered, value, got))
    return got is not None


def fitted(value: Any, kind: pa.DataType) -> Any:
    """The value as the column takes it. Raises ValueError if it does not, or if something would be lost."""
    if value is None:
        return None
    found = _nested(value, kind) if pa.types.is_nested(kind) else _plain(value, kind)
    if found is None:
        raise ValueError(f"{str(value)[:60]} is not {kind}")
    return found


def _nested(value: Any, kind: Any) -> Any:
    match value:
        case list() if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [fitted(each, kind.value_type) for each in value]
        case dict() if pa.types.is_map(kind):
            return [(key, fitted(each, kind.item_type)) for key, each in value.items()]
        case dict() if pa.types.is_struct(kind):
            types = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
            if more := [key for key, each in value.items() if holds(each) and key not in types]:
                raise ValueError(f"{more[0]} has no place")
            return {name: fitted(value.get(name), inner) for name, inner in types.items()}
    return None


def _plain(value: Any, kind: Any) -> Any:
    take = next((take for is_kind, take in _TAKES if is_kind(kind)), None)
    return take(value, kind) if take else None


def _text(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    return _json(value)


def _json(value: Any) -> str:
    """As text, with all digits: a column of text that was there from the beginning has the same."""
    match value:
        case dict():
            return written({key: _json(each) for key, each in value.items()}) or "{}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def _boolean(value: Any, _: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Any, kind: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1 else None


def _fraction(value: Any, kind: Any) -> float | None:
    if not _is_number(value):
        return None
    try:
        found = float(value)
        (held,) = (found,) if kind.bit_width == 64 else unpack("f", pack("f", found))  # noqa: PLR2004
    except OverflowError:
        return None
    # The nearest number will do for a fraction. A whole number may be an id, so it has to be exact.
    return found if isfinite(held) and (isinstance(value, Decimal) or held == value) else None


def _decimal(value: Any, kind: Any) -> Decimal | None:
    if not _is_number(value):
        return None
    try:
        found = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=kind.precision))
    except InvalidOperation:
        return None
    return found if found == value else None


def _time(value: Any, kind: Any) -> dt.datetime | None:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match["zone"] and not kind.tz):
        return None
    at = dt.datetime.fromisoformat(match["local"] + (match["zone"] or ""))
    if not kind.tz:
        return at
    try:
        return (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except OverflowError:  # beyond the years that a datetime can hold
        return None


def _date(value: Any, _: Any) -> dt.date | None:
    return dt.date.fromisoformat(value) if isinstance(value, str) and _DATE.fullmatch(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


_TAKES: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _fraction),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, _date),
)


class _Several(Exception):
    """The values have no type in common but JSON text."""


def type_of(values: Iterable[Any]) -> str:
    """The Iceberg type that takes all these values, in whatever order; `string` if they have no other in common.

    No value is kept in memory. Each value has a kind, which is None if it holds nothing, and two kinds become one.
    """
    try:
        return _iceberg(_met(map(_kind, values))) or "string"
    except _Several:
        return "string"


def _kind(value: Any) -> Any:  # noqa: PLR0911 - one for each
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int() if -(1 << 63) <= value < 1 << 63:
            return "long" if float(value) == value else "large"
        case Decimal() if isfinite(float(value)):
            return "double"
        case str():
            return "string"
        case list():
            return [_met(map(_kind, value))]
        case dict():
            return {name: _kind(each) for name, each in value.items()}
    raise _Several


def _met(kinds: Iterable[Any]) -> Any:
    return reduce(_common, kinds, None)


def _common(one: Any, other: Any) -> Any:
    if one is None or other is None or one == other:
        return other if one is None else one
    match one, other:
        case ("long", "large" | "double") | ("large" | "double", "long"):
            return other if one == "long" else one
        case list(), list():
            return [_common(one[0], other[0])]
        case dict(), dict():
            return {name: _common(one.get(name), other.get(name)) for name in one | other}
    raise _Several


def _iceberg(kind: Any) -> str | None:
    match kind:
        case list():
            element = _iceberg(kind[0])
            return f"list<{element}>" if element else None
        case dict():
            if not are_names(kind):
                return "string"
            known = [(name, text) for name, each in sorted(kind.items()) if (text := _iceberg(each))]
            return "struct<" + ", ".join(f'"{_quoted(name)}": {text}' for name, text in known) + ">" if known else None
        case "large":
            return "long"
    found: str | None = kind
    return found


def _quoted(name: str) -> str:
    return name.replace('"', '""')
