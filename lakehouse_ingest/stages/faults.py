"""Faults: why a record can't become a row, as data beside the record."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import NAME, ColumnPlan


def faulty(reason: Reason, detail: Column, stage: str, told: str | Column = "") -> Column:
    """A fault. `detail` may quote the record, and goes only into the dead-letter table.

    `told` goes to logs and pages, so it must not show data. It has only words of ours, words of the settings and names
    of known columns.
    """
    told = F.lit(told) if isinstance(told, str) else told
    parts = {"reason": F.lit(str(reason)), "detail": detail, "stage": F.lit(stage), "told": told}
    return F.struct(*(part.alias(name) for name, part in parts.items()))


def worded(reason: Reason, words: str, stage: str) -> Column:
    """A fault whose words quote nothing of a record."""
    return faulty(reason, F.lit(words), stage, words)


def misfit_told(column: ColumnPlan) -> str:
    """What logs may say of a value that does not fit its column. The names of a struct's fields may be data."""
    return f"{known_as(column.field)} is not {column.takes.partition('<')[0]}"


def known_as(field: str) -> str:
    """The field, if it looks like a name. A key such as an address is data, even if it has a column."""
    return field if NAME.fullmatch(field) else "a field"
