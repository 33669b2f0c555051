"""Every name under which we store something in a table. Read this list before you change the ledger's format.

`docs/reference/tables-we-keep.md` is generated from `DURABLE`. The package `catalog` may import nothing of ours, so it
spells two of the names again; `tests/unit/test_ledger_keys.py` fails if the spellings differ.
"""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "lakehouse."

# In the summary of a snapshot. Those that end in a dot are followed by the ledger name of a stream.
MARK = f"{PREFIX}mark."
TOKEN = f"{PREFIX}token"
TRACE = f"{PREFIX}trace"
FENCE = f"{PREFIX}fence"
PROMOTED = f"{PREFIX}promoted"
SETTINGS = f"{PREFIX}settings."
HEADS = f"{PREFIX}heads."
SIZE = f"{PREFIX}size."

# In the properties of a table.
REGISTERED = f"{PREFIX}table."
STARTED = f"{PREFIX}started."
EPOCH = f"{PREFIX}epoch."
ENFORCES = f"{PREFIX}enforces."
TOPIC = f"{PREFIX}topic"
TYPE = f"{PREFIX}type"
EVENT_TIME_FIELD = f"{PREFIX}event-time"
EVENT_TIME_UNIT = f"{PREFIX}event-time-unit"
GUESSED = "guessed "  # before a unit that was inferred from the size of the numbers
PUBLISHED = "published."

# Names of refs and tables.
BRANCH = "ingest_"
PROBE = "lakehouse_probe_"

# In the doc string of a column.
DECLARED = "declared "
FIELD = "field "
RESCUED_DOC = "JSON of the fields that the columns do not hold"
PART_OF_TIME = " of the event time"


class DurablePlace(StrEnum):
    """Where a name is stored: somewhere in a table, or in its namespace."""

    SUMMARY = "summary of a snapshot"
    PROPERTY = "property of the table"
    REF = "branch of the table"
    TABLE = "table of the namespace"
    DOC = "doc string of a column"


@dataclass(frozen=True)
class DurableKey:
    """One stored name and its meaning."""

    place: DurablePlace
    name: str
    meaning: str
    rest: str = ""  # what follows the name
    only_in: str = "every table"

    @property
    def shown(self) -> str:
        return f"{self.name}{self.rest}"


_STREAM = "<ledger name>"
_DATA, _LOG = "tables with records", "the batch log"

DURABLE: tuple[DurableKey, ...] = (
    DurableKey(
        DurablePlace.SUMMARY,
        MARK,
        "The mark of a stream: which batch wrote the snapshot, and up to which offsets the table is done. Every later"
        " commit copies it, no matter who commits.",
        _STREAM,
    ),
    DurableKey(
        DurablePlace.SUMMARY,
        TOKEN,
        "The batch that wrote this snapshot, as ledger name, generation, epoch and batch with slashes between.",
    ),
    DurableKey(DurablePlace.SUMMARY, TRACE, "The trace id of the batch, if traces are on."),
    DurableKey(
        DurablePlace.SUMMARY,
        FENCE,
        "The ledger name and the epoch of a start that fenced earlier ones by a commit without rows; only with"
        ' `catalog.publish = "direct"`.',
    ),
    DurableKey(
        DurablePlace.SUMMARY,
        PROMOTED,
        "The rescued field whose values this snapshot moved into a column (`promote`).",
        only_in=_DATA,
    ),
    DurableKey(
        DurablePlace.SUMMARY,
        SETTINGS,
        "The settings that decide what a record becomes, as JSON; the next start compares them with its own.",
        _STREAM,
        _LOG,
    ),
    DurableKey(
        DurablePlace.SUMMARY,
        HEADS,
        "The epoch and number of the last batch in each table of the stream, in the encoding of a mark.",
        _STREAM,
        _LOG,
    ),
    DurableKey(
        DurablePlace.SUMMARY,
        SIZE,
        "How many records a batch of this start may take, and how many waited when it began, with a slash between.",
        _STREAM,
        _LOG,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        REGISTERED,
        "A table that the stream writes to, as JSON: its uuid, and the topic and type that it was named after. It is"
        " written before the first row of that table.",
        f"{_STREAM}.<table>",
        _LOG,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        STARTED,
        "One of the last eight starts, as JSON: epoch, time, host and process. Replicas recognise each other by it.",
        f"{_STREAM}.<slot>",
        _LOG,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        EPOCH,
        'The epoch of the last start that published without branches (`catalog.publish = "direct"`). No expiry removes'
        " it.",
        _STREAM,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        ENFORCES,
        "The day on which the catalog was last found to check what commits require. It is tried again after a month.",
        "<catalog.publish>",
        _LOG,
    ),
    DurableKey(DurablePlace.PROPERTY, TOPIC, "The topic that the table's name was made of.", only_in=_DATA),
    DurableKey(DurablePlace.PROPERTY, TYPE, "The type of record that the table's name was made of.", only_in=_DATA),
    DurableKey(
        DurablePlace.PROPERTY,
        EVENT_TIME_FIELD,
        "The field that holds the event time; empty: the time stamp of the record.",
        only_in=_DATA,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        EVENT_TIME_UNIT,
        f"The unit of a numeric event time; `{GUESSED.strip()}` stands before one that was inferred from its size.",
        only_in=_DATA,
    ),
    DurableKey(
        DurablePlace.PROPERTY,
        PUBLISHED,
        "What an earlier version published last from a branch. It goes with the branch.",
        "<branch>",
    ),
    DurableKey(
        DurablePlace.REF,
        BRANCH,
        "The branch of one start. Each of its commits requires that the branch is where it was left, and moves it with"
        " `main`. The next start drops it, so it is the fence.",
        f"{_STREAM}_<epoch>",
    ),
    DurableKey(
        DurablePlace.TABLE,
        PROBE,
        "A table by which `check` and a first start try the catalog. It is dropped at once; only a kill leaves it.",
        "<8 letters>",
        "the namespace",
    ),
    DurableKey(
        DurablePlace.DOC,
        DECLARED,
        "The declared type of a column whose Iceberg type is wider, such as `declared UInt8`.",
        "<type>",
        _DATA,
    ),
    DurableKey(
        DurablePlace.DOC,
        FIELD,
        "The field that the column is read from, if its name differs from the column's.",
        "<field>",
        _DATA,
    ),
    DurableKey(DurablePlace.DOC, RESCUED_DOC, "The doc string of the column `_rescued`.", only_in=_DATA),
    DurableKey(
        DurablePlace.DOC,
        PART_OF_TIME,
        "The doc string of a column that `hive_directories` adds, with `year`, `month`, `day` or `hour` before it.",
        only_in=_DATA,
    ),
)
