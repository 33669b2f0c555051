"""Types as text, in Iceberg's words, and in Arrow's as people write them in settings."""

import re
from collections.abc import Collection

# Iceberg has no integers of 8 or 16 bits and no unsigned ones. They get a wider type, and we check their range.
RANGES: dict[str, tuple[str, int, int]] = {
    "int8": ("int", -(2**7), 2**7 - 1),
    "int16": ("int", -(2**15), 2**15 - 1),
    "uint8": ("int", 0, 2**8 - 1),
    "uint16": ("int", 0, 2**16 - 1),
    "uint32": ("long", 0, 2**32 - 1),
    "uint64": ("decimal(20,0)", 0, 2**64 - 1),
}
OTHER_NAMES = {
    "utf8": "string",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "bool": "boolean",
    "timestamp": "timestamptz",
    "bigint": "long",
}
PLAIN = ("string", "int", "long", "float", "double", "boolean", "timestamptz", "date", "binary")
WORDS = {*PLAIN, "timestamp", "struct", "list", "map"}
MOST_DIGITS = 38
DEEPEST = 21  # levels of objects and lists in a column; deeper ones are kept as JSON text


def is_decimal(text: str) -> bool:
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", text)
    return found is not None and 1 <= int(found[1]) <= MOST_DIGITS and int(found[2]) <= int(found[1])


def is_nested(text: str) -> bool:
    """Whether the words and brackets are right. The catalog checks the type as a whole."""
    types = re.sub(r'"(?:[^"]|"")*"\s*:|\w+\s*:', "", text)
    words = re.findall(r"decimal\s*\([^)]*\)|\w+", types)
    return (
        re.fullmatch(r"(struct|list|map)<.+>", types.strip()) is not None
        and types.count("<") == types.count(">")
        and all(word in WORDS or is_decimal(re.sub(r"\s", "", word)) for word in words)
    )


def is_written(iceberg: str) -> bool:
    """Whether we can write values of this type."""
    kind = re.sub(r"\s", "", iceberg)
    return kind in {*PLAIN, "timestamp"} or is_decimal(kind) or is_nested(iceberg)


def are_names(keys: Collection[str]) -> bool:
    """Whether an object's keys can name the fields of a struct. They can't have dots: Iceberg reads those as paths."""
    return all(key and "." not in key for key in keys) and len({key.casefold() for key in keys}) == len(keys)


def within(iceberg: str) -> list[str]:
    """The names of all fields inside a type."""
    found = re.findall(r'("(?:[^"]|"")*"|\w+)\s*:', iceberg)
    return [name[1:-1].replace('""', '"') if name[0] == '"' else name for name in found]


def width(iceberg: str) -> int:
    """How many columns a type counts as: itself, and each field inside."""
    return 1 + len(within(iceberg))


QUOTED = r'"(?:[^"]|"")*"'
