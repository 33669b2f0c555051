"""Times: of epoch numbers in some unit, and of ISO text, which is UTC if it has no zone.

Each way to read them is here twice. The functions on single values decide. Those on columns are fast, and give null for
everything that they are not sure of.
"""

import datetime as dt
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse_ingest.schema.times import (
    EPOCH,
    FIRST_S,
    ISO,
    LAST_S,
    MICROS,
    NUMBER,
    PER_SECOND,
    YEAR_1,
    YEAR_10000,
    in_calendar,
    iso_time,
)

DAY = 86_400 * MICROS
MOST_DIGITS = 18  # that always fit into 64 bits
INSTANT = pa.timestamp("us", "UTC")
# What Arrow reads as well. Of February it takes 28 days, because a wrong day would fail for the whole column.
_DAYS = r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_CLOCK = r"[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
_ZONED = rf"^\d{{4}}-{_DAYS}{_CLOCK}(?:Z|[+-](?:0\d|1[0-7]):?[0-5]\d)$"
_LOCAL = rf"^\d{{4}}-{_DAYS}(?:{_CLOCK})?$"
_WHOLE = r"^-?(?:0|[1-9]\d{0,17})$"
_SHORTEST = len("2024-05-06T07:08:09Z")  # a shorter text could have no minutes, and then Arrow knows more than we do

Instant = Callable[[Any], int | None]  # microseconds since 1970


# -- single values ----------------------------------------------------------------------------------------


