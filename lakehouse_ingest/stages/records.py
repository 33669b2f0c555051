"""What passes through the stages: records in Arrow, the fields of a record, and why a record can't become a row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import SOURCE_TYPE
from lakehouse_ingest.schema.values import Real, Tree, Value

__all__ = ["RECORD_SCHEMA", "Fault", "Faults", "Real", "Records", "Share", "Tree", "Value"]

SOURCE_KIND = arrow_type(SOURCE_TYPE)
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


def coordinates(records: Records, offsets: pa.Array, index: pa.Array | None) -> pa.StructArray:
    """Where the rows' records stand in their source. `index` tells the rows of one record apart."""
    size = len(offsets)
    values = [
        pa.repeat(pa.scalar(records.topic, pa.string()), size),
        pa.repeat(pa.scalar(records.partition, pa.int32()), size),
        offsets,
        pa.repeat(pa.scalar(0, pa.int32()), size) if index is None else index,
        pa.repeat(pa.scalar(records.log, pa.string()), size),
    ]
    return pa.StructArray.from_arrays(values, fields=list(SOURCE_KIND))


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a record can't become a row."""

    reason: Reason
    detail: str  # may show a part of the value; goes only into the dead-letter table
    stage: str
    told: str  # the same without anything of the value, for pages and logs


Faults: TypeAlias = Mapping[int, Fault]  # by the number of the row in its batch
