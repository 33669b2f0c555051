"""A record that anyone may see: its shape and the names of known fields, without its text and numbers."""

import re
from collections.abc import Collection

# A text in quotes is taken whole, because its content may look like anything. One that is cut off ends with the value.
_PART = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)(?:"(?P<key>\s*:)?|\Z)|\b(?:true|false|null)\b|.', re.DOTALL)
_CHARACTER = re.compile(r"[^\W\d_]|\d|[^\x20-\x7e]")


def blurred(value: bytes | None, longest: int, names: Collection[str]) -> str | None:
    """Letters become x, digits 0, invisible characters a dot. A key that is not in `names` may be data as well."""
    if value is None:
        return None

    def part(found: re.Match[str]) -> str:
        is_name = found["key"] and found["text"] in names
        is_word = found["text"] is None and len(found[0]) > 1
        return found[0] if is_name or is_word else _CHARACTER.sub(_blur, found[0])

    text = bytes(value[:longest]).decode("utf-8", "replace")
    return _PART.sub(part, text) + ("…" if len(value) > longest else "")


def _blur(found: re.Match[str]) -> str:
    what = found[0]
    return "x" if what.isalpha() else "0" if what.isdigit() else "·"
