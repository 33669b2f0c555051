"""The names of a metric and its attributes in Prometheus, by OpenTelemetry's rules. Needs no SDK."""

import re
from functools import cache

_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]+")
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]+")
_ANNOTATION = re.compile(r"\{[^}]*\}")
_WORDS = {
    "s": "seconds",
    "ms": "milliseconds",
    "min": "minutes",
    "h": "hours",
    "d": "days",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "%": "percent",
}
_PER = {"s": "second", "min": "minute", "h": "hour", "d": "day"}


@cache
def unit_word(unit: str, *, gauge: bool = False) -> str:
    """The unit as the name says it; nothing for counts of things."""
    if unit == "1":
        return "ratio" if gauge else ""
    of, _, per = _ANNOTATION.sub("", unit).partition("/")
    words = [_WORDS.get(of, of), *(["per", _PER.get(per, per)] if per else [])]
    return _NO_LABEL.sub("_", "_".join(filter(None, words))).strip("_")


@cache
def family(name: str, unit: str, *, gauge: bool = False) -> str:
    """The name without the suffixes of its samples."""
    plain = _NO_NAME.sub("_", name).removesuffix("_total")
    plain = f"_{plain}" if plain[:1].isdigit() else plain
    word = unit_word(unit, gauge=gauge)
    return plain if not word or plain.endswith(f"_{word}") else f"{plain}_{word}"


def prometheus_name(name: str, unit: str, *, counter: bool = False, gauge: bool = False) -> str:
    return family(name, unit, gauge=gauge) + ("_total" if counter else "")


@cache
def prometheus_label(attribute: str) -> str:
    label = _NO_LABEL.sub("_", attribute)
    return f"_{label}" if label[:1].isdigit() else label
