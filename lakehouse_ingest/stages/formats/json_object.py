"""One JSON object a record, parsed by Spark in native columns.

A number becomes text where the column is text; nothing else is converted: "12" is not a number, 1.0 is
not an integer, and such a record is set aside. NaN is taken as a number, as Python writes it. Of a key that
comes twice the last value counts. What is nested more than 200 levels deep is not read.

Where no columns are declared they follow the data, in the batch that brings them:

- a field with a hint has the hint's type, from its first appearance on, and grows no fields within: a record with one
  is a dead letter, unless it is rescued;
- integers are long, beyond 64 bits decimal(38,0); numbers with a fraction or an exponent, or beyond 38 digits, double;
- booleans are boolean, text is string; a new field of the record whose every text is a date (2024-05-06) is date,
  and one whose every text is a time with its zone (2024-05-06T07:08:09Z) timestamptz; the event time stays text;
- a list is list<...> of what all its elements have in common, an object struct<...> of its fields;
- a field that has been only null, [] or {} has no column yet: nothing is lost without one;
- a field of the record that is of one kind in 90 % of its values has that kind, and the other records become dead
  letters; where kinds are mixed more evenly, or mixed within lists and objects, it is string: JSON text;
- JSON text as well are an object with an empty key, one with a dot, or two that differ only by case, whatever lies
  below 20 levels, and an object or list with more fields than `max_columns` leaves room for;
- a column has a readable name (see `names`), its doc string the key; fields of objects keep their keys as names;
- a column takes a wider type where Iceberg reads the old files as one: int becomes long, float double, a decimal gets
  digits. Any other value that does not fit it is a dead letter, and so is a record with a value in a field that may get
  no column: the table has `max_columns`, those within objects counted, or its name is taken. Unless the table's
  contract says otherwise.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.environment.spark_names import quoted
from lakehouse_ingest.records import DATA, FAULT, MISFIT, RAW, RECORD, Reason
from lakehouse_ingest.schema.column_types import DEEPEST
from lakehouse_ingest.schema.columns import ColumnPlan, RefusedField
from lakehouse_ingest.stages.faults import faulty, misfit_told, worded
from lakehouse_ingest.stages.shaping import USUAL_SHARE, is_date, is_time

STAGE = "decode"
BROKEN = "_broken"
# One half of a pair that stands for a character beyond 16 bits, alone: it lands as "?", and Spark can't tell the
# types of an object with such a key.
HALF = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
SPACES = " \t\r\n"  # to JSON
LEVELS = 200  # a parser's stack goes deeper, but Spark describes what it has seen in JSON of three levels for one
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BROKEN,
    "allowSingleQuotes": "false",
    "dateFormat": "yyyy-MM-dd",  # without it a time is a date as well, and a number in quotes one since 1970
    "maxNestingDepth": str(LEVELS),
}
WRAPPED = {**OPTIONS, "maxNestingDepth": str(LEVELS + 2)}
FOLLOWED = "something follows the JSON object"
NAMED_IN_DETAIL = 50  # columns that the detail of a wrong type looks at; it is evaluated for such rows only


def decode(rows: DataFrame, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = ()) -> DataFrame:
    """Adds the decoded fields, or a fault; one for each record with a value in a field that is refused."""
    parsed, one, fault = _parsed(rows, columns)
    checks = [_no_decimal(one[column.field], column) for column in columns if is_decimal(column)]
    if refused:
        checks.append(_no_column(_text(), refused))
    return parsed.select(RECORD, F.coalesce(F.col(FAULT), fault, *checks).alias(FAULT), _data(one, columns).alias(DATA))


def lenient(rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
    """As `decode`; where a value does not fit its column `_data` has null, and the fault is in `_misfit`."""
    text, why = _text(), F.col("_why")
    parsed, one, fault = _parsed(rows, columns)
    fits_not = why["reason"].isin(str(Reason.WRONG_TYPE), str(Reason.OUT_OF_RANGE))
    # What fits is read beside what does not, though only without what the whole text is wrapped in.
    whole = _fields(columns, _read_as) or f"{BROKEN} string"
    some = F.when(fits_not, F.from_json(text, whole, OPTIONS)).otherwise(one)
    # Of what does not fit nobody has asked yet whether something follows it.
    alone = F.size(F.from_json(_wrapped(text), "_ array<variant>", WRAPPED)["_"]) == 2  # noqa: PLR2004
    more = F.when(fits_not & ~F.coalesce(alone, F.lit(False)), _fault(Reason.BROKEN, FOLLOWED))
    found = parsed.withColumn("_why", fault).withColumn("_why", F.coalesce(more, why)).withColumn("_one", some)
    one = F.col("_one")
    lost = [_no_decimal(one[column.field], column) for column in columns if is_decimal(column)]
    return found.select(
        RECORD,
        F.coalesce(F.col(FAULT), F.when(~fits_not, why)).alias(FAULT),
        F.coalesce(F.when(fits_not, why), *lost).alias(MISFIT),
        _data(one, columns, leniently=True).alias(DATA),
        F.when(why.isNull() | fits_not, F.try_variant_get(_whole(text), "$", "map<string, variant>")).alias(RAW),
    )


def _parsed(rows: DataFrame, columns: Sequence[ColumnPlan]) -> tuple[DataFrame, Column, Column]:
    """With a column more; the decoded object in it, and what is wrong with it."""
    text = _text()
    fields = _fields(columns, _read_as) or f"{BROKEN} string"
    parsed = rows.withColumn(
        "_parsed", F.from_json(_wrapped(text), f"_ array<struct<{fields}>>, {BROKEN} string", WRAPPED)
    )
    found, broken = F.col("_parsed")["_"], F.col("_parsed")[BROKEN]
    one = F.get(found, F.lit(0))  # unlike [0] it does not raise on an empty list
    fault = (
        F.when(text.isNull() | _is_blank(text), _fault(Reason.EMPTY, "the value is empty"))
        .when(~F.is_valid_utf8(text), _fault(Reason.NOT_TEXT, "the value is not UTF-8"))
        .when(_has_half(text), _fault(Reason.NOT_TEXT, "half a character, such as \\ud83d without what follows"))
        .when(broken.isNotNull(), _why_broken(text, columns))
        .when(F.size(found) != 2, _fault(Reason.BROKEN, "several JSON values in one record"))  # noqa: PLR2004
        .when(one.isNull(), _fault(Reason.NOT_OBJECT, "null where an object is expected"))
    )
    return parsed, one, fault


def _wrapped(text: Column) -> Column:
    # Within a list, because from_json stops after the first value it finds: `{"a":1}{"a":2}` would pass. With one
    # more behind it, because what closes the list itself would pass as well: `{"a":1}],"b":[2`.
    return F.concat(F.lit('{"_":['), text, F.lit(",{}]}"))


def field(path: Sequence[str]) -> Column:
    """As it is written: of an object or a list its JSON."""
    return F.get_json_object(_text(), "$" + "".join(f"['{part}']" for part in path))


def _text() -> Column:
    return F.col(RECORD)["value"].cast("string")


def _is_blank(text: Column) -> Column:
    # What begins as an object does not have to be trimmed to be known.
    return ~text.startswith("{") & (F.btrim(text, F.lit(SPACES)) == "")


def _has_half(text: Column) -> Column:
    return (text.contains(r"\ud") | text.contains(r"\uD")) & text.rlike(HALF)


def _whole(text: Column) -> Column:
    # Unlike parse_json, by the same options that the columns are read with.
    return F.from_json(text, "variant", OPTIONS)


def _fault(reason: Reason, detail: str | Column, told: str | Column = "") -> Column:
    return worded(reason, detail, STAGE) if isinstance(detail, str) else faulty(reason, detail, STAGE, told)


def _fields(columns: Sequence[ColumnPlan], type_of: Callable[[ColumnPlan], str]) -> str:
    return ", ".join(f"{quoted(column.field)} {type_of(column)}" for column in columns)


def is_decimal(column: ColumnPlan) -> bool:
    return column.wire.startswith("decimal")


def _read_as(column: ColumnPlan) -> str:
    # As a decimal, from_json would take "1,5" for 15 and round what has too many digits.
    return "variant" if is_decimal(column) else column.wire


def _data(one: Column, columns: Sequence[ColumnPlan], *, leniently: bool = False) -> Column:
    if not any(map(is_decimal, columns)):
        return one
    values = [
        (_decimal(one[column.field], column, leniently) if is_decimal(column) else one[column.field]).alias(
            column.field
        )
        for column in columns
    ]
    return F.when(one.isNotNull(), F.struct(*values))


def _decimal(value: Column, column: ColumnPlan, leniently: bool) -> Column:  # noqa: FBT001
    number = F.try_variant_get(value, "$", column.wire)
    return F.when(_no_decimal(value, column).isNull(), number) if leniently else number


def _no_decimal(value: Column, column: ColumnPlan) -> Column:
    """A fault where the value is no number, or has more digits than the wire takes."""
    number, text = F.try_variant_get(value, "$", column.wire), value.cast("string")
    scale = int(column.wire.rpartition(",")[2].rstrip(")"))
    cut = F.length(F.regexp_extract(text, r"\.(\d*[1-9])", 1)) > scale
    lost = number.isNull() | cut | (number.cast("double") != F.try_variant_get(value, "$", "double"))
    kind = F.schema_of_variant(value)
    shown = F.when(kind == "STRING", F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)
    wrong = _detail(F.lit(column.field), shown, F.lit(column.takes)), misfit_told(column)
    return F.when(~kind.rlike("^(BIGINT|DECIMAL|DOUBLE|VOID)"), _fault(Reason.WRONG_TYPE, *wrong)).when(
        text.isNotNull() & lost, _fault(Reason.OUT_OF_RANGE, *wrong)
    )


def _detail(name: Column, text: Column, takes: Column) -> Column:
    return F.concat(name, F.lit(": "), F.substring(text, 1, 60), F.lit(" is not "), takes)


def _why_broken(text: Column, columns: Sequence[ColumnPlan]) -> Column:
    """Evaluated for rows that did not fit only, so it may read each of them again, in several ways."""
    broken = BROKEN + "_" * max((len(column.field) for column in columns), default=0)  # meets no field
    fitting = _fields((*columns, ColumnPlan(broken, broken, "string")), _read_as)
    read = {
        "whole": _whole(text),
        "fitting": F.from_json(text, fitting, {**OPTIONS, "columnNameOfCorruptRecord": broken}),
        "values": F.from_json(text, "map<string, variant>", OPTIONS),
        "texts": F.from_json(text, "map<string, string>", OPTIONS),
        "deep": F.length(text) - F.length(F.translate(text, "[{", "")) > LEVELS,
    }
    every = F.struct(*(each.alias(name) for name, each in read.items()))
    return _once(every, lambda found: _reason(found, columns, found["fitting"][broken]))


def _once(value: Column, then: Callable[[Column], Column]) -> Column:
    """What `then` makes of a value that is worked out once, however often it is used there."""
    return F.get(F.transform(F.array(value), then), F.lit(0))


def _reason(read: Column, columns: Sequence[ColumnPlan], broken: Column) -> Column:
    kind = F.schema_of_variant(read["whole"])
    fault = (
        F.when(kind.isNull() & read["deep"], _fault(Reason.BROKEN, f"not JSON, or more than {LEVELS} levels deep"))
        .when(kind.isNull(), _fault(Reason.BROKEN, "the value is not JSON"))
        .when(
            ~kind.startswith("OBJECT"),
            _fault(
                Reason.NOT_OBJECT,
                F.concat(F.substring(kind, 1, 60), F.lit(" where an object is expected")),
                "no object where one is expected",
            ),
        )
        .when(broken.isNull(), _fault(Reason.BROKEN, FOLLOWED))
    )
    return fault.otherwise(_once(_misfits(read, columns[:NAMED_IN_DETAIL]), _first_of)) if columns else fault


def _misfits(read: Column, columns: Sequence[ColumnPlan]) -> Column:
    """A fault for each field that is what its column does not take; one expression over all of them."""
    takes, told = (F.lit([said_of(column) for column in columns]) for said_of in (lambda it: it.takes, misfit_told))
    whole = F.lit([column.wire in ("int", "bigint") for column in columns])
    amiss = F.array(*(_amiss(read, column) for column in columns))

    def misfit(name: Column, number: Column) -> Column:
        value, text = read["values"][name], read["texts"][name]
        is_text = F.schema_of_variant(value) == "STRING"
        shown = F.when(is_text, F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)
        wrong = _detail(name, shown, takes[number]), told[number]
        too_large = whole[number] & text.rlike(r"^-?\d+$") & ~is_text
        return F.when(
            text.isNotNull() & amiss[number],
            F.when(too_large, _fault(Reason.OUT_OF_RANGE, *wrong)).otherwise(_fault(Reason.WRONG_TYPE, *wrong)),
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
    every = {what: F.array_join(misfits[what], "; ") for what in ("detail", "told")}
    return F.when(first.isNull(), _fault(Reason.WRONG_TYPE, "a field is not what its column takes")).otherwise(
        first.withField("detail", every["detail"]).withField("told", every["told"])
    )


def _no_column(text: Column, refused: Sequence[RefusedField]) -> Column:
    """Read again for this alone, and only in batches that bring such a field."""
    groups: dict[tuple[tuple[str | None, ...], str], list[str]] = defaultdict(list)
    for each in refused:
        groups[each.within, each.why].append(each.name)

    def fault(whole: Column) -> Column:
        found = []
        for (within, why), names in groups.items():
            name = _first_held(whole, within, names)
            path = "".join("[]." if key is None else f"{key}." for key in within).replace(".[]", "[]")
            detail = F.concat(F.lit(path), F.substring(name, 1, 60), F.lit(f": {why}"))
            found.append(F.when(name.isNotNull(), _fault(Reason.NO_COLUMN, detail, f"a field: {why}")))
        return F.coalesce(*found)

    return _once(_whole(text), fault)


def _first_held(value: Column, within: Sequence[str | None], names: Sequence[str]) -> Column:
    """The first of these names under which the object that lies there holds a value, or null."""
    if within and within[0] is None:
        elements = F.coalesce(
            F.try_variant_get(value, "$", "array<variant>"),
            F.map_values(F.try_variant_get(value, "$", "map<string, variant>")),
        )
        held = F.transform(elements, lambda element: _first_held(element, within[1:], names))
        return F.get(F.array_compact(held), F.lit(0))
    fields = F.try_variant_get(value, "$", "map<string, variant>")
    if within:
        return _first_held(F.try_element_at(fields, F.lit(within[0])), within[1:], names)
    held = F.map_filter(fields, lambda name, field: name.isin(names) & field.isNotNull() & ~F.is_variant_null(field))
    return F.get(F.map_keys(held), F.lit(0))


# -- what the records hold --------------------------------------------------------------------------------


def seen() -> Column:
    """An aggregate: the fields of all objects and their types, as a text for `fields_of`; null without an object."""
    text = _text()
    objects = F.when(F.ltrim(text, F.lit(SPACES)).startswith("{") & ~_has_half(text), _whole(text))
    return F.nullif(F.schema_of_variant_agg(objects), F.lit("VOID"))


def fields_of(seen: str | None, rows: DataFrame | None = None) -> list[tuple[str, T.DataType]]:
    """The fields that were seen, with the narrowest types that take all their values.

    Where kinds are mixed there is none in common: variant, unless `rows`, looked at again, tell a usual one.
    """
    whole = _kind(_tokens(seen or "VOID"))
    fields = [(field.name, field.dataType) for field in whole.fields] if isinstance(whole, T.StructType) else []
    mixed = [name for name, kind in fields if isinstance(kind, T.VariantType)]
    told = usual(rows, mixed) if rows is not None and mixed else {}
    return [(name, told.get(name, kind)) for name, kind in fields]


def usual(rows: DataFrame, names: Collection[str]) -> dict[str, T.DataType]:
    """Of fields of mixed kinds the type of the usual one, if nearly all values are of it.

    Or one broken record would turn a column of numbers into text for good.
    """
    described = F.schema_of_variant("value")
    word = F.regexp_extract(described, r"^[A-Z]+", 0)
    kind = F.when(word.isin("BIGINT", "DECIMAL", "DOUBLE"), "NUMBER").otherwise(word)
    counted = (
        _entries(rows, names, "variant")
        .where(described != "VOID")
        .groupBy("name", kind.alias("kind"))
        .agg(F.count("*").alias("count"), F.schema_of_variant_agg("value").alias("type"))
        .collect()
    )
    totals: Counter[str] = Counter()
    for row in counted:
        totals[row["name"]] += row["count"]
    return {
        row["name"]: _kind(_tokens(row["type"])) for row in counted if row["count"] >= USUAL_SHARE * totals[row["name"]]
    }


def times(rows: DataFrame, names: Collection[str]) -> dict[str, str]:
    """The fields whose every value is a date, or a time with its zone; with the type that takes them."""
    entries = _entries(rows, names, "string").where(F.col("value").isNotNull())
    told = entries.groupBy("name").agg(*(F.bool_and(test(F.col("value"))) for test in (is_date, is_time))).collect()
    return {name: "date" if dates else "timestamptz" for name, dates, instants in told if dates or instants}


def _entries(rows: DataFrame, names: Collection[str], kind: str) -> DataFrame:
    """Of all records the named fields, a row each: however many names, the question stays as short."""
    text = _text()
    fields = F.when(~_has_half(text), F.from_json(text, f"map<string, {kind}>", OPTIONS))
    return rows.select(F.explode(fields).alias("name", "value")).where(F.col("name").isin(list(names)))


TOKEN = re.compile(r"`(?:[^`]|``)*`|\w+(?:\([\d, ]*\))?|[<>,:]")
SCALARS: dict[str, T.DataType] = {
    "VOID": T.NullType(),
    "BOOLEAN": T.BooleanType(),
    "BIGINT": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "VARIANT": T.VariantType(),
}


def _tokens(described: str) -> Iterator[str]:
    return (found[0] for found in TOKEN.finditer(described))


def _kind(tokens: Iterator[str], level: int = -1) -> T.DataType:
    """What Spark says of variants, such as OBJECT<a: ARRAY<BIGINT>>. Its own parser would fail on deep ones."""
    word = next(tokens)
    if word in ("OBJECT", "ARRAY") and level >= DEEPEST:
        return _skipped(tokens)
    if word == "ARRAY":
        next(tokens)
        element = _kind(tokens, level + 1)
        next(tokens)
        return T.ArrayType(element)
    if word == "OBJECT":
        return T.StructType([T.StructField(name, kind) for name, kind in _object(tokens, level + 1)])
    if word.startswith("DECIMAL"):
        return T.DecimalType(38, 0) if re.search(r",\s*0\)", word) else T.DoubleType()
    return SCALARS.get(word, T.StringType())


def _object(tokens: Iterator[str], level: int) -> Iterator[tuple[str, T.DataType]]:
    next(tokens)
    while (name := next(tokens)) != ">":
        if name != ",":
            next(tokens)
            yield (name[1:-1].replace("``", "`") if name[0] == "`" else name), _kind(tokens, level)


def _skipped(tokens: Iterator[str]) -> T.DataType:
    level = 0
    for word in tokens:
        level += (word == "<") - (word == ">")
        if not level:
            break
    return T.StringType()
