"""What passes through the stages: records in Arrow, the fields of a record, and why a record can't become a row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.values import Real, Tree, Value

__all__ = ["RECORD_SCHEMA", "Fault", "Faults", "Real", "Records", "Share", "Tree", "Value"]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


@dataclass(frozen=True)
class Share:
    """A part of a batch that one reader reads: the offsets of one partition, from `start` up to `end`."""

    topic: str
    partition: int
    start: int
    end: int
    log: str = ""  # short name of the topic's log, see `SourceIdentity.log`


@dataclass(frozen=True)
class Records:
    """Some records of one partition, in the order of their offsets."""

    topic: str
    partition: int
    log: str
    rows: pa.RecordBatch  # with `RECORD_SCHEMA`

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def take(self, numbers: pa.Array) -> "Records":
        """Only the records with these numbers, which ascend."""
        if len(numbers) == len(self):
            return self
        return replace(self, rows=self.rows.take(numbers))


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a record can't become a row."""

    reason: Reason
    detail: str  # may show a part of the value; goes only into the dead-letter table
    stage: str
    told: str  # the same without anything of the value, for pages and logs


Faults: TypeAlias = Mapping[int, Fault]  # by the number of the row in its batch
