"""The columns of a table in three spellings: as declared, as Iceberg keeps them, as Spark reads them.

A value is read in a `wire` type that loses nothing (a timestamp as text, a decimal with all its digits, a
small integer as a larger one), and then checked against what the column really takes.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pyspark.sql import types as T

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger_keys import DECLARED, FIELD
from lakehouse_ingest.names import quoted, told_apart
from lakehouse_ingest.records import FAULT, RECORD, RESCUED, ROUTE, SOURCE

EVENT_TIME = "event_time"
# The first is in every table, the second where a contract asks; the others go beside the columns to the landing.
TAKEN = (SOURCE, RESCUED, RECORD, FAULT, ROUTE)
SOURCE_TYPE = "struct<topic: string, partition: int, offset: long, index: int, log: string>"

# Iceberg knows neither 8 and 16 bits nor unsigned integers: these land wider, and keep their range.
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
DEEPEST = 21  # objects and lists, one within the other, that a column is made of; what lies deeper is JSON text
NUMBERS = (T.LongType, T.DecimalType, T.DoubleType)  # as inferred: each takes all values of those before it
ELEMENT, VALUE = "element", "value"  # the words by which a path leads through lists and maps
TO_SPARK = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "list": "array"}


@dataclass(frozen=True)
class ColumnPlan:
    """One column of a table, and the field of the record that fills it."""

    name: str
    field: str
    iceberg: str
    required: bool = False
    low: int | None = None
    high: int | None = None
    declared: str = ""

    @property
    def doc(self) -> str | None:
        """What the type alone can't say, kept with the column: see `from_table`."""
        told = [f"{DECLARED}{self.declared}"] if self.declared else []
        told += [f"{FIELD}{self.field}"] if self.field != self.name else []
        return " ".join(told) or None

    @property
    def takes(self) -> str:
        """Its type as a person knows it."""
        return self.declared or self.iceberg

    @property
    def spark(self) -> str:
        return to_spark(self.iceberg)

    @property
    def wire(self) -> str:
        if self.iceberg == "timestamptz":
            return "string"
        if found := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", self.iceberg):
            return f"decimal(38,{38 - int(found[1]) + int(found[2])})"
        return "bigint" if self.low is not None and self.iceberg == "int" else self.spark


def declared(name: str, type_name: str, *, required: bool, by: str = "`columns` or `hints` give") -> ColumnPlan:
    """A column `by` the settings, or whom else; the type in Iceberg's words or those of Arrow (`Int8`, `Utf8`)."""
    lower = type_name.strip().lower()
    if lower in RANGES:
        iceberg, low, high = RANGES[lower]
        return ColumnPlan(name, name, iceberg, required, low, high, lower)
    iceberg = OTHER_NAMES.get(lower, lower)
    # Field names inside a struct keep their case.
    iceberg = type_name.strip() if "<" in iceberg else re.sub(r"(?<=[(,\d])\s+|\s+(?=[,)])", "", iceberg)
    if iceberg not in PLAIN and not _is_decimal(iceberg) and not _is_nested(iceberg):
        known = [*PLAIN, "decimal(p,s)", "struct<…>", "list<…>", "map<…>", *RANGES]
        near = difflib.get_close_matches(lower, [*known, *OTHER_NAMES], n=1, cutoff=0.5)
        there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:12])} and others"
        raise SettingsRefused(f"{by} {name[:40]} the type {type_name[:40]!r}, which is not known; {there}")
    return ColumnPlan(name, name, iceberg, required)


def _is_decimal(text: str) -> bool:
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", text)
    return found is not None and 1 <= int(found[1]) <= MOST_DIGITS and int(found[2]) <= int(found[1])


def _is_nested(text: str) -> bool:
    """The words and brackets are right; what they make together is the catalog's to read."""
    types = re.sub(r'"(?:[^"]|"")*"\s*:|\w+\s*:', "", text)
    words = re.findall(r"decimal\s*\([^)]*\)|\w+", types)
    return (
        re.fullmatch(r"(struct|list|map)<.+>", types.strip()) is not None
        and types.count("<") == types.count(">")
        and all(word in WORDS or _is_decimal(re.sub(r"\s", "", word)) for word in words)
    )


def is_written(iceberg: str) -> bool:
    """Whether rows can have a value in a column of this type."""
    kind = re.sub(r"\s", "", iceberg)
    return kind in {*PLAIN, "timestamp"} or _is_decimal(kind) or _is_nested(iceberg)


