"""Single values as columns take them: one function for each type, which never converts what could be a mistake."""

import binascii
import datetime as dt
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from math import isinf
from struct import pack, unpack
from typing import Any

import pyarrow as pa

from lakehouse_ingest.records import Reason
from lakehouse_ingest.schema.arrow_types import MOST_DIGITS, wire_type
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.schema.times import YEAR_1, YEAR_10000
from lakehouse_ingest.stages.event_time import day_of, instant, iso_instant
from lakehouse_ingest.stages.records import Real
from lakehouse_ingest.stages.trees import NUMBERS, plain_text

DAY_S = 86_400
BITS = {pa.int32(): 31, pa.int64(): 63}

# Read a value: what Arrow takes, or why it does not fit. A function for single values, so types would say too little.
Read = Callable[[Any], Any]
Fit = Callable[[Any, Any], Any]
Misfit = Callable[[Any, Any, Reason], Any]


def column_leaf(column: ColumnPlan, kind: pa.DataType, misfit: Misfit) -> Fit:
    """For a whole column, whose wire type may take more than the column."""
    wire = wire_type(column)
    if pa.types.is_string(wire):
        return lambda value, _: plain_text(value)
    if pa.types.is_date(kind):
        return _leaf(_any_day, misfit)
    return inner_leaf(wire, misfit)


def inner_leaf(kind: Any, misfit: Misfit) -> Fit:  # noqa: PLR0911 - one for each kind of type
    """For a value within an object or a list. Nothing checks it later."""
    if pa.types.is_string(kind):
        return lambda value, _: plain_text(value)
    if kind in BITS:
        return _whole(BITS[kind], misfit)
    if pa.types.is_floating(kind):
        return _leaf(_double if kind == pa.float64() else _float, misfit)
    if pa.types.is_decimal(kind):
        return _leaf(_decimal(kind.precision, kind.scale), misfit)
    if pa.types.is_timestamp(kind):
        return _leaf(_instant if kind.tz else _local, misfit)
    if pa.types.is_boolean(kind):
        return _leaf(_boolean, misfit)
    return _leaf(_day if pa.types.is_date(kind) else _binary, misfit)


def wider_of(kind: Any) -> Callable[[Any], bool] | None:
    """A test for values that a wider type would take; None if no wider type may follow this one."""
    if kind == pa.int32():
        return lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63
    if kind == pa.float32():
        return lambda value: isinstance(_double(value), float)
    if pa.types.is_decimal(kind) and kind.precision < MOST_DIGITS:
        return lambda value: isinstance(_decimal(MOST_DIGITS, kind.scale)(value), Decimal)
    return None


def exactly(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """The number with so many digits; None if that would lose any."""
    try:
        found = number.quantize(Decimal((0, (1,), -scale)), context=Context(prec=precision))
    except InvalidOperation:
        return None
    return found if found == number else None


def _leaf(read: Read, misfit: Misfit) -> Fit:
    def fit(value: Any, found: Any) -> Any:
        done = read(value)
        return misfit(value, found, done) if isinstance(done, Reason) else done

    return fit


def _whole(bits: int, misfit: Misfit) -> Fit:
    low, high = -(1 << bits), (1 << bits) - 1

    def fit(value: Any, found: Any) -> Any:
        if type(value) is not int:  # `true` is an instance of it
            return misfit(value, found, Reason.WRONG_TYPE)
        return value if low <= value <= high else misfit(value, found, Reason.OUT_OF_RANGE)

    return fit


def _double(value: Any) -> float | Reason:
    if type(value) not in NUMBERS:
        return Reason.WRONG_TYPE
    try:
        number = float(value)
    except OverflowError:
        return Reason.OUT_OF_RANGE
    # JSON has no infinity, so it comes from a number that is too large. NaN is a number, because Python writes it.
    return Reason.OUT_OF_RANGE if isinf(number) else number


def _float(value: Any) -> float | Reason:
    number = _double(value)
    try:
        return number if isinstance(number, Reason) else float(*unpack("<f", pack("<f", number)))
    except OverflowError:
        return Reason.OUT_OF_RANGE


def _decimal(precision: int, scale: int) -> Read:
    def read(value: Any) -> Decimal | Reason:
        if type(value) not in NUMBERS:
            return Reason.WRONG_TYPE
        try:
            number = Decimal(value.text if isinstance(value, Real) else value if isinstance(value, int) else str(value))
        except InvalidOperation:  # an exponent that is beyond even Python's decimals
            return Reason.OUT_OF_RANGE
        found = exactly(number, precision, scale) if number.is_finite() else None
        return Reason.OUT_OF_RANGE if found is None else found

    return read


def _boolean(value: Any) -> bool | Reason:
    return value if isinstance(value, bool) else Reason.WRONG_TYPE


def _any_day(value: Any) -> int | Reason:
    text = value.isoformat() if type(value) is dt.date else value
    found = day_of(text) if isinstance(text, str) else None
    return Reason.WRONG_TYPE if found is None else found


def _day(value: Any) -> int | Reason:
    found = _any_day(value)
    if isinstance(found, int) and not YEAR_1 <= found * DAY_S < YEAR_10000:
        return Reason.OUT_OF_RANGE
    return found


def _instant(value: Any) -> int | Reason:
    found = instant(plain_text(value), "us")
    return Reason.WRONG_TYPE if found is None else found


def _local(value: Any) -> int | Reason:
    text = value.isoformat() if isinstance(value, dt.datetime) else value
    found = iso_instant(text, local=True) if isinstance(text, str) else None
    return Reason.WRONG_TYPE if found is None else found


_SPACES = re.compile(r"[\x00-\x20]+")


def _binary(value: Any) -> bytes | Reason:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return Reason.WRONG_TYPE
    try:
        return binascii.a2b_base64(_SPACES.sub("", value), strict_mode=True)
    except ValueError:  # also for characters that are not ASCII
        return Reason.WRONG_TYPE
