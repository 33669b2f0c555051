"""What a recount has found: values for people and machines, and one exit code for all of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakehouse_ingest.errors import fitted

PROVEN, WRONG, UNTOLD = 0, 5, 6
LISTED = 100  # findings of one kind that are listed; the others are counted


class Kind(StrEnum):
    """Closed: a new kind is a change of what machines read."""

    DUPLICATE = "duplicate"
    LOST = "lost"  # the source holds a record that is nowhere here, or the record counted one more than there is
    COUNT = "count"  # numbers of the batch record that contradict themselves or the tables
    OVERLAP = "overlap"  # ranges in the batch record
    ROLLED_BACK = "rolled_back"
    FILE_MISSING = "file_missing"
    FILE_TWICE = "file_twice"
    TABLE_GONE = "table_gone"  # dropped, or another one has its name
    UNKNOWN = "unknown"  # what nobody can tell, at least now


@dataclass(frozen=True)
class Finding:
    """`says` is a sentence for a person; of offsets `last` is in it."""

    kind: Kind
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
    """Bounded, however much is wrong."""

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self._count: Counter[Kind] = Counter()

    def add(self, kind: Kind, says: str, **of: object) -> None:
        self._count[kind] += 1
        if self.has_room(kind):
            self.listed.append(Finding(kind, fitted(says), **of))  # type: ignore[arg-type]

    def has_room(self, kind: Kind) -> bool:
        return self._count[kind] <= LISTED

    @property
    def unlisted(self) -> dict[str, int]:
        return {str(kind): count - LISTED for kind, count in self._count.items() if count > LISTED}


@dataclass(frozen=True)
class Verdict:
    """Of one stream, from its lowest start to where all landings were done when the recount began.

    offsets = rows in tables and dead letters - their duplicates + filtered + discarded + removed + holes
    + holes_recorded + lost + unknown
    """

    pipeline: str  # the stream's name in the ledger
    partitions: int
    offsets: int
    tables: Mapping[str, int]  # rows in each that has some
    dead: int
    filtered: int
    discarded: int
    removed: int  # taken out of the tables since, as a person has acknowledged
    back: int  # that were acknowledged as well, and are in a table again
    holes: int  # offsets that hold no record for a reader, as the source says
    holes_recorded: int  # likewise as the batch record counted them, where the source holds nothing any more
    lost: int
    unknown: int
    duplicates: int  # rows too many
    beyond: int  # rows of what is still under way: only duplicates are looked for there
    older: Mapping[str, int]  # rows of a topic's older logs, whose offsets meant other records: likewise
    findings: Sequence[Finding]
    unlisted: Mapping[str, int]  # findings more, by kind
    adopted: str = ""  # from whom it has taken over: what lies below is that writer's, and not looked at

    @property
    def code(self) -> int:
        kinds = {each.kind for each in self.findings}
        return WRONG if kinds - {Kind.UNKNOWN} else UNTOLD if kinds else PROVEN
