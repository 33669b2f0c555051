"""Dates and times as ISO 8601 writes them. They alone make a text column a date or a time."""

import datetime as dt
import re
from typing import NamedTuple

ISO = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<hours>\d{2}:\d{2})(?P<seconds>:\d{2}(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s?(?P<zone>Z|(?P<sign>[+-])(?P<zone_hours>\d{2})(?::?(?P<zone_minutes>\d{2}))?))?)?",
    re.ASCII,
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST, LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1  # readers of the tables take the years 1 to 9999
LARGEST_OFFSET = 18 * 60  # minutes
DIGITS_KEPT = 6  # a column keeps microseconds


class IsoTime(NamedTuple):
    """What a text says."""

    micros: int  # since 1970 in UTC, also if it has no zone
    is_date: bool  # only a day
    is_exact: bool  # with seconds and a zone, and no finer than microseconds


def iso_time(text: str) -> IsoTime | None:
    """The time, if the text is one and its year is one of 1 to 9999. What is finer than a microsecond is cut off."""
    found = ISO.fullmatch(text)
    if found is None:
        return None
    seconds, fraction, zone = found["seconds"], found["fraction"] or "", found["zone"]
    if (offset := _offset(found)) is None:
        return None
    try:
        day = dt.date.fromisoformat(found["date"])
        time = dt.time.fromisoformat((found["hours"] or "00:00") + (seconds or "")[:3])
    except ValueError:
        return None
    whole = dt.datetime.combine(day, time, dt.UTC) - EPOCH
    micros = (whole.days * 86_400 + whole.seconds - offset * 60) * 10**6 + int(fraction[:DIGITS_KEPT].ljust(6, "0"))
    if not FIRST <= micros <= LAST:
        return None
    exact = bool(seconds and zone) and len(fraction) <= DIGITS_KEPT
    return IsoTime(micros, found["hours"] is None, exact)


def _offset(found: re.Match[str]) -> int | None:
    """The zone in minutes; None if there is no such zone."""
    if found["sign"] is None:
        return 0
    hours, minutes = int(found["zone_hours"]), int(found["zone_minutes"] or 0)
    if minutes >= 60 or hours * 60 + minutes > LARGEST_OFFSET:  # noqa: PLR2004 - minutes of an hour
        return None
    return (hours * 60 + minutes) * (-1 if found["sign"] == "-" else 1)
