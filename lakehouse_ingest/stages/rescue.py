"""Values that no column takes: the table's contract rescues them, or dead-letters their record.

A field is rescued with its whole value as soon as anything of the value is missing in its column: there is no column,
the value is of another type, or something inside it has no place. `null`, `[]` and `{}`, and values made only of these,
count as nothing: they would not get a column either.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.records import DATA, FAULT, MISFIT, RAW, RECORD, RESCUED, Reason
from lakehouse_ingest.schema.columns import ELEMENT, VALUE, Aside, ColumnPlan
from lakehouse_ingest.stages.faults import faulty

STAGE = "rescue"
# Finds a plain type in Spark's description of a variant: `STRING`, or the `BIGINT` in `OBJECT<a: ARRAY<BIGINT>>`.
PLAIN = r"(^|[<:] ?)(?!VOID)[A-Z_]+(\(|[,>]|$)"


def set_aside(rows: DataFrame, columns: Sequence[ColumnPlan], aside: Aside, *, beyond: bool) -> DataFrame:
    """Add the rescued values to rows of a `formats.Lenient`. `beyond`: there may be fields without a column."""
    row = T.StructType([])
    if columns and isinstance(found := rows.schema[DATA].dataType, T.StructType):
        row = found
    looked = F.col(FAULT).isNull() if beyond else F.col(FAULT).isNull() & F.col(MISFIT).isNotNull()
    # Leave nulls out whatever Spark's default says, or a column without the value would seem to hold it.
    held = F.to_json(F.col(DATA), {"ignoreNullFields": "true"})
    there = F.json_object_keys(held) if row.fields else F.array().cast("array<string>")
    read = F.struct(F.col(RAW).alias("raw"), F.col(DATA).alias("data"), there.alias("there"))
    lost = F.when(looked, _once(read, lambda it: _left(it, row)))
    kept = rows.withColumn(RESCUED, lost)
    if aside.may_refuse:
        refused = F.when(looked, _once(read, lambda it: F.get(F.map_keys(_left(it, row, aside)), F.lit(0))))
        names = [column.field for column in columns]
        why = ": the table's contract takes no such field"
        detail = F.concat(F.substring(F.col("_refused"), 1, 60), F.lit(why))
        no_column = faulty(Reason.NO_COLUMN, detail, STAGE, f"a field{why}")
        misfit = F.when(F.col("_refused").isin(names), F.col(MISFIT))
        fault = F.when(F.col("_refused").isNotNull(), F.coalesce(misfit, no_column))
        kept = kept.withColumn("_refused", refused).withColumn(FAULT, F.coalesce(F.col(FAULT), fault))
    return kept.select(RECORD, FAULT, DATA, *([RESCUED] if aside.rescues else []))


def _left(it: Column, row: T.StructType, aside: Aside | None = None) -> Column:
    """The fields of which something is missing in the columns. With `aside`, only those that it refuses."""
    # For plain values it is enough to compare names.
    nested = [field for field in row.fields if isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType)]

    def is_left(name: Column, raw: Column) -> Column:
        missing = ~F.array_contains(it["there"], name)
        if aside:
            missing = missing & _refused(name, (), aside)
        for field in nested:
            within = _lost(raw, it["data"][field.name], field.dataType, (field.name,), aside)
            missing = F.when(name == field.name, within).otherwise(missing)
        return _holds(raw) & missing

    return F.map_filter(it["raw"], is_left)


def _lost(raw: Column, got: Column, kind: T.DataType, path: Sequence[str], aside: Aside | None) -> Column:
    """Whether any part of the value is missing in what the column got."""
    whole = F.lit(True) if aside is None else F.lit(aside.refused(path))
    match kind:
        case T.StructType():
            fields = F.map_entries(F.try_variant_get(raw, "$", "map<string, variant>"))
            parts = F.exists(fields, lambda each: _holds(each["value"]) & _lost_field(each, got, kind, path, aside))
        case T.MapType():
            fields, inside = F.map_entries(F.try_variant_get(raw, "$", "map<string, variant>")), (*path, VALUE)
            parts = F.exists(
                fields,
                lambda each: (
                    _holds(each["value"])
                    & _lost(each["value"], F.try_element_at(got, each["key"]), kind.valueType, inside, aside)
                ),
            )
        case T.ArrayType():
            elements, inside = F.try_variant_get(raw, "$", "array<variant>"), (*path, ELEMENT)
            parts = F.exists(
                F.transform(
                    elements,
                    lambda each, at: _holds(each) & _lost(each, F.get(got, at), kind.elementType, inside, aside),
                ),
                lambda lost: lost,
            )
        case _:
            return got.isNull() & whole
    return F.when(got.isNull(), whole).otherwise(F.coalesce(parts, whole))


def _lost_field(each: Column, got: Column, kind: T.StructType, path: Sequence[str], aside: Aside | None) -> Column:
    lost = F.lit(True) if aside is None else _refused(each["key"], path, aside)
    for field in kind.fields:
        within = _lost(each["value"], got[field.name], field.dataType, (*path, field.name), aside)
        lost = F.when(each["key"] == field.name, within).otherwise(lost)
    return lost


def _refused(name: Column, path: Sequence[str], aside: Aside) -> Column:
    """Whether the contract refuses a field of this name."""
    found = F.lit(aside.refused(path))
    for said, refused in aside.below(path).items():
        found = F.when(name == said, F.lit(refused)).otherwise(found)
    return found


def _holds(raw: Column) -> Column:
    return F.coalesce(F.schema_of_variant(raw).rlike(PLAIN), F.lit(False))


def _once(value: Column, then: Callable[[Column], Column]) -> Column:
    """Apply `then` to a value that Spark computes only once, however often `then` uses it."""
    return F.get(F.transform(F.array(value), then), F.lit(0))
