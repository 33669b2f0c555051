"""The dead-letter table: whole records with their faults. It is written like any other table."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakehouse_ingest.records import SOURCE, Reason
from lakehouse_ingest.schema.arrow_types import arrow_type
from lakehouse_ingest.schema.columns import SOURCE_TYPE, ColumnPlan
from lakehouse_ingest.stages.records import Faults, Records, coordinates

COLUMNS = (
    ColumnPlan("reason", "", "string", required=True),
    ColumnPlan("detail", "", "string"),
    ColumnPlan("stage", "", "string"),
    ColumnPlan("pipeline", "", "string"),
    ColumnPlan("timestamp", "", "timestamptz"),
    ColumnPlan("key", "", "binary"),
    ColumnPlan("value", "", "binary"),
    ColumnPlan("headers", "", "list<struct<key: string, value: binary>>"),
    ColumnPlan(SOURCE, "", SOURCE_TYPE),
)
PARTITIONS = ("day(timestamp)",)
MEANINGS = {
    "reason": "Why the record could not become a row; the list of reasons is closed.",
    "detail": "What exactly was wrong, such as the field and its value.",
    "stage": "The stage that found the fault: route, decode, plan, transform, rescue or shape.",
    "pipeline": "Ledger name of the stream that read the record.",
    "timestamp": "Time stamp of the record in its source.",
    "key": "Key of the record, byte for byte.",
    "value": "Value of the record, byte for byte.",
    "headers": "Headers of the record, in their order.",
    SOURCE: "Coordinates of the record in its source.",
}
# What each reason means, and what to do about it.
EXPLAINED: dict[Reason, tuple[str, str]] = {
    Reason.EMPTY: (
        "The value is null, empty or blank.",
        "Tombstones of compacted topics look like this. If they are expected, there is nothing to do.",
    ),
    Reason.NOT_TEXT: (
        "The value is not UTF-8, or holds half of a surrogate pair such as `\\ud83d`.",
        "Fix the encoding in the producer.",
    ),
    Reason.BROKEN: (
        "The value is not JSON, holds several JSON values, or is nested too deeply.",
        "Fix the serialization in the producer.",
    ),
    Reason.NOT_OBJECT: (
        "The value is JSON, but not an object: a list, a number, a text or null.",
        "Let the producer send objects.",
    ),
    Reason.WRONG_TYPE: (
        "The value of a field does not fit the type of its column.",
        "Fix the producer, change the type in `columns` or `hints`, or keep such values in `_rescued` by a `contract`.",
    ),
    Reason.OUT_OF_RANGE: (
        "A number or a time lies outside the range of its column's type.",
        "Fix the producer, or give the column a wider type.",
    ),
    Reason.MISSING: (
        "A required column has no value, or the records of a new table hold no field that could become a column.",
        "Let the producer send the field, or do not declare the column as `required`.",
    ),
    Reason.EVENT_TIME: (
        "The field of the event time is missing, or its value is not a time.",
        "Check `event_time` and `event_time_unit`, or fix the producer.",
    ),
    Reason.NO_COLUMN: (
        "A field may not become a column: by its contract, by `max_columns` or `max_new`, or as its name is taken.",
        "Change the contract, raise the limit, or set `rescue` to keep such fields in `_rescued`.",
    ),
    Reason.NO_TABLE: (
        "No entry takes the record, its type can't be found, or its table is missing and `catalog.create` is off.",
        "Add an entry to `streams.tables`, check `type_from`, or create the table.",
    ),
    Reason.TOO_MANY_TABLES: (
        "The record needs a new table, and the stream already writes to `max_tables` tables.",
        "Raise `max_tables`, or check the template in `table`.",
    ),
    Reason.SET_ASIDE: ("A transform of yours rejected the record.", "See the column `detail` for the text it gave."),
    Reason.NAME_TAKEN: (
        "The name of the record's table belongs to another topic or type.",
        "Choose another template in `table`, or set `names` to tell_apart.",
    ),
}
SCHEMA = pa.schema([(each.name, arrow_type(each.iceberg)) for each in COLUMNS])
SAMPLED = 500  # bytes of a value; more than are shown, so that a cut can be seen

Sample = dict[str, Any]


def letters(records: Records, faults: Faults, pipeline: str) -> pa.RecordBatch:
    """The records with a fault as rows of the dead-letter table, byte for byte, in the order of their offsets."""
    rows = pa.array(sorted(faults), pa.int64())
    dead = records.rows.take(rows)
    ordered = [faults[row] for row in rows.to_pylist()]
    columns = {
        "reason": [str(fault.reason) for fault in ordered],
        "detail": [fault.detail for fault in ordered],
        "stage": [fault.stage for fault in ordered],
        "pipeline": [pipeline] * len(ordered),
        **{name: dead[name] for name in ("timestamp", "key", "value", "headers")},
        SOURCE: coordinates(records, dead["offset"], None),
    }
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def samples(records: Records, faults: Faults) -> dict[str, Sample]:
    """The newest faulty record of each reason, for display. The caller blurs its value."""
    rows = sorted(faults)
    times = records.rows["timestamp"].take(pa.array(rows, pa.int64())).cast(pa.int64()).to_pylist()
    found: dict[str, tuple[int, int]] = {}
    for row, time in zip(rows, times, strict=True):
        reason = str(faults[row].reason)
        if time is not None and (time, row) > found.get(reason, (time, -1)):
            found[reason] = time, row
    return {reason: _sample(records, row, faults[row].told) for reason, (_, row) in found.items()}


def newest(of_tasks: Iterable[Mapping[str, Sample]]) -> dict[str, Sample]:
    """The newest sample of each reason."""
    found: dict[str, Sample] = {}
    for reason, sample in (item for each in of_tasks for item in each.items()):
        if reason not in found or sample["timestamp"] > found[reason]["timestamp"]:
            found[reason] = sample
    return found


def _sample(records: Records, row: int, told: str) -> Sample:
    record = records.rows.slice(row, 1)
    value = record["value"][0].as_py()
    return {
        "told": told,
        "topic": records.topic,
        "partition": records.partition,
        "offset": record["offset"][0].as_py(),
        "timestamp": record["timestamp"][0].as_py(),
        "value": value if value is None else value[:SAMPLED],
    }
