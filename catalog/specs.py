"""Tables as they are declared and as they are found: plain values without pyiceberg."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

_QUOTED = r'"(?:[^"]|"")*"'
_TERM = re.compile(rf"(?P<function>[A-Za-z]+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>{_QUOTED}|[^(),]+?)\s*\)")
_NAMED = re.compile(rf"(?P<term>(?:{_QUOTED}|[^\"])+?)\s+as\s+(?P<name>{_QUOTED}|\S+)", re.IGNORECASE)
_BARE = re.compile(r'[^\s(),"]+')
_SUFFIXES = {"identity": "", "truncate": "_trunc", "void": "_null"}
_PLAIN = ("year", "month", "day", "hour", "void")
_NUMBERED = ("bucket", "truncate")
_UNDERSTOOD = "understood are column, year(column), month(…), day(…), hour(…), bucket(16, column) and truncate(4, …)"
_HIDDEN = "***"
# Keys of properties whose values are secrets; callers that know more of them hand over a longer list.
HIDDEN_KEYS = r"(?i)token|secret|password|credential|authorization|access-key|account-key|proxy-uri|sas|^header\."


@dataclass(frozen=True)
class Connection:
    """Where a REST catalog is and how to get in; its repr shows neither the token nor the properties' values.

    Error messages hide the values of all properties whose keys match `hidden_keys`.
    """

    uri: str
    warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    hidden_keys: str = field(default=HIDDEN_KEYS, repr=False)  # a regular expression

    def __repr__(self) -> str:
        # A URI may hold a user and a password, and any property may be a credential.
        uri = re.sub(r"(?<=://)[^/@]+@", f"{_HIDDEN}@", self.uri)
        properties = dict.fromkeys(self.properties, _HIDDEN)
        return f"Connection(uri={uri!r}, warehouse={self.warehouse!r}, properties={properties!r})"


Default = bool | int | float | str


@dataclass(frozen=True)
class Column:
    """A column; `type` is Iceberg's text, such as `long` or `struct<lat: double, tags: list<string>>`.

    Writers put `default` where they have no value, and readers see it in rows from before the column was added. It
    needs a table of format 3, and a type whose values are numbers, booleans or text. None asks for no change.
    """

    name: str
    type: str
    required: bool = False
    doc: str | None = None
    default: Default | None = None


@dataclass(frozen=True)
class Partition:
    """A partition field; `transform` is Iceberg's text, such as `day` or `bucket[16]`."""

    column: str
    transform: str = "identity"
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `location`, `day(event_time)` or `bucket(16, id) as shard`; odd names are in double quotes."""
        named = _NAMED.fullmatch(text.strip())
        term, name = (named["term"], _out_of_quotes(named["name"])) if named else (text.strip(), None)
        column, transform = _parsed_term(term)
        return cls(_out_of_quotes(column), transform, name)

    @property
    def usual_name(self) -> str:
        """The name that Iceberg's own builder and Spark's CREATE TABLE give it."""
        function = self.transform.partition("[")[0]
        return self.column + _SUFFIXES.get(function, f"_{function}")

    @property
    def called(self) -> str:
        """The name that it has in a table."""
        return self.usual_name if self.name is None else self.name

    def __str__(self) -> str:
        named = "" if self.name is None else f" as {_in_quotes(self.name)}"
        if self.transform == "identity":
            return f"{_in_quotes(self.column)}{named}"
        function, _, number = self.transform.removesuffix("]").partition("[")
        return f"{function}({f'{number}, ' if number else ''}{_in_quotes(self.column)}){named}"


def _in_quotes(name: str) -> str:
    return name if _BARE.fullmatch(name) else '"{}"'.format(name.replace('"', '""'))


def _out_of_quotes(text: str) -> str:
    return text[1:-1].replace('""', '"') if re.fullmatch(_QUOTED, text) else text


def _parsed_term(text: str) -> tuple[str, str]:
    found = _TERM.fullmatch(text)
    if found is None:
        if not text or (set(text) & set("(),") and not re.fullmatch(_QUOTED, text)):
            raise ValueError(f"{text!r} is no partition field: {_UNDERSTOOD}")
        return text, "identity"
    function = found["function"].lower()
    # Spark writes days(ts) for what Iceberg calls day(ts).
    function = function.removesuffix("s") if function.removesuffix("s") in _PLAIN else function
    if function in _PLAIN and found["number"] is None:
        return found["column"], function
    if function in _NUMBERED and int(found["number"] or 0) > 0:
        return found["column"], f"{function}[{int(found['number'])}]"
    raise ValueError(f"{text!r} is no partition field: {_UNDERSTOOD}")


@dataclass(frozen=True)
class Sort:
    """A sort field; `column` may also be a term such as `day(event_time)`, if no column has that name."""

    column: str
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ts`, `ts asc` or `ts desc`."""
        column, _, direction = text.strip().rpartition(" ")
        if column and direction.lower() in {"asc", "desc"}:
            return cls(column.strip(), direction.lower() == "desc")
        if not text.strip():
            raise ValueError("an empty text is no sort field: understood are 'column', 'column asc', 'column desc'")
        return cls(text.strip())

    def __str__(self) -> str:
        return f"{self.column} desc" if self.descending else self.column


