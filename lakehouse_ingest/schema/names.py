"""Names from the outside (topics, types, keys of JSON) as names of tables and columns: one rule for both.

Letters, digits, marks and `_` stay, in a column those of any script, in a table those of ASCII, for a table's
name becomes part of its path. Every other character becomes `_`; a digit or a mark in front, or nothing at all,
gets a `_` before it; a reserved name gets one behind it. A name of more than 100 characters is cut.

The rule is reversed by what is kept beside it: the topic and the type in the table's properties, the key in the
column's doc string. Names that meet (they differ by case only, or not at all) are told apart by a piece of the
original's hash, or refused: see the setting `names`.
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
    """The name by the rule."""
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
    # What may stand in an identifier of Python: letters and digits of any script, their marks, and `_`.
    return f"_{character}".isidentifier() and (character.isascii() or not ascii_only)


def apart(name: str, outside: str) -> str:
    """The same name, not to be confused with that of another original."""
    told = sha256(outside.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{name[: LONGEST - HASH_DIGITS - 1]}_{told}"


def told_apart(outside: str, folded: Collection[str]) -> str:
    """The readable name, changed as long as it is one of those names; these are given case-folded."""
    name = plain = readable(outside)
    while name.casefold() in folded:
        # Once is enough, unless somebody else's name ends in the very hash.
        name, outside = apart(plain, outside), f"{outside}\0"
    return name


def meets(name: str, others: Iterable[str]) -> bool:
    """Whether an engine that does not look at case would take it for one of the others."""
    return name.casefold() in {other.casefold() for other in others}
