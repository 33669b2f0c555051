"""The dead-letter table: whole records with their faults. It is written like any other table."""

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse_ingest.records import FAULT, RECORD, SOURCE, Reason
from lakehouse_ingest.schema.columns import SOURCE_TYPE, ColumnPlan
from lakehouse_ingest.stages.shaping import coordinates

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
SAMPLED = 500  # bytes of a value; more than are shown, so that a cut can be seen

Sample = dict[str, Any]


def letters(rows: DataFrame, pipeline: str) -> DataFrame:
    """The rows with a fault as dead-letter records, which keep the record byte for byte."""
    fault, record = F.col(FAULT), F.col(RECORD)
    return rows.where(fault.isNotNull()).select(
        fault["reason"].alias("reason"),
        fault["detail"].alias("detail"),
        fault["stage"].alias("stage"),
        F.lit(pipeline).alias("pipeline"),
        *(record[name].alias(name) for name in ("timestamp", "key", "value", "headers")),
        coordinates().alias(SOURCE),
    )


def sampled(rows: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, Sample]]]:
    """Returns the rows and a function that gives the newest faulty record of each reason after the write."""
    fault, record = F.col(FAULT), F.col(RECORD)
    place = (record[name].alias(name) for name in ("topic", "partition", "offset"))
    shown = F.struct(fault["told"].alias("told"), *place, F.substring(record["value"], 1, SAMPLED).alias("value"))
    newest = [
        F.max_by(shown, F.when(fault["reason"] == str(reason), record["timestamp"])).alias(str(reason))
        for reason in Reason
    ]
    observation = Observation()

    def found() -> dict[str, Sample]:
        try:
            said = observation.get
        except Py4JJavaError:  # samples are only for display, so a batch does not fail without them
            return {}
        return {reason: sample.asDict() for reason, sample in said.items() if sample is not None}

    return rows.observe(observation, *newest), found