def instant_of(kind: pa.DataType, unit: str, *, plausible: bool) -> Instant:
    """A function that finds the time of a value, which is an integer if the type is a date or a timestamp."""
    if pa.types.is_date(kind):
        return lambda value: in_calendar(value * DAY)
    if pa.types.is_timestamp(kind):
        return in_calendar
    if pa.types.is_integer(kind) and unit in PER_SECOND:
        return partial(epoch, unit=unit, plausible=plausible)
    if pa.types.is_string(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return lambda value: instant(str(value), unit, plausible=plausible)
    return lambda _: None


def epoch(number: int, unit: str, *, plausible: bool) -> int | None:
    per_second = PER_SECOND[unit]
    low, high = (FIRST_S, LAST_S) if plausible else (YEAR_1, YEAR_10000)
    return number * MICROS // per_second if low * per_second <= number < high * per_second else None


def instant(text: str, unit: str, *, plausible: bool = False) -> int | None:
    """The time of an epoch number in this unit, or of ISO text."""
    if unit not in PER_SECOND or not NUMBER.fullmatch(text):
        return iso_instant(text)
    number, per_second = Decimal(text), PER_SECOND[unit]
    low, high = (FIRST_S, LAST_S) if plausible else (YEAR_1, YEAR_10000)
    if not low * per_second <= number < high * per_second:
        return None
    exactly = Context(prec=len(text) + 10)
    micros = exactly.divide(exactly.multiply(number, Decimal(MICROS)), Decimal(per_second))
    return int(micros.to_integral_value(ROUND_FLOOR))


def iso_instant(text: str, *, local: bool = False) -> int | None:
    """The time of ISO text. With `local`, text that has a zone is none."""
    found = iso_time(text)
    return None if found is None or (local and found.has_zone) else found.micros


def day_of(text: str) -> int | None:
    """The days since 1970 of an ISO date. A number, because Python has no dates of the year 0."""
    if (found := ISO.fullmatch(text)) is None or found[4]:
        return None
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    later = 0 if year else 400  # after so many years, the calendar repeats
    try:
        return (dt.date(year + later, month, day) - EPOCH.date()).days - later * 146_097 // 400
    except ValueError:
        return None


# -- columns ----------------------------------------------------------------------------------------------


def instants(values: pa.Array, unit: str, *, plausible: bool = False) -> pa.Array:
    """The times of values. Null means: ask `instant_of`."""
    kind = values.type
    if pa.types.is_date(kind):
        return _calendar(pc.cast(pc.cast(values, pa.timestamp("us"), safe=False), pa.int64()))
    if pa.types.is_timestamp(kind):
        return _calendar(pc.cast(values, pa.int64()))
    if pa.types.is_string(kind):
        return _texts(values, unit, plausible=plausible)
    if unit in PER_SECOND and pa.types.is_floating(kind):
        return _fractions(pc.cast(values, pa.float64()), unit, plausible=plausible)
    if unit in PER_SECOND and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        whole = pc.cast(values, pa.int64()) if pa.types.is_integer(kind) else _whole(values)
        return epochs(whole, unit, plausible=plausible)
    return pa.nulls(len(values), INSTANT)


def epochs(numbers: pa.Array, unit: str, *, plausible: bool) -> pa.Array:
    per_second = PER_SECOND[unit]
    low, high = (FIRST_S, LAST_S) if plausible else (YEAR_1, YEAR_10000)
    # 64 bits of nanoseconds hold only the years 1678 to 2261. A little less, because we subtract below.
    low, high = max(low * per_second, -(2**63) + 10**4), min(high * per_second, 2**63 - 1)
    numbers = _between(numbers, low, high)
    if per_second <= MICROS:
        return pc.cast(pc.multiply(numbers, MICROS // per_second), INSTANT)
    finer = per_second // MICROS
    # Arrow divides towards zero, and a time before 1970 is rounded down like any other.
    down = pc.if_else(pc.less(numbers, 0), pc.subtract(numbers, finer - 1), numbers)
    return pc.cast(pc.divide(down, finer), INSTANT)


def _between(numbers: pa.Array, low: int, high: int) -> pa.Array:
    """The numbers from `low` up to `high`, and null for the others."""
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less(numbers, high))
    is_inside = pc.min(inside).as_py() is not False  # the smallest of no numbers is None
    return numbers if is_inside else pc.if_else(inside, numbers, pa.scalar(None, numbers.type))


def _fractions(numbers: pa.Array, unit: str, *, plausible: bool) -> pa.Array:
    """The times of floats. A float means the shortest decimal number that is rounded to it, down to microseconds."""
    per_second = PER_SECOND[unit]
    if per_second > MICROS:
        return pa.nulls(len(numbers), INSTANT)
    scale = float(MICROS // per_second)
    micros = pc.round(pc.multiply(numbers, scale))
    # Below 2**52 floats lie closer together than microseconds, so no other microsecond is rounded to the same float.
    sure = pc.and_(pc.less(pc.abs(micros), float(2**52)), pc.equal(pc.divide(micros, scale), numbers))
    whole = pc.cast(pc.if_else(sure, micros, pa.scalar(None, pa.float64())), pa.int64())
    return epochs(whole, "us", plausible=plausible)


def _whole(numbers: pa.Array) -> pa.Array:
    whole = pc.equal(pc.round(numbers), numbers)
    if numbers.type.precision - numbers.type.scale > MOST_DIGITS:
        limit = pa.scalar(Decimal(10**MOST_DIGITS), numbers.type)
        whole = pc.and_(whole, pc.less(pc.abs(numbers), limit))
    return pc.cast(pc.if_else(whole, numbers, pa.scalar(None, numbers.type)), pa.int64())


def _texts(texts: pa.Array, unit: str, *, plausible: bool) -> pa.Array:
    if (found := _utc(texts)) is not None:
        return found
    zoned = pc.cast(_like(texts, _ZONED), INSTANT)
    local = pc.assume_timezone(pc.cast(_like(texts, _LOCAL), pa.timestamp("us")), "UTC")
    found = _calendar(pc.cast(pc.coalesce(zoned, local), pa.int64()))
    if found.null_count == texts.null_count or unit not in PER_SECOND:
        return found
    return pc.coalesce(found, epochs(pc.cast(_like(texts, _WHOLE), pa.int64()), unit, plausible=plausible))


def _utc(texts: pa.Array) -> pa.Array | None:
    """The times, if all are in UTC and well written, as nearly all are. Arrow fails if one is not."""
    alike = pc.and_(pc.ends_with(texts, "Z"), pc.greater_equal(pc.binary_length(texts), _SHORTEST))
    if pc.min(alike).as_py() is False:
        return None
    try:
        return _calendar(pc.cast(pc.cast(texts, INSTANT), pa.int64()))
    except pa.ArrowInvalid:
        return None


def _like(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, texts.type))


def _calendar(micros: pa.Array) -> pa.Array:
    return pc.cast(_between(micros, YEAR_1 * MICROS, YEAR_10000 * MICROS), INSTANT)
