"""Transforms: functions of the user that change the decoded records of a table, before they are shaped.

A transform gets a frame with one row for each record, and returns a frame of the same shape. Its columns are `_record`
(key, value, headers, topic, partition, offset and timestamp, as the source gave them), `_data` and `_fault`. `_data` is
a struct of the table's fields, or null if the record could not be decoded.

A transform may change values in `_data`, and reject records (see `set_aside`). It can compute only fields that are
declared columns. If the table's contract rescues values, there is `_rescued` as well, which it must not change.

A transform may neither drop nor add rows, or records would be lost or doubled. We count the rows of each partition
before anything of the batch is visible. So we don't notice a transform that drops one record and doubles another of
the same partition.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.records import DATA, FAULT, RECORD, RESCUED, Reason
from lakehouse_ingest.stages.accounting import LANDED, Tally
from lakehouse_ingest.stages.arrow.transforms import GROUP, STAGE, chosen
from lakehouse_ingest.stages.faults import worded

__all__ = ["GROUP", "Transform", "applied", "check", "chosen", "set_aside"]

KEPT = (RECORD, DATA, FAULT)

Transform = Callable[[DataFrame], DataFrame]


def set_aside(rows: DataFrame, condition: Column, detail: str) -> DataFrame:
    """Dead-letter the records that meet the condition. A record that has a fault already keeps it."""
    fault = F.when(condition, worded(Reason.SET_ASIDE, detail, STAGE))
    return rows.withColumn(FAULT, F.coalesce(F.col(FAULT), fault))


def applied(transform: Transform, rows: DataFrame) -> DataFrame:
    try:
        return transform(rows).select(*KEPT, *({RESCUED} & {*rows.columns}))
    except Exception as failure:
        raise SettingsRefused(
            f"`streams.transform` {_name(transform)} can't be applied: {type(failure).__name__}: {_first_line(failure)}"
        ) from failure


def check(given: Tally, came_out: Tally, written: int) -> None:
    """Refuse a batch if the transform changed the number of rows of a partition, or the number of rows in files."""
    lost = [at for at in given.counts if came_out.received_from(at) != given.received_from(at)]
    if lost or written != came_out.total(LANDED):
        where = f"topic {lost[0][0]} partition {lost[0][1]}" if lost else "the batch"
        rows, records = (each.received_from(lost[0]) if lost else each.received for each in (came_out, given))
        raise NeedsOperator(
            f"`streams.transform` made {rows} rows of {records} records of {where}; nothing of it is published. It may"
            " change and reject records, but neither drop nor add any; fix it"
        )


def _name(transform: Transform) -> str:
    return getattr(transform, "__qualname__", repr(transform))


def _first_line(failure: Exception) -> str:
    return (str(failure).strip().splitlines() or [""])[0][:120]
