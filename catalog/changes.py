"""What a plan is made of: changes to a table, and what becomes of each field of the data."""

from dataclasses import dataclass
from enum import StrEnum

from catalog.partitions import shown
from catalog.specs import Column, Default, Partition


class Fate(StrEnum):
    """What becomes of a field of the data."""

    FITS = "fits"
    ADD = "add"
    WIDEN = "widen"
    SET_ASIDE = "set aside"  # its values can't go into a column of it; the rest of the row can
    REFUSE = "refuse"  # nor can the row


@dataclass(frozen=True)
class Verdict:
    """Of one field of the data; it holds for what is in the field too, where that is set aside or refused."""

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
    """A column where there is none; `parent` is the path of the struct, "" the table."""

    parent: str
    column: Column

    @property
    def path(self) -> str:
        """Where it will be."""
        return f"{self.parent}.{self.column.name}" if self.parent else self.column.name

    def __str__(self) -> str:
        default = "" if self.column.default is None else f" default {self.column.default!r}"
        return f"+ {self.path} {self.column.type}{default}"


@dataclass(frozen=True)
class Widen:
    """A type that takes more."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"~ {self.path} {self.old} -> {self.new}"


@dataclass(frozen=True)
class Relax:
    """No value needed any more."""

    path: str

    def __str__(self) -> str:
        return f"~ {self.path} required -> optional"


@dataclass(frozen=True)
class Describe:
    """Another doc string."""

    path: str
    doc: str

    def __str__(self) -> str:
        return f"~ {self.path} doc {self.doc!r}"


@dataclass(frozen=True)
class Fill:
    """Another value for writers who have none; rows that are there stay as they are."""

    path: str
    value: Default

    def __str__(self) -> str:
        return f"~ {self.path} default {self.value!r}"


@dataclass(frozen=True)
class Repartition:
    """New files are laid out in another way; those that are there stay."""

    old: tuple[Partition, ...]
    new: tuple[Partition, ...]

    def __str__(self) -> str:
        return f"~ partitions {shown(self.old)} -> {shown(self.new)}"


Evolution = Add | Widen | Relax | Describe | Fill
Change = Evolution | Repartition
