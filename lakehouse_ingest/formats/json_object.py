"""One JSON object a record, parsed by Spark in native columns.

A number becomes text where the column is text; nothing else is converted: "12" is not a number, 1.0 is
not an integer, and such a record is set aside. NaN is taken as a number, as Python writes it.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.columns import ColumnPlan
from lakehouse_ingest.records import DATA, FAULT, RECORD, Reason
from lakehouse_ingest.shaping import faulty

STAGE = "decode"
BROKEN = "_broken"
OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN, "allowSingleQuotes": "false"}
USUAL_SHARE = 0.9  # of a field's values; the others become dead letters
NAMED_IN_DETAIL = 50  # columns that the detail of a wrong type looks at; it is evaluated for such rows only


def decode(rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
    """Adds the decoded fields, or a fault."""
    text = F.col(RECORD)["value"].cast("string")
    fields = ", ".join(f"{_quoted(column.field)} {column.wire}" for column in columns) or f"{BROKEN} string"
    # Within a list, because from_json stops after the first value it finds: `{"a":1}{"a":2}` would pass.
    wrapped = F.concat(F.lit('{"_":['), text, F.lit("]}"))
    parsed = rows.withColumn("_parsed", F.from_json(wrapped, f"_ array<struct<{fields}>>, {BROKEN} string", OPTIONS))
    found, broken = F.col("_parsed")["_"], F.col("_parsed")[BROKEN]
    one = F.get(found, F.lit(0))  # unlike [0] it does not raise on an empty list
    fault = (
        F.when(text.isNull() | (F.trim(text) == ""), faulty(Reason.EMPTY, F.lit("the value is empty"), STAGE))
        .when(~F.is_valid_utf8(text), faulty(Reason.NOT_TEXT, F.lit("the value is not UTF-8"), STAGE))
        .when(broken.isNotNull(), _why_broken(text, columns, fields))
        .when(F.size(found) != 1, faulty(Reason.BROKEN, F.lit("several JSON values in one record"), STAGE))
        .when(one.isNull(), faulty(Reason.NOT_OBJECT, F.lit("null where an object is expected"), STAGE))
    )
    return parsed.select(RECORD, F.coalesce(F.col(FAULT), fault).alias(FAULT), one.alias(DATA))


def _why_broken(text: Column, columns: Sequence[ColumnPlan], fields: str) -> Column:
    """Evaluated for rows that did not fit only, so it may look at each of them twice more."""
    value = F.try_parse_json(text)
    kind = F.schema_of_variant(value)
    alone = F.from_json(text, f"{fields}, {BROKEN} string" if columns else f"{BROKEN} string", OPTIONS)
    misfits = F.concat_ws(
        "; ",
        *(
            F.when(
                F.try_variant_get(value, path, "string").isNotNull() & alone[column.field].isNull(),
                F.concat(
                    F.lit(f"{column.field}: "),
                    F.substring(F.try_variant_get(value, path, "string"), 1, 60),
                    F.lit(f" is not {column.declared or column.iceberg}"),
                ),
            )
            for column in columns[:NAMED_IN_DETAIL]
            if (path := _path(column.field))
        ),
    )
    return (
        F.when(value.isNull(), faulty(Reason.BROKEN, F.lit("the value is not JSON"), STAGE))
        .when(
            ~kind.startswith("OBJECT"),
            faulty(Reason.NOT_OBJECT, F.concat(kind, F.lit(" where an object is expected")), STAGE),
        )
        .when(alone[BROKEN].isNull(), faulty(Reason.BROKEN, F.lit("something follows the JSON object"), STAGE))
        .otherwise(faulty(Reason.WRONG_TYPE, misfits, STAGE))
    )


def infer(rows: DataFrame) -> list[tuple[str, T.DataType]]:
    """The fields of these records with the narrowest type that takes all their values; runs over the rows.

    A field that is of one kind in nearly all records takes that kind, or one broken record would turn a column
    of numbers into text for good; where kinds are truly mixed, the field has none in common (variant).
    """
    value = F.try_parse_json(F.col(RECORD)["value"].cast("string"))
    objects = rows.select(value.alias("value")).where(F.schema_of_variant("value").startswith("OBJECT"))
    fields = _described(objects.select(F.schema_of_variant_agg("value")).collect()[0][0])
    mixed = [name for name, kind in fields if isinstance(kind, T.VariantType) and _path(name)]
    usual = _usual(objects, mixed) if mixed else {}
    return [(name, usual.get(name, kind)) for name, kind in fields]


def _usual(objects: DataFrame, names: Sequence[str]) -> dict[str, T.DataType]:
    """For fields of mixed kinds the type of the usual one, if nearly all values are of it."""
    values = {name: F.try_variant_get("value", _path(name) or "", "variant") for name in names}
    kinds = {name: F.nullif(_kind(value), F.lit("VOID")) for name, value in values.items()}
    modes = objects.select(*(F.mode(kind) for kind in kinds.values())).collect()[0]
    of_mode = {name: kinds[name] == mode for name, mode in zip(names, modes, strict=True)}
    counted = objects.select(
        *(F.count_if(of_mode[name]) / F.count(kinds[name]) for name in names),
        *(F.schema_of_variant_agg(F.when(of_mode[name], values[name])) for name in names),
    ).collect()[0]
    shares, types = counted[: len(names)], counted[len(names) :]
    return {
        name: T.DataType.fromDDL(_as_struct(described))
        for name, share, described in zip(names, shares, types, strict=True)
        if share >= USUAL_SHARE
    }


def _kind(value: Column) -> Column:
    """BIGINT, DECIMAL(3,1) and DOUBLE are all numbers."""
    word = F.regexp_extract(F.schema_of_variant(value), r"^[A-Z]+", 0)
    return F.when(word.isin("BIGINT", "DECIMAL", "DOUBLE"), "NUMBER").otherwise(word)


def _described(text: str | None) -> list[tuple[str, T.DataType]]:
    """`OBJECT<a: BIGINT>` is Spark's own text for a struct, but for the first word."""
    if not text or not text.startswith("OBJECT<") or text == "OBJECT<>":
        return []
    struct = T.DataType.fromDDL(_as_struct(text))
    assert isinstance(struct, T.StructType)
    return [(field.name, field.dataType) for field in struct.fields]


def _as_struct(described: str) -> str:
    """OBJECT becomes STRUCT, except within back-quoted names."""
    parts = described.split("`")
    return "`".join(part if index % 2 else part.replace("OBJECT<", "STRUCT<") for index, part in enumerate(parts))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _path(name: str) -> str | None:
    # Variant paths have no escape: a name with quotes or brackets is left out of the detail.
    return None if set(name) & set("\"'[]\\") else f'$["{name}"]'
