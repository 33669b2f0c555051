"""What verifying has found: values for people and machines, and one exit code for all of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakehouse_ingest.errors import fitted

PROVEN, WRONG, UNTOLD = 0, 5, 6
LISTED = 100  # findings of one kind that are listed; the others are counted


class FindingKind(StrEnum):
    """A closed list: machines read these words, so a new kind is a change of the interface."""

    DUPLICATE = "duplicate"
    LOST = "lost"  # the source holds a record that is in no table, or the batch log counted more than there is
    COUNT = "count"  # numbers of the batch log that contradict themselves or the tables
    OVERLAP = "overlap"  # ranges in the batch log
    ROLLED_BACK = "rolled_back"
    FILE_MISSING = "file_missing"
    FILE_TWICE = "file_twice"
    TABLE_GONE = "table_gone"  # dropped, or another table has its name
    UNKNOWN = "unknown"  # what can't be found out, at least now


@dataclass(frozen=True)
class Finding:
    """`says` is a sentence for a person; `last` is the last offset, not the one behind it."""

    kind: FindingKind
    says: str
    tables: tuple[str, ...] = ()
    topic: str | None = None
    partition: int | None = None
    first: int | None = None
    last: int | None = None
    count: int = 0
    snapshots: tuple[int, ...] = ()
    files: tuple[str, ...] = ()


class Findings:
    """A bounded list, however much is wrong."""

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self._count: Counter[FindingKind] = Counter()

    def add(self, kind: FindingKind, says: str, **of: object) -> None:
        self._count[kind] += 1
        if self.has_room(kind):
            self.listed.append(Finding(kind, fitted(says), **of))  # type: ignore[arg-type]

    def has_room(self, kind: FindingKind) -> bool:
        return self._count[kind] <= LISTED

    @property
    def unlisted(self) -> dict[str, int]:
        return {str(kind): count - LISTED for kind, count in self._count.items() if count > LISTED}


@dataclass(frozen=True)
class StreamVerdict:
    """One stream, from its first offset to the one below which every batch was complete when verifying began.

    offsets = rows in tables and dead-letter records - their duplicates + filtered + discarded + removed + holes
    + holes_recorded + lost + unknown
    """

    pipeline: str  # the stream's name in the ledger
    partitions: int
    offsets: int
    tables: Mapping[str, int]  # rows, by table that has some
    dead: int
    filtered: int
    discarded: int
    removed: int  # rows that were deleted later, as a person has acknowledged
    back: int  # rows that were acknowledged as removed, and are in a table again
    holes: int  # offset gaps, as the source says
    holes_recorded: int  # offset gaps, as the batch log counted them, where the source holds nothing any more
    lost: int
    unknown: int
    duplicates: int  # rows too many
    beyond: int  # rows of a batch that is not complete yet; only duplicates are looked for among them
    older: Mapping[str, int]  # rows of a topic's earlier logs, whose offsets meant other records; likewise
    findings: Sequence[Finding]
    unlisted: Mapping[str, int]  # findings that are not listed, by kind
    adopted: str = ""  # the writer that the stream took over from; rows of that writer are not looked at

    @property
    def code(self) -> int:
        kinds = {each.kind for each in self.findings}
        return WRONG if kinds - {FindingKind.UNKNOWN} else UNTOLD if kinds else PROVEN
