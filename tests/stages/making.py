"""Records of one partition for tests, and a small format that reads them: JSON objects, by Python's own decoder."""

import datetime as dt
import json
from collections.abc import Sequence

import pyarrow as pa

from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Tree

NOON = dt.datetime(2024, 5, 6, 12, tzinfo=dt.UTC)
BROKEN = Fault(Reason.BROKEN, "the value is not JSON", "decode", "the value is not JSON")

Headers = Sequence[tuple[str, bytes | None]]


class SmallJson:
    """It knows two faults only: the tests here are about what happens to a fault."""

    def tree(self, value: bytes | None) -> Tree | Fault:
        if not value:
            return Fault(Reason.EMPTY, "the value is empty", "decode", "the value is empty")
        try:
            found = json.loads(value)
        except ValueError:
            return BROKEN
        return found if isinstance(found, dict) else BROKEN

    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        return pa.array([self._text(value.as_py(), path) for value in values], pa.string())

    def _text(self, value: bytes | None, path: Sequence[str]) -> str | None:
        found: object = self.tree(value)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found if found is None or isinstance(found, str) else json.dumps(found)


def records_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (),
    headers: Sequence[Headers | None] = (),
    *,
    topic: str = "events",
    partition: int = 0,
    offsets: Sequence[int] = (),
    seconds: Sequence[int] = (),
    log: str = "abcdef123456",
) -> Records:
    count = len(values)
    columns = {
        "offset": [*offsets] or [*range(count)],
        "timestamp": [NOON + dt.timedelta(seconds=each) for each in [*seconds] or range(count)],
        "key": [*keys] or [None] * count,
        "value": [*values],
        "headers": [*headers] or [None] * count,
    }
    return Records(topic, partition, log, pa.RecordBatch.from_pydict(columns, RECORD_SCHEMA))
