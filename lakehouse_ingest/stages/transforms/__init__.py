"""What a function of the user's may do to the decoded records of a table, before they get its columns.

It is given a frame with a row a record: `_record` (what the source gave: key, value, headers, topic, partition, offset,
timestamp), `_data` (a struct of the table's fields, null where the record could not be decoded) and `_fault`. It
returns a frame of the same shape: with other values in `_data`, or with a fault where a record is to be set aside
(see `set_aside`). Where the table's contract asks for it there is `_rescued` as well, which it leaves as it is. A
field that it computes is one of the declared columns. It may neither drop nor add rows: the
books would not balance. They are counted, by partition, before anything of a batch is seen; a function that drops one
record and doubles another of the same partition is not found out here.
"""

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.records import DATA, FAULT, RECORD, RESCUED, Reason
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.settings.named_code import ASKED_FOR
from lakehouse_ingest.stages.accounting import LANDED, Tally
from lakehouse_ingest.stages.faults import worded

STAGE = "transform"
GROUP = "lakehouse_ingest.transforms"
KEPT = (RECORD, DATA, FAULT)

Transform = Callable[[DataFrame], DataFrame]


def set_aside(rows: DataFrame, condition: Column, detail: str) -> DataFrame:
    """Records for which this holds become dead letters, unless something worse is known of them."""
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
    """As many of each partition; and as many rows in files, for whoever counts twice there is seen here."""
    lost = [at for at in given.counts if came_out.received_from(at) != given.received_from(at)]
    if lost or written != came_out.total(LANDED):
        where = f"topic {lost[0][0]} partition {lost[0][1]}" if lost else "the batch"
        rows, records = (each.received_from(lost[0]) if lost else each.received for each in (came_out, given))
        raise NeedsOperator(
            f"`streams.transform` made {rows} rows of {records} records of {where}; nothing of it has landed. It may"
            " change records and set them aside, but neither drop nor add any; mend it"
        )


def chosen(stream: StreamSettings, *, allow_code: bool) -> Transform | None:
    """The function that the settings name, if they do."""
    return _named(stream.transform, allow_code=allow_code) if stream.transform else None


def _named(name: str, *, allow_code: bool) -> Transform:
    module, colon, attribute = name.partition(":")
    if colon and not allow_code:
        raise SettingsRefused(f"`streams.transform` names code ({name}): {ASKED_FOR}")
    offered = {each.name: each for each in entry_points(group=GROUP)}
    if not colon and name not in offered:
        there = ", ".join(sorted(offered)) or "none is installed"
        raise SettingsRefused(f"`streams.transform` names {name}, and no package has such an entry point: {there}")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else offered[name].load()
    except Exception as failure:
        said = f"{type(failure).__name__}: {_first_line(failure)}"
        raise SettingsRefused(f"`streams.transform` names {name}, which can't be loaded: {said}") from failure
    if not callable(found):
        raise SettingsRefused(f"`streams.transform` names {name}, which is no function")
    return cast("Transform", found)


def _name(transform: Transform) -> str:
    return getattr(transform, "__qualname__", repr(transform))


def _first_line(failure: Exception) -> str:
    return (str(failure).strip().splitlines() or [""])[0][:120]
