"""Text as a person reads it: text of others made harmless to look at, and counts with their noun.

An escape sequence can write to the clipboard or rename the window. A right-to-left mark can make one name look like
another. Characters that can't be seen are spelled out (`\\x1b`), so that a person sees them.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_BREAK = re.compile("\\s*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\\s*")


def printable(text: str, *, lines: bool = False) -> str:
    """Spell out what can't be seen. The result is one line; with `lines`, line feeds stay."""
    if lines:
        return "\n".join(_seen(line) for line in text.split("\n"))
    return _seen(_BREAK.sub(" ", text))


def all_printable(value: Any) -> Any:
    """Apply `printable` to every text in lists and mappings. Keys of mappings have to be texts."""
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
    """Spaces of other widths (Unicode category Zs) stay, although Python does not call them printable."""
    if character.isprintable() or character == "\t" or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")
