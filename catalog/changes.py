"""The parts of a plan: changes to a table, and what becomes of each field of the data."""

from dataclasses import dataclass
from enum import StrEnum

from catalog.partitions import shown
from catalog.specs import Column, Default, Partition


class Fate(StrEnum):
    """What becomes of a field of the data."""

    FITS = "fits"
    ADD = "add"
    WIDEN = "widen"
    SET_ASIDE = "set aside"  # its values fit no column of the table; the rest of the row does
    REFUSE = "refuse"  # the whole row can't be written


@dataclass(frozen=True)
class FieldVerdict:
    """What becomes of one field of the data; if it is set aside or refused, so is everything inside it."""

    path: str
    fate: Fate
    wanted: str
    current: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        there = f", there is {self.current}" if self.current else ""
        return f"{self.path} {self.wanted}{there}: {self.fate}{f', {self.reason}' if self.reason else ''}"


@dataclass(frozen=True)
class Add:
    """Adds a column; `parent` is the path of the struct that gets it, "" the table."""

    parent: str
    column: Column

    @property
    def path(self) -> str:
        """The path that the column will have."""
        return f"{self.parent}.{self.column.name}" if self.parent else self.column.name

    def __str__(self) -> str:
        default = "" if self.column.default is None else f" default {self.column.default!r}"
        return f"+ {self.path} {self.column.type}{default}"


@dataclass(frozen=True)
class Widen:
    """Gives a column a wider type."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"~ {self.path} {self.old} -> {self.new}"


@dataclass(frozen=True)
class Relax:
    """Makes a column optional."""

    path: str

    def __str__(self) -> str:
        return f"~ {self.path} required -> optional"


@dataclass(frozen=True)
class Describe:
    """Gives a column another doc string."""

    path: str
    doc: str

    def __str__(self) -> str:
        return f"~ {self.path} doc {self.doc!r}"


@dataclass(frozen=True)
class Fill:
    """Gives a column another default for rows to come; existing rows stay as they are."""

    path: str
    value: Default

    def __str__(self) -> str:
        return f"~ {self.path} default {self.value!r}"


@dataclass(frozen=True)
class Repartition:
    """Partitions new files in another way; existing files stay as they are."""

    old: tuple[Partition, ...]
    new: tuple[Partition, ...]

    def __str__(self) -> str:
        return f"~ partitions {shown(self.old)} -> {shown(self.new)}"


Evolution = Add | Widen | Relax | Describe | Fill
Change = Evolution | Repartition
