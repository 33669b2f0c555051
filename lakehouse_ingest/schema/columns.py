"""The columns of a table in three spellings: as declared, as Iceberg keeps them, as Spark reads them.

A value is read in a `wire` type that loses nothing (a timestamp as text, a decimal with all its digits, a
small integer as a larger one), and then checked against what the column really takes.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger.keys import DECLARED, FIELD
from lakehouse_ingest.records import FAULT, RECORD, RESCUED, ROUTE, SOURCE
from lakehouse_ingest.schema.column_types import (
    OTHER_NAMES,
    PLAIN,
    RANGES,
    is_decimal,
    is_nested,
    to_spark,
    width,
    within,
)
from lakehouse_ingest.schema.names import told_apart

EVENT_TIME = "event_time"
# The first is in every table, the second where a contract asks; the others go beside the columns to the landing.
TAKEN = (SOURCE, RESCUED, RECORD, FAULT, ROUTE)
SOURCE_TYPE = "struct<topic: string, partition: int, offset: long, index: int, log: string>"

ELEMENT, VALUE = "element", "value"  # the words by which a path leads through lists and maps


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
    if iceberg not in PLAIN and not is_decimal(iceberg) and not is_nested(iceberg):
        known = [*PLAIN, "decimal(p,s)", "struct<…>", "list<…>", "map<…>", *RANGES]
        near = difflib.get_close_matches(lower, [*known, *OTHER_NAMES], n=1, cutoff=0.5)
        there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:12])} and others"
        raise SettingsRefused(f"{by} {name[:40]} the type {type_name[:40]!r}, which is not known; {there}")
    return ColumnPlan(name, name, iceberg, required)


def from_table(name: str, iceberg: str, doc: str | None, *, required: bool) -> ColumnPlan:
    """A column of a table that is there; its declared range and its field survive in the doc string."""
    told = re.fullmatch(rf"(?:{DECLARED}(\w+))?(?:(?:^| ){FIELD}(.*))?", doc or "", re.DOTALL)
    kind, field = (told[1], told[2]) if told else (None, None)
    column = declared(name, kind, required=required) if kind in RANGES else ColumnPlan(name, name, iceberg, required)
    return column if field is None else replace(column, field=field)


# Why a field may not become a column.
TOO_MANY = "the table has as many columns as `max_columns` allows"
TOO_MANY_NEW = "the batch brings more new columns than `max_new` allows"
MEETS = "its name meets that of another column or of a partition"
HINTED = "it is beyond what the field's hint says"
NO_NAME = "a field of an object in a column needs a name, and one without dots"


@dataclass(frozen=True)
class RefusedField:
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
) -> tuple[tuple[ColumnPlan, ...], tuple[RefusedField, ...]]:
    """Columns under names of their own, as many as there is room for; what is too wide keeps its JSON text."""
    used = {name.casefold() for name in (*TAKEN, *taken)}
    found: list[ColumnPlan] = []
    refused: list[RefusedField] = []
    for each in columns:
        fits = width(each.iceberg) <= room or each.field in hinted
        column = each if fits else replace(each, iceberg="string")
        name = told_apart(column.field, () if refuse else used)
        if width(column.iceberg) > room:
            refused.append(RefusedField((), column.field, TOO_MANY))
        elif name.casefold() in used:
            refused.append(RefusedField((), column.field, MEETS))
        else:
            found.append(replace(column, name=name))
            used.add(name.casefold())
            room -= width(column.iceberg)
    return tuple(found), tuple(refused)


@dataclass(frozen=True)
class TablePlan:
    """What the rows of one table look like."""

    table: str
    columns: tuple[ColumnPlan, ...]
    event_time: str | None  # the field that holds it; None: the record's own timestamp
    unit: str  # s, ms, us, ns or iso
    unit_was_told: bool = True  # false: found from the magnitude, and then a time outside those years is wrong
    aside: Aside | None = None  # the contract, where it asks for more than to follow the data
    derived: tuple[str, ...] = ()  # columns of text that hold these parts of the event time
    partitions: frozenset[str] = frozenset()  # names of partition fields, which Iceberg gives to no column

    @property
    def names(self) -> frozenset[str]:
        """Those of the fields that have a place, the columns' and within them, where they look like names."""
        found = (name for each in self.columns for name in (each.field, *within(each.iceberg)))
        return frozenset(filter(NAME.fullmatch, found))

    @property
    def strict(self) -> Aside | None:
        """The contract; what a row can't be without is never set aside."""
        needed = [each.field for each in self.columns if each.required or each.field == self.event_time]
        return self.aside and self.aside.strict(needed)


NAME = re.compile(r"[^\W\d][\w.-]{0,39}")
