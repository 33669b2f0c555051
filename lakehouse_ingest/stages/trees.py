"""Values of a record as text, and what of them counts as a value."""

import datetime as dt
from base64 import b64encode
from decimal import Decimal
from json.encoder import encode_basestring

from lakehouse_ingest.stages.records import Real, Value

NUMBERS = frozenset({int, float, Real, Decimal})  # and not bool, which is an int as well
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def holds(value: Value) -> bool:
    """Whether there is anything in a value. `null`, `[]` and `{}` hold nothing, nor do values made only of these."""
    if isinstance(value, dict):
        return any(map(holds, value.values()))
    if isinstance(value, list):
        return any(map(holds, value))
    return value is not None


def json_text(value: Value) -> str:
    """The value as JSON. Its numbers keep all their digits."""
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict):
        return f"{{{','.join([f'{encode_basestring(key)}:{json_text(each)}' for key, each in value.items()])}}}"
    if isinstance(value, list):
        return f"[{','.join([json_text(each) for each in value])}]"
    if value is None:
        return "null"
    text = plain_text(value)
    # JSON has numbers that no float holds, such as 1e400, but neither NaN nor Infinity.
    is_literal = value is True or value is False or (type(value) in NUMBERS and text[-1].isdigit())
    return text if is_literal else encode_basestring(text)


def plain_text(value: Value) -> str:  # noqa: PLR0911 - one for each kind of value
    """The value in a column of text: text as it is, a number as it was written, and JSON for everything else."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Real():
            return value.text
        case float():
            return NOT_FINITE.get(repr(value)) or repr(value)
        case Decimal():
            return f"{value:f}"
        case int():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case dt.date():  # a datetime is a date as well
            return value.isoformat()
        case dict() | list() | None:
            return json_text(value)
    return str(value)  # of a format with types that we do not know
