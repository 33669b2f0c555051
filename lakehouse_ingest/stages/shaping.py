"""Turns decoded fields into the columns of a table: ranges, required fields, the event time, coordinates."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.records import DATA, FAULT, RECORD, RESCUED, SOURCE, Reason
from lakehouse_ingest.schema.columns import EVENT_TIME, ColumnPlan, TablePlan
from lakehouse_ingest.schema.layout import TIME_PARTS
from lakehouse_ingest.stages.faults import faulty, known_as, misfit_told

STAGE = "shape"
CHECKED = ("float", "double", "timestamptz", "date")  # types for which JSON has values that the column does not take
USUAL_SHARE = 0.9  # if so many values agree, the others are dead-lettered
# Within these years, the size of a number shows its unit.
FIRST_S, LAST_S = 631_152_000, 4_102_444_800  # 1990 to 2100
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # readers of the tables take only years from 1 to 9999
FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?\s?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
# Texts that make a column a date or a time: complete, with a zone, and no finer than microseconds.
DATE = r"^(?!0000)\d{4}-\d{2}-\d{2}\z"
ZONED = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}([.,]\d{1,6})?\s?(Z|[+-]\d{2}(:?\d{2})?)\z"


def shape(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """The table's columns, including `_source`, beside the record and its fault."""
    at = _event_time(plan)
    aside = plan.strict
    lenient = {each.name for each in plan.columns if aside and aside.rescues and not aside.refused((each.field,))}
    checks = [check for each in plan.columns if each.name not in lenient for check in _checks(each)]
    amiss = {
        each.name: F.coalesce(*found).isNotNull()
        for each in plan.columns
        if each.name in lenient and (found := _checks(each))
    }
    checks += [_no_number(each) for each in plan.columns if each.name in amiss and each.iceberg in ("float", "double")]
    if plan.event_time:
        checks.append(_event_time_check(plan, at))
    columns = [
        (F.when(~amiss[each.name], _value(each)) if each.name in amiss else _value(each)).alias(each.name)
        for each in plan.columns
        if each.name != EVENT_TIME
    ]
    if aside and aside.rescues:
        columns.append(_rescued(plan.columns, amiss).alias(RESCUED))
    return rows.select(
        RECORD,
        F.coalesce(F.col(FAULT), *checks).alias(FAULT) if checks else F.col(FAULT),
        *columns,
        at.alias(EVENT_TIME),
        *(F.date_format(at, TIME_PARTS[part]).alias(part) for part in plan.derived),
        coordinates().alias(SOURCE),
    )


def coordinates() -> Column:
    record = F.col(RECORD)
    return F.struct(
        record["topic"].alias("topic"),
        record["partition"].alias("partition"),
        record["offset"].alias("offset"),
        F.lit(0).alias("index"),  # one record, one row
        record["log"].alias("log"),
    )


def _value(column: ColumnPlan) -> Column:
    value = F.col(DATA)[column.field]
    if column.iceberg == "timestamptz":
        return _instant(value, "us")
    return value if column.wire == column.spark else value.try_cast(column.spark)


def _rescued(columns: Sequence[ColumnPlan], amiss: Mapping[str, Column]) -> Column:
    """The rescued fields, and values that fail a check of their column, as JSON."""
    more = [
        F.when(amiss[each.name], F.struct(F.lit(each.field).alias("key"), _as_read(each).alias("value")))
        for each in columns
        if each.name in amiss
    ]
    found = F.coalesce(F.col(RESCUED), F.map_from_entries(F.array().cast("array<struct<key: string, value: variant>>")))
    if more:
        added = F.map_from_entries(F.array_compact(F.array(*more)))
        # A transform may have filled a field that was rescued before; the map must not have its key twice.
        found = F.map_concat(F.map_filter(found, lambda name, _: ~F.map_contains_key(added, name)), added)
    return F.when(F.size(found) > 0, F.to_json(found))


def _as_read(column: ColumnPlan) -> Column:
    value = F.col(DATA)[column.field]
    return (value.cast("string") if column.iceberg == "date" else value).cast("variant")


def _no_number(column: ColumnPlan) -> Column:
    """A fault for infinity. JSON has none, so the number was too large. The dead-letter record keeps it."""
    value = F.col(DATA)[column.field]
    detail, told = (f"{name}: the number is too large" for name in (column.field, known_as(column.field)))
    return F.when(F.abs(value) == F.lit(float("inf")), faulty(Reason.OUT_OF_RANGE, F.lit(detail), STAGE, told))


def _checks(column: ColumnPlan) -> Sequence[Column]:
    """The checks of a column: each is a fault or null."""
    kind = column.iceberg
    if not column.required and column.low is None and kind not in CHECKED and not kind.startswith("decimal"):
        return []  # first of all, because for a thousand columns even building the expressions takes seconds
    value = F.col(DATA)[column.field]
    text = value.cast("string")
    if column.wire.startswith("decimal") and not column.wire.endswith(",0)"):
        text = F.rtrim(F.rtrim(text, F.lit("0")), F.lit("."))
    detail = F.concat(F.lit(f"{column.field}: "), F.substring(text, 1, 60), F.lit(f" is not {column.takes}"))
    told = misfit_told(column)
    checks = []
    if column.required:
        checks.append(F.when(value.isNull(), _missing(Reason.MISSING, column.field)))
    if column.low is not None:
        outside = (value < _exactly(column.low)) | (value > _exactly(column.high))
        checks.append(F.when(outside, faulty(Reason.OUT_OF_RANGE, detail, STAGE, told)))
    if kind.startswith("decimal"):
        lost = value.isNotNull() & ~F.coalesce(value.try_cast(column.spark) == value, F.lit(False))
        checks.append(F.when(lost, faulty(Reason.OUT_OF_RANGE, detail, STAGE, told)))
    elif kind in ("float", "double"):
        # JSON has no infinity, so it comes from a number that is too large for the type.
        infinite = F.abs(value) == F.lit(float("inf"))
        checks.append(F.when(infinite, faulty(Reason.OUT_OF_RANGE, detail, STAGE, told)))
    elif kind == "date":
        first, last = (F.lit(day).cast("date") for day in (FIRST_DAY, LAST_DAY))
        checks.append(F.when(~value.between(first, last), faulty(Reason.OUT_OF_RANGE, detail, STAGE, told)))
    elif kind == "timestamptz" and column.name != EVENT_TIME:
        checks.append(
            F.when(value.isNotNull() & _value(column).isNull(), faulty(Reason.WRONG_TYPE, detail, STAGE, told))
        )
    return checks


