"""How a person reads the figures of a pipeline: the same in `status`, `top`, the progress line and the demo.

The status page draws itself in a browser, so `status.html` has these rules once more, in JavaScript;
`tests/live/test_status_page.py` holds the two together.
"""

UNKNOWN = "?"
FEW = 10  # below this a digit after the point says something
TIMES = (("d", 86_400), ("h", 3_600), ("min", 60))
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return UNKNOWN
    return f"{round(per_second, 1):g}" if per_second < FEW else count(per_second)


def seconds(number: float | None) -> str:
    """In the largest unit of which there are at least two."""
    if number is None:
        return UNKNOWN
    for unit, length in TIMES:
        if number >= 2 * length:
            return f"{number / length:.0f} {unit}"
    return f"{_short(max(0.0, number))} s"


def ago(number: float | None) -> str:
    """In whole seconds: it is drawn again and again, and nobody reads the tenths."""
    return "never" if number is None else f"{seconds(float(int(max(0.0, number))))} ago"


def size(number: float) -> str:
    unit = 0
    while number >= 1024 and unit < len(SIZES) - 1:  # noqa: PLR2004
        number, unit = number / 1024, unit + 1
    return f"{_short(number) if unit else f'{number:.0f}'} {SIZES[unit]}"


def lag(records: int | None, waiting_s: float | None) -> str:
    return UNKNOWN if records is None else f"{count(records)} · {seconds(waiting_s)}"


def _short(number: float) -> str:
    return f"{round(number, 1):g}" if number < FEW else f"{number:.0f}"
