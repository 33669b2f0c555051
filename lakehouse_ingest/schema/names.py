"""Makes names of tables and columns from topics, types and JSON keys. One rule serves both.

Letters, digits, marks and `_` stay. A column may have letters of any script, a table only ASCII, because its name
becomes part of its path. Every other character becomes `_`. A name that is empty, or begins with a digit or a mark,
gets a `_` before it. A reserved name gets a `_` after it. A name of more than 100 characters is cut.

The originals are stored: the topic and the type in the table's properties, the key in the column's doc string. Two
names that are equal, or differ only by case, are told apart by a piece of the original's hash, or refused: see the
setting `names`.
"""

from collections.abc import Collection, Iterable
from hashlib import sha256
from unicodedata import normalize

LONGEST = 100
HASH_DIGITS = 8
# Columns that readers or Iceberg itself add to a table.
RESERVED = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_commit_snapshot_id",
        "_change_type",
        "_change_ordinal",
    }
)


def readable(outside: str, *, ascii_only: bool = False) -> str:
    """The name that the rule gives."""
    kept = "".join(each if _stays(each, ascii_only=ascii_only) else "_" for each in normalize("NFC", outside))
    if not kept.isidentifier():
        kept = f"_{kept}"
    if kept.casefold() in RESERVED:
        kept += "_"
    return kept if len(kept) <= LONGEST else apart(kept, outside)


def of_table(template: str, topic: str, kind: str) -> str:
    """The name that a template gives for records of this topic and type."""
    for part, outside in (("{topic}", topic), ("{type}", kind)):
        template = template.replace(part, readable(outside, ascii_only=True))
    return readable(template, ascii_only=True)


def _stays(character: str, *, ascii_only: bool) -> bool:
    # Python's identifiers have the characters that we want: letters, digits and marks of any script, and `_`.
    return f"_{character}".isidentifier() and (character.isascii() or not ascii_only)


def apart(name: str, outside: str) -> str:
    """The name with a piece of the original's hash, so that no other original gets the same."""
    digits = sha256(outside.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{name[: LONGEST - HASH_DIGITS - 1]}_{digits}"


def told_apart(outside: str, folded: Collection[str]) -> str:
    """The readable name, changed until it is none of the given names, which have to be case-folded."""
    name = plain = readable(outside)
    while name.casefold() in folded:
        # Once is enough, unless another name ends with the same hash.
        name, outside = apart(plain, outside), f"{outside}\0"
    return name


def meets(name: str, others: Iterable[str]) -> bool:
    """Whether an engine that ignores case would confuse the name with one of the others."""
    return name.casefold() in {other.casefold() for other in others}