def _exactly(number: int | None) -> Column:
    # py4j can't pass whole numbers of more than 64 bits.
    return F.lit(Decimal(number)) if number is not None and number.bit_length() > 63 else F.lit(number)  # noqa: PLR2004


def _event_time(plan: TablePlan) -> Column:
    if plan.event_time is None:
        return F.col(RECORD)["timestamp"]
    value, plausible = F.col(DATA)[plan.event_time], not plan.unit_was_given
    whole = any(column.field == plan.event_time and column.wire in ("int", "bigint") for column in plan.columns)
    if whole and plan.unit in PER_SECOND:
        return _epoch(value, plan.unit, plausible=plausible)
    return _instant(value, plan.unit, plausible=plausible)


def _event_time_check(plan: TablePlan, at: Column) -> Column:
    assert plan.event_time
    text, wrong = F.col(DATA)[plan.event_time].cast("string"), f" is no time in {plan.unit}"
    detail = F.concat(F.lit(f"{plan.event_time}: "), F.substring(text, 1, 60), F.lit(wrong))
    no_time = faulty(Reason.EVENT_TIME, detail, STAGE, f"{known_as(plan.event_time)}{wrong}")
    missing = _missing(Reason.EVENT_TIME, plan.event_time)
    return F.when(at.isNull(), F.when(text.isNull(), missing).otherwise(no_time))


def _missing(reason: Reason, field: str) -> Column:
    return faulty(reason, F.lit(f"{field} is missing"), STAGE, f"{known_as(field)} is missing")


def _epoch(number: Column, unit: str, *, plausible: bool) -> Column:
    """As `_instant`, but for whole numbers only. Without text and decimals it costs a tenth."""
    per_second = PER_SECOND[unit]
    low, high = (FIRST_S, LAST_S) if plausible else (YEAR_1, YEAR_10000)
    # 64 bits of nanoseconds hold only the years 1678 to 2261.
    low, high = max(low * per_second, -(2**63)), min(high * per_second, 2**63 - 1)
    inside = (number >= F.lit(low)) & (number < F.lit(high))
    if per_second <= 10**6:
        micros = number.cast("bigint") * (10**6 // per_second)
    else:
        finer = F.lit(per_second // 10**6)
        micros = F.call_function("div", number - F.pmod(number, finer), finer)
    return F.when(inside, F.timestamp_micros(micros))


def _instant(value: Column, unit: str, *, plausible: bool = False) -> Column:
    """The time of an epoch number in `unit`, or of ISO text, which is UTC if it has no zone. Null for anything else."""
    text = value.cast("string")
    written = F.try_to_timestamp(F.translate(text, ",", "."))
    readable = (written >= F.timestamp_seconds(F.lit(YEAR_1))) & (written < F.timestamp_seconds(F.lit(YEAR_10000)))
    written = F.when(text.rlike(ISO), F.when(readable, written))
    if unit not in PER_SECOND:
        return written
    per_second = PER_SECOND[unit]
    number = text.try_cast("decimal(38,9)")
    low, high = (FIRST_S, LAST_S) if plausible else (YEAR_1, YEAR_10000)
    inside = (number >= _exactly(low * per_second)) & (number < _exactly(high * per_second))
    micros = F.floor(number * (10**6 // per_second) if per_second <= 10**6 else number / (per_second // 10**6))
    return F.when(number.isNotNull(), F.when(inside, F.timestamp_micros(micros.cast("bigint")))).otherwise(written)


def is_date(text: Column) -> Column:
    return text.rlike(DATE) & text.try_cast("date").isNotNull()


def is_time(text: Column) -> Column:
    return text.rlike(ZONED) & _instant(text, "iso").isNotNull()


def unit_of(rows: DataFrame, field: str) -> str | None:
    """The unit that nearly all plausible event times of these rows have; None if there are no event times."""
    text = F.col(DATA)[field].cast("string")
    number = text.try_cast("decimal(38,9)")
    counts = rows.where(F.col(FAULT).isNull()).select(
        *(
            F.count_if((number >= FIRST_S * per_second) & (number < LAST_S * per_second)).alias(unit)
            for unit, per_second in PER_SECOND.items()
        ),
        F.count_if(text.rlike(ISO) & number.isNull()).alias("iso"),
    )
    found = counts.collect()[0].asDict()
    iso = found.pop("iso")  # ISO text is read with any unit of numbers
    unit, most = max(found.items(), key=lambda each: each[1])
    if not most:
        return "iso" if iso else None
    if most < USUAL_SHARE * sum(found.values()):
        seen = " and like ".join(unit for unit, count in found.items() if count)
        raise SettingsRefused(f"the event times in {field} look like {seen}: set `event_time_unit` to one of them")
    return unit
