"""JSON: each record is one JSON object. Spark parses it into native columns.

A number becomes text if the column is text. Nothing else is converted: "12" is not a number, 1.0 is not an integer, and
such a record is dead-lettered. NaN is read as a number, because Python writes it. If a key comes twice, the last value
counts. A value that is nested more than 200 levels deep is not read.

If no columns are declared, they follow the data, in the batch that brings them:

- A field with a hint has the hint's type from the beginning, and gets no new fields inside. A record with such a field
  is dead-lettered, unless the field is rescued.
- Integers are long, or decimal(38,0) beyond 64 bits. Numbers with a fraction or an exponent are double, and so are
  those of more than 38 digits.
- Booleans are boolean, and text is string. If every text of a new field is a date (2024-05-06), it is date. If every
  text is a time with a zone (2024-05-06T07:08:09Z), it is timestamptz. The event time stays text.
- A list is list<...> of the type that all its elements have in common. An object is struct<...> of its fields.
- A field that was only null, [] or {} so far gets no column yet. Nothing is lost without one.
- If 90 % of the values of a field have one kind, the field has that kind, and the other records are dead-lettered. If
  kinds are mixed more evenly, or mixed inside lists and objects, the column is string and holds JSON text.
- JSON text also holds: an object with a key that is empty or has a dot, or with two keys that differ only by case;
  everything below 20 levels; an object or list with more fields than `max_columns` leaves room for.
- A column has a readable name (see `names`), and its doc string has the key. Fields of objects keep their keys.
- A column gets a wider type if Iceberg can read the old files with it: int becomes long, float becomes double, and a
  decimal gets more digits. A record with any other value that does not fit is dead-lettered. So is a record with a
  value in a field that may not become a column, because the table has `max_columns` (fields inside objects count), or
  because its name is taken. A contract of the table can change both.
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
# Half of a surrogate pair. Spark would write it as "?", and can't find the types of an object with such a key.
HALF = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
SPACES = " \t\r\n"  # what JSON calls white space
LEVELS = 200  # a parser could go deeper, but Spark's description of the types has three levels for each of these
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BROKEN,
    "allowSingleQuotes": "false",
    "dateFormat": "yyyy-MM-dd",  # without it Spark reads a time as a date, and a number in quotes as days since 1970
    "maxNestingDepth": str(LEVELS),
}
WRAPPED = {**OPTIONS, "maxNestingDepth": str(LEVELS + 2)}
FOLLOWED = "something follows the JSON object"
NAMED_IN_DETAIL = 50  # how many columns the detail of a wrong type can name


def decode(rows: DataFrame, columns: Sequence[ColumnPlan], refused: Sequence[RefusedField] = ()) -> DataFrame:
    """Add the decoded fields, or a fault. A record with a value in a refused field has a fault as well."""
    parsed, one, fault = _parsed(rows, columns)
    checks = [_no_decimal(one[column.field], column) for column in columns if is_decimal(column)]
    if refused:
        checks.append(_no_column(_text(), refused))
    return parsed.select(RECORD, F.coalesce(F.col(FAULT), fault, *checks).alias(FAULT), _data(one, columns).alias(DATA))


def lenient(rows: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
    """As `decode`, but a value that does not fit its column is null in `_data`, and the fault is in `_misfit`."""
    text, why = _text(), F.col("_why")
    parsed, one, fault = _parsed(rows, columns)
    fits_not = why["reason"].isin(str(Reason.WRONG_TYPE), str(Reason.OUT_OF_RANGE))
    # Spark returns the fields that fit, but only if the text is not wrapped in a list. So read such rows again.
    whole = _fields(columns, _read_as) or f"{BROKEN} string"
    some = F.when(fits_not, F.from_json(text, whole, OPTIONS)).otherwise(one)
    # For such rows we have not checked yet whether anything follows the object.
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
    """The rows with one more column, the decoded object in it, and its fault."""
    text = _text()
    fields = _fields(columns, _read_as) or f"{BROKEN} string"
    parsed = rows.withColumn(
        "_parsed", F.from_json(_wrapped(text), f"_ array<struct<{fields}>>, {BROKEN} string", WRAPPED)
    )
    found, broken = F.col("_parsed")["_"], F.col("_parsed")[BROKEN]
    one = F.get(found, F.lit(0))  # unlike [0], this does not raise for an empty list
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
    # In a list, because from_json stops after the first value: `{"a":1}{"a":2}` would pass. With another object after
    # it, because a text that closes the list itself would pass too: `{"a":1}],"b":[2`.
    return F.concat(F.lit('{"_":['), text, F.lit(",{}]}"))


def field(path: Sequence[str]) -> Column:
    """The text of the field as it is written. For an object or a list that is its JSON."""
    return F.get_json_object(_text(), "$" + "".join(f"['{part}']" for part in path))


def _text() -> Column:
    return F.col(RECORD)["value"].cast("string")


def _is_blank(text: Column) -> Column:
    # Most texts begin with a brace; check that first, because trimming costs more.
    return ~text.startswith("{") & (F.btrim(text, F.lit(SPACES)) == "")


def _has_half(text: Column) -> Column:
    return (text.contains(r"\ud") | text.contains(r"\uD")) & text.rlike(HALF)


def _whole(text: Column) -> Column:
    # Unlike parse_json, from_json takes the same options as the columns.
    return F.from_json(text, "variant", OPTIONS)


def _fault(reason: Reason, detail: str | Column, told: str | Column = "") -> Column:
    return worded(reason, detail, STAGE) if isinstance(detail, str) else faulty(reason, detail, STAGE, told)


def _fields(columns: Sequence[ColumnPlan], type_of: Callable[[ColumnPlan], str]) -> str:
    return ", ".join(f"{quoted(column.field)} {type_of(column)}" for column in columns)


def is_decimal(column: ColumnPlan) -> bool:
    return column.wire.startswith("decimal")


def _read_as(column: ColumnPlan) -> str:
    # If the type were decimal, from_json would read "1,5" as 15, and round numbers with too many digits.
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
    """A fault if the value is not a number, or has more digits than the `wire` type takes."""
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
    """Why a text could not be read. It may parse the text several times, because few rows come here."""
    broken = BROKEN + "_" * max((len(column.field) for column in columns), default=0)  # longer than any field's name
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
    """Apply `then` to a value that Spark computes only once, however often `then` uses it."""
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
    """A fault for each field that does not fit its column, in one expression for all fields."""
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
    # A nested value is not null if only a part of it does not fit, so parse it again and look for that part.
    inner = F.concat(F.lit('{"_":'), read["texts"][column.field], F.lit("}"))
    return F.from_json(inner, f"_ {column.wire}, {BROKEN} string", OPTIONS)[BROKEN].isNotNull()


def _first_of(misfits: Column) -> Column:
    first = F.get(misfits, F.lit(0))
    every = {what: F.array_join(misfits[what], "; ") for what in ("detail", "told")}
    return F.when(first.isNull(), _fault(Reason.WRONG_TYPE, "a field is not what its column takes")).otherwise(
        first.withField("detail", every["detail"]).withField("told", every["told"])
    )


def _no_column(text: Column, refused: Sequence[RefusedField]) -> Column:
    """A fault for a value in a refused field. It parses the text again, but only batches with such fields need it."""
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
    """The first of the names that has a value in the object at this path, or null."""
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
    """An aggregate: the fields of all objects and their types, as text for `fields_of`; null if there is no object."""
    text = _text()
    objects = F.when(F.ltrim(text, F.lit(SPACES)).startswith("{") & ~_has_half(text), _whole(text))
    return F.nullif(F.schema_of_variant_agg(objects), F.lit("VOID"))


def fields_of(seen: str | None, rows: DataFrame | None = None) -> list[tuple[str, T.DataType]]:
    """The fields that were seen, with the narrowest types that take all their values.

    Values of several kinds have no type in common. Then it is variant, unless a look at `rows` shows a usual type.
    """
    whole = _kind(_tokens(seen or "VOID"))
    fields = [(field.name, field.dataType) for field in whole.fields] if isinstance(whole, T.StructType) else []
    mixed = [name for name, kind in fields if isinstance(kind, T.VariantType)]
    usual_types = usual(rows, mixed) if rows is not None and mixed else {}
    return [(name, usual_types.get(name, kind)) for name, kind in fields]


def usual(rows: DataFrame, names: Collection[str]) -> dict[str, T.DataType]:
    """For fields with values of several kinds, the type of nearly all values, if there is one.

    Without this, one broken record would turn a column of numbers into text for good.
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
    """The fields whose values are all dates, or all times with a zone, with the type that takes them."""
    entries = _entries(rows, names, "string").where(F.col("value").isNotNull())
    found = entries.groupBy("name").agg(*(F.bool_and(test(F.col("value"))) for test in (is_date, is_time))).collect()
    return {name: "date" if dates else "timestamptz" for name, dates, instants in found if dates or instants}


def _entries(rows: DataFrame, names: Collection[str], kind: str) -> DataFrame:
    """The named fields of all records, one row for each value. The expression is short for any number of names."""
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
    """Parse Spark's description of variants, such as OBJECT<a: ARRAY<BIGINT>>. Spark's parser fails on deep ones."""
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
