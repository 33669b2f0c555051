"""What values of fields were seen. Columns are planned from this alone; no record is read again.

Each reader of a batch collects its own and sends it back. Merged in any order they say what all readers together saw.
A sender may invent keys without end, so both the fields of records and what lies within a field are limited. Which
fields stay doesn't depend on the order either.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from lakehouse_ingest.schema.column_types import DEEPEST
from lakehouse_ingest.schema.times import FIRST_S, LAST_S, PER_SECOND, iso_time
from lakehouse_ingest.schema.times import NUMBER as WRITTEN_NUMBER
from lakehouse_ingest.schema.values import Real, Tree, Value

NUMBER, TEXT, LIST, OBJECT = "number", "string", "list", "object"
SIZES = ("int", "long", "decimal(38,0)", "double")  # each takes the integers of the former
INT, LONG, EXACT = 2**31, 2**63, 10**38
TOO_LARGE_FOR_FLOAT = 2.0**128 - 2.0**103  # from here on, the nearest float is infinite
TOO_LARGE_FOR_DOUBLE = 2**1024 - 2**970
MOST_DIGITS = 38
USUAL_SHARE = 0.9  # if so many values agree, the others are faults
ISO, DATE, EXACT_TIME = "iso", "date", "timestamptz"
NUMBER_STARTS = frozenset("0123456789+-.")
LONGEST_TIME = 64  # characters; longer texts are neither times nor numbers
MOST_FIELDS = 10_000  # of records; `max_columns` allows no more
MOST_WITHIN = 100_000  # fields, elements and values within all fields of the records together


@dataclass(slots=True)
class SeenValues:
    """The values of one field, or of all elements of a list. Nulls count as nothing."""

    kinds: dict[str, int] = field(default_factory=dict)  # how many values had which kind
    sizes: frozenset[str] = frozenset()  # the types that its numbers need
    beyond_float: bool = False  # whether a number needs a double
    digits: frozenset[tuple[int, int]] = frozenset()  # of its numbers: before and behind the point
    epochs: dict[str, int] = field(default_factory=dict)  # how many of its numbers are plausible times, by unit
    times: dict[str, int] = field(default_factory=dict)  # the same for texts, and how many are ISO, dates, exact times
    elements: "SeenValues | None" = None
    fields: "dict[str, SeenValues]" = field(default_factory=dict)
    size: int = 1  # this and all that lies within
    cut: bool = False  # true: what lies within is not known, because it is too much or too deep

    @property
    def values(self) -> int:
        """How many values there were."""
        return sum(self.kinds.values())

    @property
    def kind(self) -> str | None:
        """The kind of all its values; None if there is no value, or if kinds are mixed."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else None

    @property
    def usual_kind(self) -> str | None:
        """The kind of nearly all its values. One broken record must not turn a column of numbers into text."""
        most = max(self.kinds, key=self.kinds.__getitem__, default=None)
        return most if most and self.kinds[most] >= USUAL_SHARE * self.values else None

    @property
    def time_type(self) -> str | None:
        """`date` or `timestamptz`, if all its values are such texts."""
        texts = self.values if self.kind == TEXT else 0
        return next((each for each in (DATE, EXACT_TIME) if texts and self.times.get(each) == texts), None)

    def as_map(self) -> "SeenValues":
        """The values of its objects, whatever their keys."""
        found = SeenValues(cut=self.cut)
        for each in self.fields.values():
            found.merge(each)
        return found

    def add(self, value: Value, levels: int = DEEPEST) -> None:  # noqa: C901 - one branch a type
        """Count a value. `levels`: how many lists and objects are looked into, one in the other."""
        match value:
            case None:
                return
            case bool():
                self._count("boolean")
            case int():
                self._integer(value)
            case float() | Decimal():
                self._real(value)
            case str():
                self._text(value)
            case list():
                self._list(value, levels)
            case dict():
                self._object(value, levels)
            case dt.datetime():
                self._count("timestamptz")
            case dt.date():
                self._count("date")
            case bytes():
                self._count("binary")

    def merge(self, other: "SeenValues") -> None:
        """Add what the other has seen. The other doesn't change."""
        for mine, more in ((self.kinds, other.kinds), (self.epochs, other.epochs), (self.times, other.times)):
            for key, count in more.items():
                mine[key] = mine.get(key, 0) + count
        self.sizes |= other.sizes
        self.beyond_float |= other.beyond_float
        self.digits |= other.digits
        if self.cut or other.cut:
            self.cut_off()
            return
        if other.elements:
            self._element().merge(other.elements)
        for name, seen in other.fields.items():
            self.fields.setdefault(name, SeenValues()).merge(seen)
        self.size = 1 + (self.elements.size if self.elements else 0) + sum(each.size for each in self.fields.values())

    def cut_off(self) -> None:
        """Forget what lies within. Lists and objects of the field are then known as JSON text only."""
        self.cut, self.size, self.elements, self.fields = True, 1, None, {}

    def _count(self, kind: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def _integer(self, value: int) -> None:
        self._count(NUMBER)
        size = abs(value)
        kind = "int" if -INT <= value < INT else "long" if -LONG <= value < LONG else SIZES[2 + (size >= EXACT)]
        if kind not in self.sizes:
            self.sizes |= {kind}
        if size >= EXACT:
            self.beyond_float |= TOO_LARGE_FOR_FLOAT <= size < TOO_LARGE_FOR_DOUBLE
        elif (digits := (len(str(size)) if size else 0, 0)) not in self.digits:
            self.digits |= {digits}
        if value >= FIRST_S:
            _count_epoch(value, self.epochs)

    def _real(self, value: float | Decimal) -> None:
        self._count(NUMBER)
        number = float(value)
        if "double" not in self.sizes:
            self.sizes |= {"double"}
        self.beyond_float |= TOO_LARGE_FOR_FLOAT <= abs(number) < float("inf")
        digits = _digits(value.text if isinstance(value, Real) else str(value))
        if digits and digits not in self.digits:
            self.digits |= {digits}
        if number >= FIRST_S:
            _count_epoch(number, self.epochs)

    def _text(self, value: str) -> None:
        self._count(TEXT)
        if value[:1] not in NUMBER_STARTS or len(value) > LONGEST_TIME:
            return
        if found := iso_time(value):
            for kind, fits in ((ISO, True), (DATE, found.is_date), (EXACT_TIME, found.is_exact)):
                if fits:
                    self.times[kind] = self.times.get(kind, 0) + 1
        elif WRITTEN_NUMBER.fullmatch(value):
            _count_epoch(float(value), self.times)

    def _list(self, value: list[Value], levels: int) -> None:
        self._count(LIST)
        if levels <= 0:
            self.cut_off()
        if self.cut or not value:
            return
        before, elements = self.elements.size if self.elements else 0, self._element()
        for each in value:
            elements.add(each, levels - 1)
        self.size += elements.size - before

    def _object(self, value: dict[str, Value], levels: int) -> None:
        self._count(OBJECT)
        if levels <= 0:
            self.cut_off()
        if self.cut:
            return
        for name, each in value.items():
            if (inner := self.fields.get(name)) is None:
                inner, before = self.fields.setdefault(name, SeenValues()), 0
            else:
                before = inner.size
            inner.add(each, levels - 1)
            self.size += inner.size - before

    def _element(self) -> "SeenValues":
        if self.elements is None:
            self.elements = SeenValues()
        return self.elements


NOTHING = SeenValues()


class SeenFields:
    """The fields of the records of one table, by name."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        """`first`: names of fields that stay, however many others there are."""
        self.first = frozenset(first)
        self.records = 0
        self._fields: dict[str, SeenValues] = {}
        self.last: str | None = None  # of too many fields, the last one in the order of names that stays
        self._due = 1024  # the number of fields at which those that are too many are looked for

    @property
    def fields(self) -> Mapping[str, SeenValues]:
        self._limit()
        return self._fields

    def lacking(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the fields that some record had no value for."""
        return frozenset(name for name in names if self.fields.get(name, NOTHING).values < self.records)

    def add(self, record: Tree) -> None:
        self.records += 1
        for name, value in record.items():
            seen = self._fields.get(name)
            if seen is None:
                if not self._stays(name):
                    continue
                seen = self._fields[name] = SeenValues()
            seen.add(value)
            if seen.size > 1 and seen.size > self._room:
                seen.cut_off()
        if len(self._fields) >= self._due:
            self._limit()

    def merge(self, other: "SeenFields") -> None:
        self.first |= other.first
        self.records += other.records
        fields = other.fields
        if other.last is not None and (self.last is None or other.last < self.last):
            self.last = other.last
        for name, seen in fields.items():
            self._fields.setdefault(name, SeenValues()).merge(seen)
        self._limit()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeenFields) and (
            (self.fields, self.last, self.records) == (other.fields, other.last, other.records)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def _room(self) -> int:
        """What may lie within each field. The more fields there are, the less."""
        return MOST_WITHIN // min(len(self._fields), MOST_FIELDS)

    def _stays(self, name: str) -> bool:
        return self.last is None or name <= self.last or name in self.first

    def _limit(self) -> None:
        """Keep only so many fields. Which ones depends on their names alone, so all readers agree."""
        others = sorted(self._fields.keys() - self.first)
        if len(others) > MOST_FIELDS:
            self.last = others[MOST_FIELDS - 1]
        for name in others:
            if not self._stays(name):
                del self._fields[name]
        for seen in self._fields.values():
            if seen.size > self._room:
                seen.cut_off()
        self._due = 2 * max(len(self._fields), 512)


def _count_epoch(number: float | Decimal, counts: dict[str, int]) -> None:
    for unit, per_second in PER_SECOND.items():
        if FIRST_S * per_second <= number < LAST_S * per_second:
            counts[unit] = counts.get(unit, 0) + 1


def _digits(text: str) -> tuple[int, int] | None:
    """How many digits a number has before and behind its point. None if they are too many for a decimal."""
    whole, _, fraction = text.lstrip("-").partition(".")
    if (whole + fraction).isdecimal():
        found = len(whole.lstrip("0")), len(fraction.rstrip("0"))
    else:
        _, digits, exponent = Decimal(text).as_tuple()
        if not isinstance(exponent, int):
            return None  # not a number, or infinite
        written = "".join(map(str, digits)).strip("0")
        zeros = len("".join(map(str, digits)).rstrip("0")) - len(digits)
        point = exponent - zeros
        found = (max(0, len(written) + point), max(0, -point)) if written else (0, 0)
    return found if sum(found) <= MOST_DIGITS else None
