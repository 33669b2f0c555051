"""One JSON object a record, parsed by Spark in native columns.

A number becomes text where the column is text; nothing else is converted: "12" is not a number, 1.0 is
not an integer, and such a record is set aside. NaN is taken as a number, as Python writes it.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.columns import ColumnPlan
from lakehouse_ingest.records import DATA, FAULT, RECORD, Reason
from lakehouse_ingest.shaping import USUAL_SHARE, faulty

STAGE = "decode"
BROKEN = "_broken"
SPACES = " \t\r\n"  # to JSON
OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN, "allowSingleQuotes": "false"}
NAMED_IN_DETAIL = 50  # columns that the detail of a wrong type looks at; it is evaluated for such rows only


def decode(rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
    """Adds the decoded fields, or a fault."""
    text = F.col(RECORD)["value"].cast("string")
    fields = _fields(columns, _read_as) or f"{BROKEN} string"
    # Within a list, because from_json stops after the first value it finds: `{"a":1}{"a":2}` would pass. With one
    # more behind it, because what closes the list itself would pass as well: `{"a":1}],"b":[2`.
    wrapped = F.concat(F.lit('{"_":['), text, F.lit(",{}]}"))
    parsed = rows.withColumn("_parsed", F.from_json(wrapped, f"_ array<struct<{fields}>>, {BROKEN} string", OPTIONS))
    found, broken = F.col("_parsed")["_"], F.col("_parsed")[BROKEN]
    one = F.get(found, F.lit(0))  # unlike [0] it does not raise on an empty list
    fault = (
        F.when(text.isNull() | (F.btrim(text, F.lit(SPACES)) == ""), _fault(Reason.EMPTY, "the value is empty"))
        .when(~F.is_valid_utf8(text), _fault(Reason.NOT_TEXT, "the value is not UTF-8"))
        .when(broken.isNotNull(), _why_broken(text, columns))
        .when(F.size(found) != 2, _fault(Reason.BROKEN, "several JSON values in one record"))  # noqa: PLR2004
        .when(one.isNull(), _fault(Reason.NOT_OBJECT, "null where an object is expected"))
    )
    checks = [_no_decimal(one[column.field], column) for column in columns if _is_decimal(column)]
    return parsed.select(RECORD, F.coalesce(F.col(FAULT), fault, *checks).alias(FAULT), _data(one, columns).alias(DATA))


def _fault(reason: Reason, detail: str | Column) -> Column:
    return faulty(reason, F.lit(detail) if isinstance(detail, str) else detail, STAGE)


def _fields(columns: Sequence[ColumnPlan], type_of: Callable[[ColumnPlan], str]) -> str:
    return ", ".join(f"{_quoted(column.field)} {type_of(column)}" for column in columns)


def _is_decimal(column: ColumnPlan) -> bool:
    return column.wire.startswith("decimal")


def _read_as(column: ColumnPlan) -> str:
    # As a decimal, from_json would take "1,5" for 15 and round what has too many digits.
    return "variant" if _is_decimal(column) else column.wire


def _data(one: Column, columns: Sequence[ColumnPlan]) -> Column:
    if not any(map(_is_decimal, columns)):
        return one
    values = [
        (F.try_variant_get(one[column.field], "$", column.wire) if _is_decimal(column) else one[column.field]).alias(
            column.field
        )
        for column in columns
    ]
    return F.when(one.isNotNull(), F.struct(*values))


def _no_decimal(value: Column, column: ColumnPlan) -> Column:
    """A fault where the value is no number, or has more digits than the wire takes."""
    number, text = F.try_variant_get(value, "$", column.wire), value.cast("string")
    scale = int(column.wire.rpartition(",")[2].rstrip(")"))
    cut = F.length(F.regexp_extract(text, r"\.(\d*[1-9])", 1)) > scale
    lost = number.isNull() | cut | (number.cast("double") != F.try_variant_get(value, "$", "double"))
    kind = F.schema_of_variant(value)
    shown = F.when(kind == "STRING", F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)
    detail = _detail(F.lit(column.field), shown, F.lit(column.takes))
    return F.when(~kind.rlike("^(BIGINT|DECIMAL|DOUBLE|VOID)"), _fault(Reason.WRONG_TYPE, detail)).when(
        text.isNotNull() & lost, _fault(Reason.OUT_OF_RANGE, detail)
    )


def _detail(name: Column, text: Column, takes: Column) -> Column:
    return F.concat(name, F.lit(": "), F.substring(text, 1, 60), F.lit(" is not "), takes)


def _why_broken(text: Column, columns: Sequence[ColumnPlan]) -> Column:
    """Evaluated for rows that did not fit only, so it may read each of them again, in several ways."""
    broken = BROKEN + "_" * max((len(column.field) for column in columns), default=0)  # meets no field
    fitting = _fields((*columns, ColumnPlan(broken, broken, "string")), _read_as)
    read = {
        "whole": F.try_parse_json(text),
        "fitting": F.from_json(text, fitting, {**OPTIONS, "columnNameOfCorruptRecord": broken}),
        "values": F.from_json(text, "map<string, variant>"),
        "texts": F.from_json(text, "map<string, string>"),
    }
    every = F.struct(*(each.alias(name) for name, each in read.items()))
    return _once(every, lambda found: _reason(found, columns, found["fitting"][broken]))


def _once(value: Column, then: Callable[[Column], Column]) -> Column:
    """What `then` makes of a value that is worked out once, however often it is used there."""
    return F.get(F.transform(F.array(value), then), F.lit(0))


def _reason(read: Column, columns: Sequence[ColumnPlan], broken: Column) -> Column:
    kind = F.schema_of_variant(read["whole"])
    fault = (
        F.when(kind.isNull(), _fault(Reason.BROKEN, "the value is not JSON"))
        .when(
            ~kind.startswith("OBJECT"),
            _fault(Reason.NOT_OBJECT, F.concat(F.substring(kind, 1, 60), F.lit(" where an object is expected"))),
        )
        .when(broken.isNull(), _fault(Reason.BROKEN, "something follows the JSON object"))
    )
    return fault.otherwise(_once(_misfits(read, columns[:NAMED_IN_DETAIL]), _first_of)) if columns else fault


def _misfits(read: Column, columns: Sequence[ColumnPlan]) -> Column:
    """A fault for each field that is what its column does not take; one expression over all of them."""
    takes = F.lit([column.takes for column in columns])
    whole = F.lit([column.wire in ("int", "bigint") for column in columns])
    amiss = F.array(*(_amiss(read, column) for column in columns))

    def misfit(name: Column, number: Column) -> Column:
        value, text = read["values"][name], read["texts"][name]
        is_text = F.schema_of_variant(value) == "STRING"
        detail = _detail(name, F.when(is_text, F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text), takes[number])
        too_large = whole[number] & text.rlike(r"^-?\d+$") & ~is_text
        return F.when(
            text.isNotNull() & amiss[number],
            F.when(too_large, _fault(Reason.OUT_OF_RANGE, detail)).otherwise(_fault(Reason.WRONG_TYPE, detail)),
        )

    return F.array_compact(F.transform(F.lit([column.field for column in columns]), misfit))


def _amiss(read: Column, column: ColumnPlan) -> Column:
    if "<" not in column.wire:
        return read["fitting"][column.field].isNull()
    # What fits of a nested value is there in spite of what does not.
    inner = F.concat(F.lit('{"_":'), read["texts"][column.field], F.lit("}"))
    return F.from_json(inner, f"_ {column.wire}, {BROKEN} string", OPTIONS)[BROKEN].isNotNull()


def _first_of(misfits: Column) -> Column:
    first = F.get(misfits, F.lit(0))
    details = F.array_join(misfits["detail"], "; ")
    return F.when(first.isNull(), _fault(Reason.WRONG_TYPE, "a field is not what its column takes")).otherwise(
        F.struct(first["reason"].alias("reason"), details.alias("detail"), F.lit(STAGE).alias("stage"))
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