def from_table(name: str, iceberg: str, doc: str | None, *, required: bool) -> ColumnPlan:
    """A column of a table that is there; its declared range and its field survive in the doc string."""
    told = re.fullmatch(rf"(?:{DECLARED}(\w+))?(?:(?:^| ){FIELD}(.*))?", doc or "", re.DOTALL)
    kind, field = (told[1], told[2]) if told else (None, None)
    column = declared(name, kind, required=required) if kind in RANGES else ColumnPlan(name, name, iceberg, required)
    return column if field is None else replace(column, field=field)


def to_spark(iceberg: str) -> str:
    """Iceberg's words as Spark's; a word before a colon is a field's name and stays."""
    return re.sub(r'"(?:[^"]|"")*"|(?P<name>\w+)(?=\s*:)|\b[a-z]+\b', _spelled, iceberg)


def _spelled(found: re.Match[str]) -> str:
    if found[0][0] == '"':
        return quoted(found[0][1:-1].replace('""', '"'))
    if found["name"]:
        # Spark's parser knows the letters of ASCII only, and takes 1d for a number.
        return found[0] if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", found[0]) else quoted(found[0])
    return TO_SPARK.get(found[0], found[0])


@cache
def spark_type(text: str) -> T.DataType:
    return T.DataType.fromDDL(text)  # asks the JVM


def to_iceberg(kind: T.DataType, deepest: int = DEEPEST) -> str | None:
    """What an inferred type becomes; None for what holds no value yet (only nulls, empty lists, empty objects)."""
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
    """The narrowest of the inferred types that takes the values of both; variant where their kinds are mixed."""
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
    """Whether an object's keys can be the names of a struct's fields: to Iceberg a dot leads into a struct."""
    return all(key and "." not in key for key in keys) and len({key.casefold() for key in keys}) == len(keys)


def within(iceberg: str) -> list[str]:
    """The names of the fields in it."""
    found = re.findall(r'("(?:[^"]|"")*"|\w+)\s*:', iceberg)
    return [name[1:-1].replace('""', '"') if name[0] == '"' else name for name in found]


def width(iceberg: str) -> int:
    """How many columns it counts for: itself, and each field within."""
    return 1 + len(within(iceberg))


def _named(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


# Why a field may not become a column.
TOO_MANY = "the table has as many columns as `max_columns` allows"
TOO_MANY_NEW = "the batch brings more new columns than `max_new` allows"
MEETS = "its name meets that of another column or of a partition"
HINTED = "it is beyond what the field's hint says"
NO_NAME = "a field of an object in a column needs a name, and one without dots"


@dataclass(frozen=True)
class Refused:
    """A field that may not become a column: a record that holds a value in it is set aside."""

    # The keys that lead to the object that it is in; None: any element of a list, or any value of a map.
    within: tuple[str | None, ...]
    name: str
    why: str


@dataclass(frozen=True)
class Aside:
    """What becomes of a value that has no place in the columns: it is set aside, or its record is a dead letter."""

    refuses: bool  # whether it is the latter
    paths: Mapping[str, bool] = field(default_factory=dict)  # for single fields and all within, by their dotted paths
    rescues: bool = True  # whether there is a column for what is set aside

    def refused(self, path: Sequence[str]) -> bool:
        """By the nearest that is said of it, or of what it is in."""
        known = (".".join(path[:length]) for length in range(len(path), 0, -1))
        return next((self.paths[each] for each in known if each in self.paths), self.refuses)

    def below(self, path: Sequence[str]) -> dict[str, bool]:
        """The fields in there of which something is said."""
        prefix = "".join(f"{each}." for each in path)
        return {each.removeprefix(prefix): said for each, said in self.paths.items() if each.startswith(prefix)}

    @property
    def may_refuse(self) -> bool:
        return self.refuses or any(self.paths.values())

    def strict(self, fields: Iterable[str]) -> "Aside":
        """The same, where nothing of these fields may be missing."""
        return replace(self, paths={**self.paths, **dict.fromkeys(fields, True)})


def named(
    columns: Iterable[ColumnPlan], taken: Iterable[str], room: int, hinted: Collection[str] = (), *, refuse: bool
) -> tuple[tuple[ColumnPlan, ...], tuple[Refused, ...]]:
    """Columns under names of their own, as many as there is room for; what is too wide keeps its JSON text."""
    used = {name.casefold() for name in (*TAKEN, *taken)}
    found: list[ColumnPlan] = []
    refused: list[Refused] = []
    for each in columns:
        fits = width(each.iceberg) <= room or each.field in hinted
        column = each if fits else replace(each, iceberg="string")
        name = told_apart(column.field, () if refuse else used)
        if width(column.iceberg) > room:
            refused.append(Refused((), column.field, TOO_MANY))
        elif name.casefold() in used:
            refused.append(Refused((), column.field, MEETS))
        else:
            found.append(replace(column, name=name))
            used.add(name.casefold())
            room -= width(column.iceberg)
    return tuple(found), tuple(refused)
