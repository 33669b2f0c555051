"""The words that all stages share: the columns of a frame, and the values that describe a batch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# The columns that travel down the street beside the decoded fields.
RECORD = "_record"  # struct: what the source gave, untouched
DATA = "_data"  # struct: the decoded fields
RAW = "_raw"  # a map of variants: all fields of the record, where the table's contract asks for them
MISFIT = "_misfit"  # struct: the fault of a value that does not fit its column, where that may be set aside
FAULT = "_fault"  # struct: why this row can't land, or null; `shaping.faulty` writes it
SOURCE = "_source"  # struct in every table: the coordinates of the record that a row came from
RESCUED = "_rescued"  # the values that have no place in the columns, by field: a map of variants; in a table, JSON
ROUTE = "_route"  # text: the table that the record goes to, as `routing` writes it; null: to none


class Reason(StrEnum):
    """Why a record is set aside. Closed: a new reason is a change of the dead letters' contract."""

    EMPTY = "empty_value"
    NOT_TEXT = "not_utf8"
    BROKEN = "broken_json"
    NOT_OBJECT = "not_an_object"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    MISSING = "missing_field"
    EVENT_TIME = "wrong_event_time"
    NO_COLUMN = "no_column"  # a field that may not become one: too many, or a name that meets another
    NO_TABLE = "no_table"  # no entry of the settings takes it, its type can't be found, or none may be made
    TOO_MANY_TABLES = "too_many_tables"
    SET_ASIDE = "set_aside"  # by a function of the user's
    NAME_TAKEN = "name_taken"  # the table that it should go to belongs to another topic or type


class Choice(StrEnum):
    """What a person may answer to a question of the ledger."""

    ANEW = "anew"
    LATEST = "latest"
    SKIP = "skip"
    ACCEPT = "accept"


TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]
"""Per partition the offset of the next record to read: everything below it is done."""


@dataclass(frozen=True)
class Range:
    """The offsets of one batch: `start` is in it, `end` is not."""

    start: Offsets
    end: Offsets

    def __len__(self) -> int:
        return sum(self.end[at] - self.start[at] for at in self.end)


@dataclass(frozen=True)
class Token:
    """Names one batch of one start of one pipeline; every landing of the batch carries it."""

    pipeline: str
    generation: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.generation}/{self.epoch}/{self.batch}"


@dataclass(frozen=True)
class Receipt:
    """What a landing left behind in one table; no snapshot where there was nothing for it."""

    table: str
    snapshot: int | None = None
    rows: int = 0
    files: int = 0
    schema: int | None = None
    size: int = 0  # bytes of the files


AGAIN = "~"  # between a topic's id and the generation in which its log was begun again


@dataclass(frozen=True)
class SourceIdentity:
    """A topic's name can be given again; its id and its cluster's can't."""

    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)

    def log(self, topic: str) -> str:
        """A short name of the very log, as every row carries it: where a topic of the same name is another one, in
        another cluster or after it was made anew, its offsets are others too."""
        known = "\n".join((self.cluster, self.topics.get(topic, ""), topic))
        return hashlib.sha256(known.encode()).hexdigest()[:12]

    def known_as(self, before: Mapping[str, str]) -> "SourceIdentity":
        """The same logs under the ids that they have in the ledger, and with those that are not read now."""
        again = {
            topic: known for topic, now in self.topics.items() if is_same_topic(known := before.get(topic, ""), now)
        }
        return SourceIdentity(self.cluster, {**before, **self.topics, **again})


def begun_again(topic_id: str, generation: int) -> str:
    """The id of a topic that is still the same, while its offsets from some point on mean other records."""
    return f"{topic_id.partition(AGAIN)[0]}{AGAIN}{generation}"


def is_same_topic(before: str, now: str) -> bool:
    return bool(before) and before.partition(AGAIN)[0] == now
