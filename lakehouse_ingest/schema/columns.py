"""The columns of a table: as the settings declare them, and as Iceberg stores them.

A value is first read in a wire type that loses nothing (`arrow_types.wire_type`). Then it is checked against the type
of its column.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.ledger.keys import DECLARED, FIELD
from lakehouse_ingest.records import FAULT, RECORD, RESCUED, SOURCE
from lakehouse_ingest.schema.column_types import (
    OTHER_NAMES,
    PLAIN,
    RANGES,
    is_decimal,
    is_nested,
    width,
    within,
)
from lakehouse_ingest.schema.names import told_apart

EVENT_TIME = "event_time"
# `_source` is in every table, `_rescued` if a contract needs it. Transforms get the others beside the columns.
TAKEN = (SOURCE, RESCUED, RECORD, FAULT)
SOURCE_TYPE = "struct<topic: string, partition: int, offset: long, index: int, log: string>"

ELEMENT, VALUE = "element", "value"  # what a path says for any element of a list, and any value of a map


@dataclass(frozen=True)
class ColumnPlan:
    """One column of a table, and the field of the records that fills it."""

    name: str
    field: str
    iceberg: str
    required: bool = False
    low: int | None = None
    high: int | None = None
    declared: str = ""

    @property
    def doc(self) -> str | None:
        """What the type can't say. `from_table` reads it again."""
        parts = [f"{DECLARED}{self.declared}"] if self.declared else []
        parts += [f"{FIELD}{self.field}"] if self.field != self.name else []
        return " ".join(parts) or None

    @property
    def takes(self) -> str:
        """Its type, in the words of the settings if they declare it."""
        return self.declared or self.iceberg


def declared(name: str, type_name: str, *, required: bool, by: str = "`columns` or `hints` give") -> ColumnPlan:
    """A column with a type that a person wrote, in Iceberg's words or Arrow's (`Int8`, `Utf8`).

    `by` begins the error message: it says who gave the type.
    """
    lower = type_name.strip().lower()
    if lower in RANGES:
        iceberg, low, high = RANGES[lower]
        return ColumnPlan(name, name, iceberg, required, low, high, lower)
    iceberg = OTHER_NAMES.get(lower, lower)
    # Lower case would change the names of fields inside a struct.
    iceberg = type_name.strip() if "<" in iceberg else re.sub(r"(?<=[(,\d])\s+|\s+(?=[,)])", "", iceberg)
    if iceberg not in PLAIN and not is_decimal(iceberg) and not is_nested(iceberg):
        known = [*PLAIN, "decimal(p,s)", "struct<…>", "list<…>", "map<…>", *RANGES]
        near = difflib.get_close_matches(lower, [*known, *OTHER_NAMES], n=1, cutoff=0.5)
        there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:12])} and others"
        raise SettingsRefused(f"{by} {name[:40]} the type {type_name[:40]!r}, which is not known; {there}")
    return ColumnPlan(name, name, iceberg, required)


def from_table(name: str, iceberg: str, doc: str | None, *, required: bool) -> ColumnPlan:
    """A column of an existing table. Its doc string holds the declared type and the field."""
    found = re.fullmatch(rf"(?:{DECLARED}(\w+))?(?:(?:^| ){FIELD}(.*))?", doc or "", re.DOTALL)
    kind, field = (found[1], found[2]) if found else (None, None)
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
    """A field that may not become a column. A record with a value in it is dead-lettered."""

    # The keys that lead to its object. None stands for any element of a list, or any value of a map.
    within: tuple[str | None, ...]
    name: str
    why: str


@dataclass(frozen=True)
class Aside:
    """What happens to a value that no column takes: it is rescued, or its record is dead-lettered."""

    refuses: bool  # true: the record is dead-lettered
    paths: Mapping[str, bool] = field(default_factory=dict)  # the same for single fields and all inside, by dotted path
    rescues: bool = True  # whether the table has the column for rescued values

    def refused(self, path: Sequence[str]) -> bool:
        """The rule of the field itself, or else of the nearest field around it."""
        known = (".".join(path[:length]) for length in range(len(path), 0, -1))
        return next((self.paths[each] for each in known if each in self.paths), self.refuses)

    def below(self, path: Sequence[str]) -> dict[str, bool]:
        """The rules for fields inside this one."""
        prefix = "".join(f"{each}." for each in path)
        return {each.removeprefix(prefix): said for each, said in self.paths.items() if each.startswith(prefix)}

    def strict(self, fields: Iterable[str]) -> "Aside":
        """The same rules, but values of these fields are never rescued."""
        return replace(self, paths={**self.paths, **dict.fromkeys(fields, True)})


def named(
    columns: Iterable[ColumnPlan], taken: Iterable[str], room: int, hinted: Collection[str] = (), *, refuse: bool
) -> tuple[tuple[ColumnPlan, ...], tuple[RefusedField, ...]]:
    """Give each column a name of its own, as long as there is room. A column that is too wide becomes JSON text."""
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
    """What the rows of one table should look like."""

    table: str
    columns: tuple[ColumnPlan, ...]
    event_time: str | None  # the field with the event time; None: the record's own timestamp
    unit: str  # s, ms, us, ns or iso
    unit_was_given: bool = True  # false: inferred from the size of the numbers, so an implausible time is a fault
    aside: Aside | None = None  # the contract, unless columns simply follow the data
    derived: tuple[str, ...] = ()  # text columns with these parts of the event time
    partitions: frozenset[str] = frozenset()  # names of partition fields; Iceberg allows no column of the same name
    truncated: tuple[tuple[str, int], ...] = ()  # columns that partitions truncate, with dots, and to which width

    @property
    def names(self) -> frozenset[str]:
        """The names of fields in columns and inside them, if they look like names and not like data."""
        found = (name for each in self.columns for name in (each.field, *within(each.iceberg)))
        return frozenset(filter(NAME.fullmatch, found))

    @property
    def strict(self) -> Aside | None:
        """The contract, in which fields that a row can't be without are never rescued."""
        needed = [each.field for each in self.columns if each.required or each.field == self.event_time]
        return self.aside and self.aside.strict(needed)


NAME = re.compile(r"[^\W\d][\w.-]{0,39}")
