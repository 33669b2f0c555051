"""What every format promises. `spark` is a session like the pipeline's: with ANSI mode, which raises, and UTC."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse_ingest.environment.spark_names import quoted
from lakehouse_ingest.records import DATA, FAULT, MISFIT, RAW, RECORD, Reason, SourceIdentity
from lakehouse_ingest.schema.column_types import to_iceberg
from lakehouse_ingest.schema.columns import ColumnPlan, RefusedField, declared
from lakehouse_ingest.stages.faults import faulty
from lakehouse_ingest.stages.formats import Format, Lenient, infer
from lakehouse_ingest.stages.sources import RECORD_COLUMNS, envelope


@dataclass(frozen=True)
class Samples:
    """Values of the format, and what they say."""

    # With the fields that they hold: not all of them the same ones, at least one of them text.
    sound: Sequence[tuple[bytes, Mapping[str, Any]]]
    broken: Sequence[tuple[bytes | None, Reason]]
    misfit: tuple[bytes, str, str]  # with a field, and a type that its value is not of

    @property
    def sound_values(self) -> list[bytes | None]:
        return [value for value, _ in self.sound]

    @property
    def broken_values(self) -> list[bytes | None]:
        return [value for value, _ in self.broken]

    @property
    def reasons(self) -> list[str | None]:
        """Of the sound ones, and then of the broken ones."""
        return [*(None for _ in self.sound), *(str(reason) for _, reason in self.broken)]

    @property
    def of_few(self) -> str:
        """A field that some sound records have and others lack."""
        held = [{*fields} for _, fields in self.sound]
        few = held[0].union(*held) - held[0].intersection(*held)
        assert few, "the samples need a field that not all sound records have"
        return min(few)


def every_record_comes_out_once_and_as_it_was(form: Format, samples: Samples, spark: SparkSession) -> None:
    rows = _records(spark, [*samples.sound_values, *samples.broken_values])
    found = form.decode(rows, _columns(form, samples, spark))
    assert {*found.columns} == {RECORD, FAULT, DATA}, f"decode gives the columns {found.columns}"
    before = [row[RECORD] for row in _in_order(rows)]
    assert [row[RECORD] for row in _in_order(found)] == before, "decode drops, doubles or changes records"


def sound_records_have_their_fields_and_no_fault(form: Format, samples: Samples, spark: SparkSession) -> None:
    found = _in_order(form.decode(_records(spark, samples.sound_values), _columns(form, samples, spark)))
    for row, (value, fields) in zip(found, samples.sound, strict=True):
        assert row[FAULT] is None, f"{value!r} has the fault {row[FAULT]}"
        held = {name: each for name, each in row[DATA].asDict(recursive=True).items() if each is not None}
        assert held == fields, f"{value!r} decodes to {held}"


def broken_records_have_their_reason_and_their_neighbours_none(
    form: Format, samples: Samples, spark: SparkSession
) -> None:
    rows = _records(spark, [*samples.sound_values, *samples.broken_values])
    for columns in (_columns(form, samples, spark), []):
        faults = [row[FAULT] for row in _in_order(form.decode(rows, columns))]
        reasons = [fault and fault["reason"] for fault in faults]
        assert reasons == samples.reasons, f"with {len(columns)} columns the reasons are {reasons}"
        assert all(fault["detail"] and fault["stage"] for fault in faults if fault), "a fault lacks detail or stage"


def a_fault_that_is_there_stays(form: Format, samples: Samples, spark: SparkSession) -> None:
    earlier = faulty(Reason.NAME_TAKEN, F.lit("earlier"), "route")
    rows = _records(spark, [*samples.sound_values, *samples.broken_values]).withColumn(FAULT, earlier)
    found = _in_order(form.decode(rows, _columns(form, samples, spark)))
    assert {row[FAULT]["detail"] for row in found} == {"earlier"}, "decode covers what an earlier stage has found"


def a_value_that_its_column_does_not_take_is_a_fault(form: Format, samples: Samples, spark: SparkSession) -> None:
    value, field, kind = samples.misfit
    rows = _records(spark, [value, *samples.broken_values])
    first, *_ = _in_order(form.decode(rows, [declared(field, kind, required=False)]))
    found = first[FAULT] and first[FAULT]["reason"]
    assert found in (Reason.WRONG_TYPE, Reason.OUT_OF_RANGE), f"{value!r} as {field} {kind} has the reason {found}"


def a_value_in_a_refused_field_is_a_fault(form: Format, samples: Samples, spark: SparkSession) -> None:
    name = samples.of_few
    columns = [column for column in _columns(form, samples, spark) if column.field != name]
    found = _in_order(form.decode(_records(spark, samples.sound_values), columns, [RefusedField((), name, "no room")]))
    reasons = [row[FAULT] and row[FAULT]["reason"] for row in found]
    wanted = [str(Reason.NO_COLUMN) if name in fields else None for _, fields in samples.sound]
    assert reasons == wanted, f"with {name} refused the reasons are {reasons}"


def a_lenient_format_leaves_out_what_does_not_fit(form: Format, samples: Samples, spark: SparkSession) -> None:
    if not isinstance(form, Lenient):
        return
    value, field, kind = samples.misfit
    rows = _records(spark, [value, *samples.broken_values])
    first, *others = _in_order(form.lenient(rows, [declared(field, kind, required=False)]))
    found = first[MISFIT] and first[MISFIT]["reason"]
    assert first[FAULT] is None, f"{value!r} as {field} {kind} has the fault {first[FAULT]}"
    assert found in (Reason.WRONG_TYPE, Reason.OUT_OF_RANGE), f"{value!r} as {field} {kind} has the reason {found}"
    assert first[DATA][field] is None, f"{value!r} as {field} {kind} decodes to {first[DATA]}"
    assert field in first[RAW], f"of {value!r} only {first[RAW]} is there"
    reasons = [row[FAULT] and row[FAULT]["reason"] for row in others]
    wanted = [str(reason) for _, reason in samples.broken]
    assert reasons == wanted, f"of broken records the reasons are {reasons}"


def what_was_seen_is_told_by_group_and_of_nothing_is_nothing(
    form: Format, samples: Samples, spark: SparkSession
) -> None:
    rows = _records(spark, samples.sound_values)
    grouped = rows.groupBy(F.col(RECORD)["offset"].alias("group")).agg(form.seen().alias("seen")).orderBy("group")
    of_each = [_held(form.fields_of(row["seen"])) for row in grouped.collect()]
    wanted = [{*fields} for _, fields in samples.sound]
    assert of_each == wanted, f"of each record alone these fields are told: {of_each}"
    together = _held(infer(form, rows))
    assert together == wanted[0].union(*wanted), f"of all records together these fields are told: {together}"
    assert form.fields_of(None) == [], "of nothing some fields are told"


def a_field_is_told_as_text(form: Format, samples: Samples, spark: SparkSession) -> None:
    texts = {name for _, fields in samples.sound for name, each in fields.items() if isinstance(each, str)}
    assert texts, "the samples need a field of text"
    rows = _records(spark, samples.sound_values)
    for name in texts:
        found = [row["text"] for row in _in_order(rows.withColumn("text", form.field([name])))]
        wanted = [fields.get(name) for _, fields in samples.sound]
        assert found == wanted, f"the field {name} is told as {found}"


def nothing_raises_whatever_the_bytes_are(form: Format, samples: Samples, spark: SparkSession) -> None:
    rows = _records(spark, [*samples.broken_values, *samples.sound_values, bytes(range(256)), b"\x00", b"\xff\xfe"])
    columns = _columns(form, samples, spark)
    names = [column.field for column in columns]
    faults = [row[FAULT] for row in _in_order(form.decode(rows, columns)) if row[FAULT]]
    assert {fault["reason"] for fault in faults} <= {*map(str, Reason)}, "a reason is not in records.Reason"
    infer(form, rows)
    rows.select(form.field(names[:1])).collect()
    assert {*form.usual(rows, names)} <= {*names}, "usual tells of fields that were not asked for"
    times = form.times(rows, names)
    assert {*times} <= {*names}, "times tells of fields that were not asked for"
    assert {*times.values()} <= {"date", "timestamptz"}, f"times tells of {times}"


Check = Callable[[Format, Samples, SparkSession], None]
CHECKS: tuple[Check, ...] = (
    every_record_comes_out_once_and_as_it_was,
    sound_records_have_their_fields_and_no_fault,
    broken_records_have_their_reason_and_their_neighbours_none,
    a_fault_that_is_there_stays,
    a_value_that_its_column_does_not_take_is_a_fault,
    a_value_in_a_refused_field_is_a_fault,
    a_lenient_format_leaves_out_what_does_not_fit,
    what_was_seen_is_told_by_group_and_of_nothing_is_nothing,
    a_field_is_told_as_text,
    nothing_raises_whatever_the_bytes_are,
)


def _records(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """As a source gives them: of one partition, their offsets in the order given."""
    received = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    rows = [("events", 0, offset, received, None, value, None) for offset, value in enumerate(values)]
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in RECORD_COLUMNS.items())
    return envelope(spark.createDataFrame(rows, schema), SourceIdentity("suite", {"events": "1"}))


def _in_order(rows: DataFrame) -> list[Row]:
    return rows.orderBy(f"{RECORD}.offset").collect()


def _held(fields: Sequence[tuple[str, T.DataType]]) -> set[str]:
    """Those of which a value was seen."""
    return {name for name, kind in fields if to_iceberg(kind)}


def _columns(form: Format, samples: Samples, spark: SparkSession) -> list[ColumnPlan]:
    """Those that the sound records would be given."""
    fields = infer(form, _records(spark, samples.sound_values))
    return [ColumnPlan(name, name, text) for name, kind in fields if (text := to_iceberg(kind))]
