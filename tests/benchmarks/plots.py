"""Plots as SVG within a page. Colours are classes, so that the page's style decides about dark and light."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, WORDS, ROW = 760, 250, 90, 200, 26
HEIGHT, BOTTOM, TOP, MARGIN, LINE = 250, 44, 28, 60, 14
Y_TICKS = 4
FEW = 12  # values of x that are all named


@dataclass(frozen=True)
class Row:
    label: str
    value: float
    kind: str  # a class: ours, peer or limit


def bars(title: str, rows: Sequence[Row]) -> str:
    """One bar for each row, from zero, with its figure at its end."""
    most = max((row.value for row in rows), default=1.0) or 1.0
    parts = []
    for place, row in enumerate(rows):
        y, length = place * ROW, row.value / most * (WIDTH - LEFT - RIGHT)
        parts += [
            _text(LEFT - 8, y + 17, row.label, "end"),
            f'<rect class="{row.kind}" x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="{ROW - 8}" rx="2"/>',
            _text(LEFT + length + 6, y + 17, _figure(row.value)),
        ]
    return _svg(title, ROW * len(rows) + 6, parts)


def ranges(title: str, rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> str:
    """A line for each row, with a mark for each of its values; `names` says what the marks are."""
    most = max((value for _, values in rows for value in values), default=1.0) or 1.0
    parts = []
    for place, (label, values) in enumerate(rows):
        y = place * ROW + ROW / 2
        places = [LEFT + value / most * (WIDTH - LEFT - WORDS) for value in values]
        said = ", ".join(f"{name} {_figure(value)}" for name, value in zip(names, values, strict=True))
        parts += [
            _text(LEFT - 8, y + 4, label, "end"),
            f'<line class="axis" x1="{LEFT}" x2="{max(places):.1f}" y1="{y}" y2="{y}"/>',
            *(f'<circle class="ours" cx="{x:.1f}" cy="{y}" r="{6 - number}"/>' for number, x in enumerate(places)),
            _text(max(places) + 10, y + 4, said),
        ]
    return _svg(title, ROW * len(rows) + 6, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """A line for each series; x is logarithmic where it covers more than two powers of ten. y begins at zero."""
    xs = sorted({x for points in series.values() for x, _ in points})
    most = _round_up(max((y for points in series.values() for _, y in points), default=1.0))
    scale = _scale(xs)

    def at(x: float, y: float) -> tuple[float, float]:
        return MARGIN + scale(x) * (WIDTH - MARGIN - RIGHT), TOP + (1 - y / most) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in range(Y_TICKS + 1):
        _, y = at(xs[0], most * tick / Y_TICKS)
        parts.append(f'<line class="grid" x1="{MARGIN}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(MARGIN - 8, y + 4, _figure(most * tick / Y_TICKS), "end"))
    named = xs[:: math.ceil(len(xs) / FEW)]
    parts += [_text(at(x, 0)[0], HEIGHT - BOTTOM + 18, _figure(x), "middle") for x in named]
    for number, (name, points) in enumerate(series.items()):
        placed = [at(x, y) for x, y in points]
        parts.append(f'<polyline class="line{number}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}"/>')
        parts += [
            f'<circle class="dot{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>{escape(f'{name}: {_figure(given[1])} at {_figure(given[0])}')}</title></circle>"
            for (x, y), given in zip(placed, points, strict=True)
        ]
    ends = sorted((at(*points[-1])[1], name) for name, points in series.items())
    for place, (y, name) in enumerate(ends):  # words of lines that end close to each other are moved apart
        below = max(y, ends[place - 1][0] + LINE) if place else y
        parts.append(_text(at(xs[-1], 0)[0] + 8, below + 4, name))
    parts.append(_text((MARGIN + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "middle"))
    parts.append(_text(4, LINE, y_label))
    return _svg(title, HEIGHT, parts)


def _scale(xs: Sequence[float]) -> "Scale":
    least, most = xs[0], xs[-1]
    if least > 0 and most / least > 100:
        return Scale(math.log(least), math.log(most), logarithmic=True)
    return Scale(least, most, logarithmic=False)


@dataclass(frozen=True)
class Scale:
    least: float
    most: float
    logarithmic: bool

    def __call__(self, x: float) -> float:
        """From 0 to 1."""
        value = math.log(x) if self.logarithmic else x
        return (value - self.least) / (self.most - self.least) if self.most > self.least else 0.5


def _round_up(value: float) -> float:
    """To 1, 2, 4, 5 or 8 times a power of ten: a fourth of it is a round number too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.999999)


def _figure(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    name = escape(title, quote=True)
    inner = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}">\n{inner}\n</svg>'
