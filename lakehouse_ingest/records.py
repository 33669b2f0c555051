"""What all stages share: names of columns, reasons of faults, and the values that describe a batch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Columns beside those of the fields. The first two are for transforms, the others are in tables.
RECORD = "_record"  # struct: the record as the source gave it
FAULT = "_fault"  # text: why a transform rejects the record, or null
SOURCE = "_source"  # struct in every table: the coordinates of the row's record
RESCUED = "_rescued"  # values that no column takes, as JSON; in tables whose contract needs it


class Reason(StrEnum):
    """Why a record is dead-lettered. The list is closed: a new reason changes the contract of the dead-letter table."""

    EMPTY = "empty_value"
    NOT_TEXT = "not_utf8"
    BROKEN = "broken_json"
    NOT_OBJECT = "not_an_object"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    MISSING = "missing_field"
    EVENT_TIME = "wrong_event_time"
    NO_COLUMN = "no_column"  # a field may not become a column: there are too many, or its name is taken
    NO_TABLE = "no_table"  # no entry of the settings takes it, its type can't be found, or no table may be created
    TOO_MANY_TABLES = "too_many_tables"
    SET_ASIDE = "set_aside"  # a transform of the user rejected it
    NAME_TAKEN = "name_taken"  # its table belongs to another topic or type


class Choice(StrEnum):
    """How a person may decide a blocker."""

    ANEW = "anew"
    LATEST = "latest"
    SKIP = "skip"
    ACCEPT = "accept"


TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, int]
"""The offset of the next record to read, for each partition. Everything below it is done."""


@dataclass(frozen=True)
class Range:
    """The offsets of one batch, from `start` up to but not including `end`."""

    start: Offsets
    end: Offsets

    def __len__(self) -> int:
        return sum(self.end[at] - self.start[at] for at in self.end)


@dataclass(frozen=True)
class Token:
    """Names one batch of one start of one pipeline. Every commit of the batch carries it."""

    pipeline: str
    generation: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.generation}/{self.epoch}/{self.batch}"


@dataclass(frozen=True)
class Receipt:
    """What a batch committed to one table. There is no snapshot if the batch had no rows for it."""

    table: str
    snapshot: int | None = None
    rows: int = 0
    files: int = 0
    schema: int | None = None
    size: int = 0  # bytes of the files


AGAIN = "~"  # stands between a topic's id and the generation in which a person began its log again


@dataclass(frozen=True)
class SourceIdentity:
    """The ids of a cluster and its topics. A topic's name can be used again, its id can't."""

    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)

    def log(self, topic: str) -> str:
        """A short name of a topic's log, which every row carries.

        A recreated topic, or one of the same name in another cluster, has another log: its offsets mean other records.
        """
        known = "\n".join((self.cluster, self.topics.get(topic, ""), topic))
        return hashlib.sha256(known.encode()).hexdigest()[:12]

    def known_as(self, before: Mapping[str, str]) -> "SourceIdentity":
        """The same logs under their ids in the ledger, together with logs that are not read now."""
        again = {
            topic: known for topic, now in self.topics.items() if is_same_topic(known := before.get(topic, ""), now)
        }
        return SourceIdentity(self.cluster, {**before, **self.topics, **again})


def begun_again(topic_id: str, generation: int) -> str:
    """The id of a topic that was not recreated, but whose offsets mean other records from some point on."""
    return f"{topic_id.partition(AGAIN)[0]}{AGAIN}{generation}"


def is_same_topic(before: str, now: str) -> bool:
    return bool(before) and before.partition(AGAIN)[0] == now
