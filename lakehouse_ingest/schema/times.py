"""Times as records write them: epoch numbers, whose size shows their unit, and ISO 8601."""

import datetime as dt
import re
from typing import NamedTuple

# Within these years, the size of a number shows its unit.
FIRST_S, LAST_S = 631_152_000, 4_102_444_800  # 1990 to 2100
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # readers of the tables take only years from 1 to 9999
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MICROS = 10**6
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - zones are added and removed by hand
ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)?"
    r"\s?(Z|[+-](?:(?:0\d|1[0-7])(?::?[0-5]\d)?|18(?::?00)?))?)?",
    re.ASCII,
)
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
DIGITS_KEPT = 6  # a column keeps microseconds


class IsoTime(NamedTuple):
    """What an ISO text says."""

    micros: int  # since 1970 in UTC, also if it has no zone
    is_date: bool  # only a day
    has_zone: bool
    is_exact: bool  # with seconds and a zone, and no finer than microseconds


def iso_time(text: str) -> IsoTime | None:
    """The time, if the text is one that readers of the tables take. What is finer than a microsecond is cut off."""
    if (found := ISO.fullmatch(text)) is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        at = dt.datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))  # noqa: DTZ001
    except ValueError:  # such as the 30th of February
        return None
    micros = (at - EPOCH) // dt.timedelta(microseconds=1) + int((fraction or "").ljust(DIGITS_KEPT, "0")[:DIGITS_KEPT])
    utc = in_calendar(micros - _offset(zone) if zone else micros)
    if utc is None:
        return None
    return IsoTime(utc, not hour, bool(zone), bool(second and zone) and len(fraction or "") <= DIGITS_KEPT)


def in_calendar(micros: int) -> int | None:
    return micros if YEAR_1 * MICROS <= micros < YEAR_10000 * MICROS else None


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
    return (-minutes if zone[0] == "-" else minutes) * 60 * MICROS
