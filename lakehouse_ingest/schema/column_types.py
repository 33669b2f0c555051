"""Types in three spellings: Iceberg's, Spark's, and Arrow's as people write them in settings."""

import re
from collections.abc import Collection
from functools import cache

from pyspark.sql import types as T

from lakehouse_ingest.environment.spark_names import quoted

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


NUMBERS = (T.LongType, T.DecimalType, T.DoubleType)  # inferred types of numbers; each takes all values of the former


TO_SPARK = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "list": "array"}


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


def to_spark(iceberg: str) -> str:
    """The type in Spark's words. A word before a colon is the name of a field, and stays."""
    return re.sub(r'"(?:[^"]|"")*"|(?P<name>\w+)(?=\s*:)|\b[a-z]+\b', _spelled, iceberg)


def _spelled(found: re.Match[str]) -> str:
    if found[0][0] == '"':
        return quoted(found[0][1:-1].replace('""', '"'))
    if found["name"]:
        # Spark's parser knows only ASCII letters, and takes 1d for a number.
        return found[0] if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", found[0]) else quoted(found[0])
    return TO_SPARK.get(found[0], found[0])


@cache
def spark_type(text: str) -> T.DataType:
    return T.DataType.fromDDL(text)  # cached, because each call asks the JVM


def to_iceberg(kind: T.DataType, deepest: int = DEEPEST) -> str | None:
    """The type of the column for an inferred type; None if there was no value yet, only nulls and empty containers."""
    match kind:
        case T.StructType() | T.ArrayType() if deepest <= 0 and to_iceberg(kind):
            return "string"
        case T.StructType() if not are_names([field.name for field in kind.fields]):
            return "string"
        case T.StructType():
            inner = [(field.name, text) for field in kind.fields if (text := to_iceberg(field.dataType, deepest - 1))]
            return "struct<" + ", ".join(f"{_named(name)}: {text}" for name, text in inner) + ">" if inner else None
        case T.ArrayType():
            element = to_iceberg(kind.elementType, deepest - 1)
            return f"list<{element}>" if element else None
        case T.DecimalType():
            return "double" if kind.scale else "decimal(38,0)"
    known = {"bigint": "long", "double": "double", "boolean": "boolean", "void": None}
    return known.get(kind.simpleString(), "string")


def in_common(one: T.DataType, other: T.DataType) -> T.DataType:
    """The narrowest inferred type that takes the values of both; variant if their kinds differ."""
    match one, other:
        case (T.NullType(), kind) | (kind, T.NullType()):
            return kind
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(in_common(one.elementType, other.elementType))
        case T.StructType(), T.StructType():
            found = {field.name: field.dataType for field in one.fields}
            for field in other.fields:
                found[field.name] = in_common(found.get(field.name, T.NullType()), field.dataType)
            return T.StructType([T.StructField(*each) for each in found.items()])
    if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
        return max(one, other, key=lambda kind: NUMBERS.index(type(kind)))
    return one if one == other else T.VariantType()


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


def _named(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


QUOTED = r'"(?:[^"]|"")*"'
