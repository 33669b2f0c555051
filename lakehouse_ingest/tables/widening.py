"""Find columns of an existing table that need a wider type, or have to become optional."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.records import DATA, FAULT
from lakehouse_ingest.schema.column_types import MOST_DIGITS, spark_type
from lakehouse_ingest.schema.columns import ELEMENT, EVENT_TIME, VALUE, TablePlan
from lakehouse_ingest.schema.contract import contract_of
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.stages.formats import Format
from lakehouse_ingest.tables import Evolution, Relax, Widen

Measure = Callable[[SparkColumn], SparkColumn]  # how much wider a type a value needs; null if the type is wide enough
INT, FLOAT = 2**31, 3.4028234663852886e38
WIDER = {"int": "long", "float": "double"}


def outgrown(
    plan: TablePlan, settings: TableSettings, form: Format, fields: Sequence[tuple[str, T.DataType]], rows: DataFrame
) -> list[Evolution]:
    """Changes that these records need: wider types, or columns that become optional.

    Hints and declared ranges never change, because a person chose them. A required column stays required, and records
    without a value for it are dead-lettered, unless the settings name a contract that lets it become optional.
    """
    contract, named = contract_of(settings), {name for name, _ in fields}
    free = [
        column
        for column in plan.columns
        if column.name != EVENT_TIME and column.low is None and column.field not in settings.hints
    ]
    found = [
        (column, leaf)
        for column in free
        if column.field in named
        for leaf in _leaves(spark_type(column.spark), ())
        if contract.rule_of(column.field, *leaf[0]).widens
    ]
    growing = {column.field for column, _ in found}
    columns = [each for each in free if each.field in growing or contract.rule_of(each.field).widens]
    lacking = [
        each
        for each in columns
        if each.required
        and (settings.contract or each.field in settings.contracts)
        and contract.rule_of(each.field).widens
    ]
    if not found and not lacking:
        return []
    wide = [replace(each, iceberg=_wide(each.iceberg), required=False) for each in columns]
    data = form.decode(rows, wide).where(F.col(FAULT).isNull())
    measures = [F.max(measure(F.col(DATA)[column.field])) for column, (_, _, measure) in found]
    measures += [F.max(F.when(F.col(DATA)[column.field].isNull(), 1)) for column in lacking]
    row = data.agg(*(each.alias(f"m{number}") for number, each in enumerate(measures))).collect()[0]
    changes: list[Evolution] = [
        Widen(".".join((column.name, *path)), _narrow(kind), _wider(kind, needed))
        for (column, (path, kind, _)), needed in zip(found, row, strict=False)
        if needed is not None and _wider(kind, needed) != _narrow(kind)
    ]
    return changes + [Relax(each.name) for each, needed in zip(lacking, row[len(found) :], strict=True) if needed]


def _leaves(kind: T.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], T.DataType, Measure]]:
    """The parts of a type that could be wider, each with its path and its measure."""
    match kind:
        case T.IntegerType():
            yield path, kind, lambda value: F.when((value < -INT) | (value >= INT), 1)
        case T.FloatType():
            yield path, kind, lambda value: F.when((F.abs(value) > FLOAT) & (F.abs(value) < float("inf")), 1)
        case T.DecimalType() if kind.precision < MOST_DIGITS:
            yield path, kind, lambda value: F.length(F.regexp_extract(value.cast("string"), r"^-?0*(\d*)", 1))
        case _:
            for name, part, within in _parts(kind):
                for inner, leaf, measure in _leaves(part, (*path, name)):
                    yield inner, leaf, partial(within, measure)


def _parts(kind: T.DataType) -> list[tuple[str, T.DataType, Callable[[Measure, SparkColumn], SparkColumn]]]:
    match kind:
        case T.StructType():
            return [(field.name, field.dataType, partial(_of_field, field.name)) for field in kind.fields]
        case T.ArrayType():
            return [(ELEMENT, kind.elementType, _of_elements)]
        case T.MapType():
            return [(VALUE, kind.valueType, _of_values)]
    return []


def _of_field(name: str, measure: Measure, value: SparkColumn) -> SparkColumn:
    return measure(value[name])


def _of_elements(measure: Measure, value: SparkColumn) -> SparkColumn:
    return F.array_max(F.transform(value, measure))


def _of_values(measure: Measure, value: SparkColumn) -> SparkColumn:
    return _of_elements(measure, F.map_values(value))


def _wide(iceberg: str) -> str:
    """The widest type that a column may become. A word before a colon is a field's name, so it stays."""
    narrow = r'"(?:[^"]|"")*"|\b(?:int|float)\b(?!\s*:)|\bdecimal\(\d+,\s*(?P<scale>\d+)\)'
    return re.sub(narrow, _widest, iceberg)


def _widest(found: re.Match[str]) -> str:
    return f"decimal({MOST_DIGITS},{found['scale']})" if found["scale"] else WIDER.get(found[0], found[0])


def _narrow(kind: T.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if isinstance(kind, T.DecimalType) else kind.simpleString()


def _wider(kind: T.DataType, needed: int) -> str:
    if isinstance(kind, T.DecimalType):
        return f"decimal({min(MOST_DIGITS, max(kind.precision, needed + kind.scale))},{kind.scale})"
    return WIDER[kind.simpleString()]
