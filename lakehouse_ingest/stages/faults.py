"""Words of faults that never show data: they go to logs and pages."""

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.columns import NAME, ColumnPlan
from lakehouse_ingest.stages.records import Fault

SHOWN = 60  # characters of a value or a name in a detail


def misfit_told(column: ColumnPlan) -> str:
    """What logs may say of a value that does not fit its column. The names of a struct's fields may be data."""
    return f"{known_as(column.field)} is not {column.takes.partition('<')[0]}"


def known_as(field: str) -> str:
    """The field, if it looks like a name. A key such as an address is data, even if it has a column."""
    return field if NAME.fullmatch(field) else "a field"


def missing(reason: Reason, field: str, stage: str) -> Fault:
    return Fault(reason, f"{field} is missing", stage, f"{known_as(field)} is missing")