@dataclass(frozen=True)
class TableSpec:
    """A table as it should be; `name` is `namespace.table`, nested namespaces dotted."""

    name: str
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...] | None = None  # None: an existing table keeps its own, a new one gets none
    sort: tuple[Sort, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    identifier: tuple[str, ...] = ()  # dotted paths of the columns that tell rows apart: required, no floats
    location: str | None = None  # None: the catalog chooses
    doc: str | None = None

    @property
    def all_properties(self) -> Mapping[str, str]:
        """Give the properties with the doc among them, as `comment`, where Spark and others keep it."""
        return {**({"comment": self.doc} if self.doc else {}), **self.properties}


@dataclass(frozen=True)
class Snapshot:
    """One commit of a table."""

    id: int
    parent: int | None
    sequence: int
    timestamp_ms: int
    summary: Mapping[str, str]


@dataclass(frozen=True)
class TableState:
    """A table as it was at one moment."""

    name: str
    uuid: str
    location: str
    format_version: int
    schema_id: int
    columns: tuple[Column, ...]
    partitions: tuple[Partition, ...]
    sort: tuple[Sort, ...]
    properties: Mapping[str, str]
    refs: Mapping[str, int]
    snapshots: Mapping[int, Snapshot]
    metadata_location: str
    identifier: tuple[str, ...] = ()
    former: tuple[Partition, ...] = ()  # partition fields of earlier layouts
    spec_id: int = 0  # the number of the layout that `partitions` are

    @property
    def partition_names(self) -> frozenset[str]:
        """Names that no new column can have: those of partition fields, unless named as their own column."""
        fields = (*self.partitions, *self.former)
        return frozenset(each.called for each in fields if each.called != each.column)

    @property
    def main(self) -> int | None:
        """The head of main; None before the first commit."""
        return self.refs.get("main")

    def ancestors(self, ref: str = "main") -> Iterator[Snapshot]:
        """Walk back from the ref's head, newest first, to the first commit or to where history was expired."""
        return self.lineage(self.refs.get(ref))

    def lineage(self, snapshot: int | None) -> Iterator[Snapshot]:
        """Walk back from a snapshot, itself first."""
        while snapshot is not None and (found := self.snapshots.get(snapshot)):
            yield found
            snapshot = found.parent

    def history_complete(self, ref: str = "main") -> bool:
        """Whether the walk reaches the first commit; False if a parent has been expired."""
        walked = list(self.ancestors(ref))
        return walked[-1].parent is None if walked else ref not in self.refs

    def contains(self, snapshot: int, ref: str = "main") -> bool | None:
        """Whether the ref's history holds the snapshot; None if too much was expired to tell."""
        sought = self.snapshots.get(snapshot)
        for ancestor in self.ancestors(ref):
            if ancestor.id == snapshot:
                return True
            # Sequence numbers only grow along a history, so nothing older can descend from the snapshot.
            if sought and ancestor.sequence < sought.sequence:
                return False
        return False if self.history_complete(ref) else None
