"""What the columns of a table that is there can't take, and could: a wider type, or no value."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.columns import EVENT_TIME, MOST_DIGITS, spark_type
from lakehouse_ingest.contracts import contract_of
from lakehouse_ingest.formats import Format
from lakehouse_ingest.records import DATA, FAULT
from lakehouse_ingest.settings import TableSettings
from lakehouse_ingest.shaping import TablePlan
from lakehouse_ingest.tables import Evolution, Relax, Widen

Measure = Callable[[SparkColumn], SparkColumn]  # of a value: how much of a wider type it needs; null: none
INT, FLOAT = 2**31, 3.4028234663852886e38
WIDER = {"int": "long", "float": "double"}


def outgrown(
    plan: TablePlan, settings: TableSettings, form: Format, fields: Sequence[tuple[str, T.DataType]], rows: DataFrame
) -> list[Evolution]:
    """What these records need of the columns that are there: a wider type, or to be without a value.

    Hints and declared ranges stay what a person has said. A column that needs a value stays so, and records without
    one are dead letters, unless the settings name a contract that is not to insist.
    """
    contract, named = contract_of(settings), {name for name, _ in fields}
    columns = [
        column
        for column in plan.columns
        if column.name != EVENT_TIME
        and column.low is None
        and column.field not in settings.hints
        and contract.rule_of(column.name).widens
    ]
    found = [
        (column, leaf)
        for column in columns
        if column.field in named
        for leaf in _leaves(spark_type(column.spark), (column.name,))
    ]
    lacking = [each for each in columns if each.required and (settings.contract or each.name in settings.contracts)]
    if not found and not lacking:
        return []
    wide = [replace(each, iceberg=_wide(each.iceberg), required=False) for each in columns]
    data = form.decode(rows, wide).where(F.col(FAULT).isNull())
    measures = [F.max(measure(F.col(DATA)[column.field])) for column, (_, _, measure) in found]
    measures += [F.max(F.when(F.col(DATA)[column.field].isNull(), 1)) for column in lacking]
    row = data.agg(*(each.alias(f"m{number}") for number, each in enumerate(measures))).collect()[0]
    changes: list[Evolution] = [
        Widen(".".join(path), _narrow(kind), _wider(kind, needed))
        for (_, (path, kind, _)), needed in zip(found, row, strict=False)
        if needed is not None and _wider(kind, needed) != _narrow(kind)
    ]
    return changes + [Relax(each.name) for each, needed in zip(lacking, row[len(found) :], strict=True) if needed]


def _leaves(kind: T.DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], T.DataType, Measure]]:
    """What could be wider, with its path."""
    match kind:
        case T.IntegerType():
            yield path, kind, lambda value: F.when((value < -INT) | (value >= INT), 1)
        case T.FloatType():
            yield path, kind, lambda value: F.when((F.abs(value) > FLOAT) & (F.abs(value) < float("inf")), 1)
        case T.DecimalType() if len(path) == 1 and kind.precision < MOST_DIGITS:
            yield path, kind, lambda value: F.length(F.regexp_extract(value.cast("string"), r"^-?0*(\d*)", 1))
        case T.StructType():
            for field in kind.fields:
                for inner, leaf, measure in _leaves(field.dataType, (*path, field.name)):
                    yield inner, leaf, partial(_of_field, field.name, measure)
        case T.ArrayType():
            for inner, leaf, measure in _leaves(kind.elementType, (*path, "element")):
                yield inner, leaf, partial(_of_elements, measure)


def _of_field(name: str, measure: Measure, value: SparkColumn) -> SparkColumn:
    return measure(value[name])


def _of_elements(measure: Measure, value: SparkColumn) -> SparkColumn:
    return F.array_max(F.transform(value, measure))


def _wide(iceberg: str) -> str:
    """The widest type that it may become; a word before a colon is a field's name."""
    if found := re.fullmatch(r"decimal\(\d+,\s*(\d+)\)", iceberg):
        return f"decimal({MOST_DIGITS},{found[1]})"
    return re.sub(r'"(?:[^"]|"")*"|\b(?:int|float)\b(?!\s*:)', lambda found: WIDER.get(found[0], found[0]), iceberg)


def _narrow(kind: T.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if isinstance(kind, T.DecimalType) else kind.simpleString()


def _wider(kind: T.DataType, needed: int) -> str:
    if isinstance(kind, T.DecimalType):
        return f"decimal({min(MOST_DIGITS, max(kind.precision, needed + kind.scale))},{kind.scale})"
    return WIDER[kind.simpleString()]
