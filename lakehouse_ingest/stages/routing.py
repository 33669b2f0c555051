"""Chooses the table of each record by its topic and its type. A record that no entry takes has a fault.

A route is text in a column: the number of the entry in `streams.tables`, and the topic and the type if the entry's
template names them. So records with the same route go to the same table.
"""

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse_ingest.environment.spark_internals import java_packages
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import FAULT, RECORD, ROUTE, Reason
from lakehouse_ingest.settings import StreamSettings, TableSettings
from lakehouse_ingest.stages.arrow.routing import LONGEST_TYPE, NOT_KEPT, SEPARATOR, STAGE, Route, only_route
from lakehouse_ingest.stages.faults import faulty, worded

__all__ = ["NOT_KEPT", "SEPARATOR", "STAGE", "Route", "astray", "check", "only_route", "route"]

KIND = "_kind"  # text: the record's type, only until its route is known

Field = Callable[[Sequence[str]], Column]  # gives the text of a record's field, as its format reads it


def check(stream: StreamSettings, spark: SparkSession) -> None:
    """Refuse a pattern that Java does not take. The settings have checked it with Python, but Java will use it."""
    java = java_packages(spark)
    try:
        java.java.util.regex.Pattern.compile(stream.keep_types or "")
    except Py4JJavaError as refusal:
        raise SettingsRefused(
            f"`keep_types` is not a regular expression of Java: {stream.keep_types}; Java will use it, so write it in"
            " Java's syntax"
        ) from refusal


def route(rows: DataFrame, stream: StreamSettings, field: Field) -> DataFrame:
    """Add the route, which is null if no entry takes the record."""
    if found := only_route(stream):
        return rows.withColumn(ROUTE, F.lit(str(found)))
    topic, kind = F.col(RECORD)["topic"], F.col(KIND)
    taken = F.lit(None).cast("string")
    for number, table in reversed(list(enumerate(stream.tables))):
        taken = F.when(_takes(table, topic, kind), _written(number, table, topic, kind)).otherwise(taken)
    if stream.keep_types:
        taken = F.when(kind.isNotNull() & ~kind.rlike(stream.keep_types), NOT_KEPT).otherwise(taken)
    return _with_type(rows, stream.type_from, field).withColumn(ROUTE, taken).drop(KIND)


def astray(rows: DataFrame, stream: StreamSettings, field: Field) -> DataFrame:
    """Add a fault to records without a route, unless they have another fault already."""
    topic, kind = F.col(RECORD)["topic"], F.col(KIND)
    untaken = "no entry of `streams.tables` takes "
    unknown = faulty(Reason.NO_TABLE, F.concat(F.lit(f"{untaken}the topic "), topic), STAGE, f"{untaken}the topic")
    if stream.type_from:
        detail = F.concat(F.lit(f"{untaken}the topic "), topic, F.lit(" with the type "), F.substring(kind, 1, 60))
        untyped = worded(Reason.NO_TABLE, f"no type is found at {stream.type_from}", STAGE)
        typed = faulty(Reason.NO_TABLE, detail, STAGE, f"{untaken}the topic with this type")
        unknown = F.when(kind.isNull(), untyped).otherwise(typed)
    fault = F.coalesce(FAULT, unknown)
    return _with_type(rows, stream.type_from, field).withColumn(FAULT, fault).drop(KIND)


def _takes(table: TableSettings, topic: Column, kind: Column) -> Column:
    conditions = [topic.isin(*table.topics)] if table.topics else []
    if table.types:
        conditions.append(kind.isin(*table.types))
    if "{type}" in table.table:
        conditions.append(kind.isNotNull())
    return _all(conditions)


def _all(conditions: Sequence[Column]) -> Column:
    found = F.lit(True)
    for condition in conditions:
        found = found & F.coalesce(condition, F.lit(False))
    return found


def _written(number: int, table: TableSettings, topic: Column, kind: Column) -> Column:
    nothing = F.lit("")
    return F.concat_ws(
        SEPARATOR,
        F.lit(str(number)),
        topic if "{topic}" in table.table else nothing,
        kind if "{type}" in table.table else nothing,
    )


def _with_type(rows: DataFrame, type_from: str | None, field: Field) -> DataFrame:
    """Add the record's type as text, or null if it has none.

    It gets a column, or Spark would search the record again each time that an expression uses the type.
    """
    text = F.col(KIND)
    found = rows.withColumn(KIND, _type(type_from, field))
    # A JSON object or list is not a name, but a name may begin with a brace. A text that is longer than the name of any
    # topic is not a name either, and would stay in the metadata of each table.
    is_json = text.rlike(r"^[\[{]") & F.get_json_object(text, "$").isNotNull()
    named = F.is_valid_utf8(text) & F.length(text).between(1, LONGEST_TYPE) & ~is_json
    return found.withColumn(KIND, F.when(named, text))


def _type(type_from: str | None, field: Field) -> Column:
    record = F.col(RECORD)
    where, _, name = (type_from or "").partition(":")
    match where:
        case "key":
            return record["key"].cast("string")
        case "header":  # the last one of that name, as in Kafka's own clients
            named = F.filter(record["headers"], lambda header: header["key"] == name)
            return F.try_element_at(named, F.lit(-1))["value"].cast("string")
        case "field":
            return field(name.split("."))
    return F.lit(None).cast("string")
