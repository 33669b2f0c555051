"""Find columns of an existing table that need a wider type, or have to become optional."""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from catalog import Evolution, Relax, Widen
from lakehouse_ingest.schema.arrow_types import MOST_DIGITS, arrow_type, iceberg_text
from lakehouse_ingest.schema.columns import ELEMENT, EVENT_TIME, VALUE, TablePlan
from lakehouse_ingest.schema.contract import contract_of
from lakehouse_ingest.schema.seen import SeenValues
from lakehouse_ingest.settings import TableSettings


def outgrown(
    plan: TablePlan, settings: TableSettings, fields: Mapping[str, SeenValues], lacking: Collection[str] = ()
) -> list[Evolution]:
    """Changes that these values need: wider types, or columns that become optional.

    A value counts by itself, whatever else its record holds. `lacking` names fields of required columns that a record
    lacks which is sound but for that.

    Hints and declared ranges never change, because a person chose them. A required column stays required, and records
    without a value for it are dead-lettered, unless the settings name a contract that lets it become optional.
    """
    contract = contract_of(settings)
    free = [
        column
        for column in plan.columns
        if column.name != EVENT_TIME and column.low is None and column.field not in settings.hints
    ]
    wider: list[Evolution] = [
        Widen(".".join((column.name, *path)), iceberg_text(narrow), iceberg_text(wide))
        for column in free
        if column.field in fields
        for path, narrow, wide in _wider(arrow_type(column.iceberg), fields[column.field], ())
        if contract.rule_of(column.field, *path).widens
    ]
    return wider + [
        Relax(each.name)
        for each in free
        if each.required
        and each.field in lacking
        and (settings.contract or each.field in settings.contracts)
        and contract.rule_of(each.field).widens
    ]


def _wider(
    kind: pa.DataType, seen: SeenValues, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType, pa.DataType]]:
    """The parts of a type that are too narrow, each with its path and the type that it needs."""
    match kind:
        case pa.StructType():
            for each in kind:
                if each.name in seen.fields:
                    yield from _wider(each.type, seen.fields[each.name], (*path, each.name))
        case pa.ListType() if seen.elements:
            yield from _wider(kind.value_type, seen.elements, (*path, ELEMENT))
        case pa.MapType() if seen.fields:
            yield from _wider(kind.item_type, seen.as_map(), (*path, VALUE))
        case _ if kind == pa.int32() and "long" in seen.sizes:
            yield path, kind, pa.int64()
        case _ if kind == pa.float32() and seen.beyond_float:
            yield path, kind, pa.float64()
        case pa.Decimal128Type():
            # Only the digits before the point can become more, because all values of a column have the same scale.
            needed = [whole + kind.scale for whole, fraction in seen.digits if fraction <= kind.scale]
            precision = max((each for each in needed if each <= MOST_DIGITS), default=0)
            if precision > kind.precision:
                yield path, kind, pa.decimal128(precision, kind.scale)
