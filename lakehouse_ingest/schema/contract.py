"""The contract: how far data may change a table. The settings, as planning and as the stages need them."""

from collections.abc import Sequence

from pyspark.sql import types as T

from catalog import Contract, Rule
from lakehouse_ingest.schema.column_types import spark_type, to_iceberg
from lakehouse_ingest.schema.columns import Aside, TablePlan
from lakehouse_ingest.settings import TableSettings


def contract_of(settings: TableSettings) -> Contract:
    """The contract for planning. Paths begin with the name of a field, which may differ from that of its column."""
    return Contract(
        Rule(settings.contract or "evolve"), {path: Rule(each) for path, each in settings.contracts.items()}
    )


def aside_of(settings: TableSettings) -> Aside | None:
    """What happens to values that no column takes. None is the default: their records are dead-lettered."""
    rule = settings.contract or "evolve"
    if settings.rules == {"evolve"} and not settings.rescue:
        return None
    paths = {path: not settings.keeps(each) for path, each in settings.contracts.items()}
    return Aside(not settings.keeps(rule), paths, settings.rescues)


def has_beyond(plan: TablePlan, fields: Sequence[tuple[str, T.DataType]]) -> bool:
    """Whether records with these fields hold anything that no column takes."""
    types = {column.field: spark_type(column.spark) for column in plan.columns}
    return any(to_iceberg(kind) and (name not in types or _has_more(types[name], kind)) for name, kind in fields)


def _has_more(there: T.DataType, seen: T.DataType) -> bool:
    match there, seen:
        case T.StructType(), T.StructType():
            inner = {field.name: field.dataType for field in there.fields}
            return any(
                to_iceberg(field.dataType) and (field.name not in inner or _has_more(inner[field.name], field.dataType))
                for field in seen.fields
            )
        case T.ArrayType(), T.ArrayType():
            return _has_more(there.elementType, seen.elementType)
        case T.MapType(), T.StructType():
            return any(_has_more(there.valueType, field.dataType) for field in seen.fields)
    return isinstance(there, T.StructType | T.ArrayType | T.MapType)
