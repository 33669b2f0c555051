"""Text as a person reads it: text of others made harmless to look at, and counts with their noun.

What records, servers or settings say may steer a terminal.

An escape sequence writes to the clipboard or renames the window, and a mark for text from right to left makes a name
look like another one. Whatever can't be seen is spelled out (`\\x1b`), so that a person sees that it is there.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_BREAK = re.compile("\\s*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\\s*")


def printable(text: str, *, lines: bool = False) -> str:
    """On one line, unless `lines` are wanted: those that \\n parts."""
    if lines:
        return "\n".join(_seen(line) for line in text.split("\n"))
    return _seen(_BREAK.sub(" ", text))


def all_printable(value: Any) -> Any:
    """The same of every text in lists and mappings, whose keys are texts."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable(key): all_printable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [all_printable(inner) for inner in value]
    return value


def many(count: int, one: str, several: str = "") -> str:
    """A count with its noun, such as `1 row` and `1,000 rows`."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def _seen(line: str) -> str:
    return line if line.isprintable() else "".join(map(_spelled, line))


def _spelled(character: str) -> str:
    """Spaces of other widths stay: they are Zs, and Python calls none of them printable."""
    if character.isprintable() or character == "\t" or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")
