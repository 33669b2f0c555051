"""What passes through the stages: records in Arrow, the fields of a record, and why a record can't become a row."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self, TypeAlias

import pyarrow as pa

from lakehouse_ingest.records import Reason

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


class Real(float):
    """A number with a fraction or an exponent, which also knows its text: a decimal or text column needs all digits."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


Value: TypeAlias = (
    "bool | int | float | str | bytes | Decimal | dt.date | dt.datetime | list[Value] | dict[str, Value] | None"
)
Tree: TypeAlias = dict[str, Value]  # the fields of one record; numbers of a text format are int or Real


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a record can't become a row."""

    reason: Reason
    detail: str  # may show a part of the value; goes only into the dead-letter table
    stage: str
    told: str  # the same without anything of the value, for pages and logs


Faults: TypeAlias = Mapping[int, Fault]  # by the number of the row in its batch
