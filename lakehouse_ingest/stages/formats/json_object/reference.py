"""What a record means: its fields as plain Python values, or the fault that explains why it has none.

A value that is nested more than 200 levels deep is not read, nor is a number of more than 1,000 digits. So no record
can exhaust the stack, or make Python compute for minutes.
"""

import json
import re
from itertools import accumulate
from typing import Any

from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages.records import Fault, Real, Tree

STAGE = "decode"
LEVELS = 200
DIGITS = 1_000
SPACES = " \t\r\n"  # what JSON calls white space
# All escapes from left to right, so that a backslash that is escaped itself begins none. The group is a half.
ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
# Whatever is no bracket. A text ends with the value if nothing else ends it, or a search would begin again inside it.
NO_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^"\[\]{}]+', re.DOTALL)


def tree(value: bytes | None) -> Tree | Fault:
    """The fields of a record, or why it can't be read."""
    if value is None or not value.strip(SPACES.encode()):
        return _fault(Reason.EMPTY, "the value is empty")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _fault(Reason.NOT_TEXT, "the value is not UTF-8")
    if has_half(text):
        return _fault(Reason.NOT_TEXT, "half a character, such as \\ud83d without what follows")
    return _object(text)


def _object(text: str) -> Tree | Fault:
    is_deep = text.count("[") + text.count("{") > LEVELS
    broken = f"not JSON, or more than {LEVELS} levels deep" if is_deep else "the value is not JSON"
    if is_deep and levels(text) > LEVELS:
        return _fault(Reason.BROKEN, broken)
    reader = COUNTING if len(text) > DIGITS else READER
    try:
        found, end = reader.raw_decode(text, len(text) - len(text.lstrip(SPACES)))
    except ValueError:
        return _fault(Reason.BROKEN, broken)
    if text[end:].strip(SPACES):
        return _fault(Reason.BROKEN, "something follows the JSON object" if isinstance(found, dict) else broken)
    if not isinstance(found, dict):
        return _fault(Reason.NOT_OBJECT, f"{_kind(found)} where an object is expected")
    return found


def has_half(text: str) -> bool:
    """Whether a text in JSON has half of a surrogate pair, which is no character."""
    return ("\\ud" in text or "\\uD" in text) and any(found[1] for found in ESCAPE.finditer(text))


def levels(text: str) -> int:
    """How many objects and lists are open at once. For a text that is not JSON: up to the first error, or more."""
    brackets = NO_BRACKET.sub("", text)
    return max(accumulate(1 if each in "[{" else -1 for each in brackets), default=0)


def _whole(text: str) -> int:
    _check_digits(text)
    return int(text)


def _real(text: str) -> Real:
    _check_digits(text)
    return Real(text)


def _check_digits(text: str) -> None:
    if len(text) > DIGITS and sum(map(str.isdigit, text)) > DIGITS:
        raise ValueError(f"a number of more than {DIGITS} digits")


READER = json.JSONDecoder(parse_float=Real, parse_constant=Real)
COUNTING = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=Real)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
    return "a text" if isinstance(value, str) else "a list"


def _fault(reason: Reason, words: str) -> Fault:
    return Fault(reason, words, STAGE, words)  # the words quote nothing of the record
