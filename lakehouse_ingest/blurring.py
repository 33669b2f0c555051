"""A record for everybody's eyes: its shape, the names of its fields, and nothing that it says."""

import re

# A field's name is what would be a column's: a key that is data, such as an address, is blurred like a value.
_FIELD = re.compile(r'"[A-Za-z_][A-Za-z_.-]{0,39}"(?=\s*:)')
_JSON_WORD = re.compile(r"\b(?:true|false|null)\b")
_CHARACTER = re.compile(r"[^\W\d_]|\d|[^\x20-\x7e]")
_KEPT = re.compile(f"{_FIELD.pattern}|{_JSON_WORD.pattern}|{_CHARACTER.pattern}")
_SAID = re.compile(r"(?<=: ).*?(?= is no)")


def blurred(value: bytes | None, longest: int) -> str | None:
    """Letters are x, digits 0, whatever can't be seen a dot."""
    if value is None:
        return None
    text = bytes(value[:longest]).decode("utf-8", "replace")
    return _KEPT.sub(_blur, text) + ("…" if len(value) > longest else "")


def blurred_detail(detail: str | None) -> str:
    """What was wrong, without the value that was."""
    return _SAID.sub(lambda found: _CHARACTER.sub(_blur, found[0]), detail or "")


def _blur(found: re.Match[str]) -> str:
    what = found[0]
    if len(what) > 1:
        return what
    return "x" if what.isalpha() else "0" if what.isdigit() else "·"
