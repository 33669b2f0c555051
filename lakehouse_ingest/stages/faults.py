"""A fault: why a record can't become a row, as data beside the record."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import NAME, ColumnPlan


def faulty(reason: Reason, detail: Column, stage: str, told: str | Column = "") -> Column:
    """The detail may say what the record says. `told` is for everybody's eyes: it is made of the settings' words, ours
    and the names of known columns, never of a value or of a key that is none."""
    told = F.lit(told) if isinstance(told, str) else told
    parts = {"reason": F.lit(str(reason)), "detail": detail, "stage": F.lit(stage), "told": told}
    return F.struct(*(part.alias(name) for name, part in parts.items()))


def worded(reason: Reason, words: str, stage: str) -> Column:
    """A fault in words that hold nothing of a record."""
    return faulty(reason, F.lit(words), stage, words)


def misfit_told(column: ColumnPlan) -> str:
    """What everybody may know of a value that its column does not take. Of a struct's fields many may be data."""
    return f"{known_as(column.field)} is not {column.takes.partition('<')[0]}"


def known_as(field: str) -> str:
    """A column's field, where that is a name: a key such as an address is somebody's data, though it has a column."""
    return field if NAME.fullmatch(field) else "a field"
