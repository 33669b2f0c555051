"""One page with the figures and plots of a bench: `build/bench.html`. It needs nothing from elsewhere."""

from collections.abc import Callable, Iterator
from html import escape

from tests.benchmarks import plots
from tests.benchmarks.bars import bars, cold_cpu, steady_cpu, steady_speed
from tests.benchmarks.results import KEPT, Results, Run, kept
from tests.benchmarks.table import about

HTML = KEPT.with_suffix(".html")
STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #667; --grid: #e3e5ea;
  --ours: #0b62c4; --peer: #9aa3b2; --limit: #d5d9e0; --met: #1a7f37; --not: #c0281f; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14171c; --text: #e6e8eb; --soft: #9aa3b2; --grid: #2b3038;
    --ours: #58a6ff; --peer: #6b7380; --limit: #3c434e; --met: #4cc46b; --not: #ff7b72; } }
body { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; } h3 { margin-bottom: .3rem; } p, figcaption { color: var(--soft); } figure { margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; }
td, th { border-bottom: 1px solid var(--grid); padding: .3rem .5rem; }
td + td, th + th { text-align: right; white-space: nowrap; } .met { color: var(--met); } .not { color: var(--not); }
svg { width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
.ours { fill: var(--ours); } .peer { fill: var(--peer); } .limit { fill: var(--limit); }
.axis, .grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.line0, .line1 { fill: none; stroke-width: 2; stroke: var(--ours); } .line1 { stroke: var(--peer); }
.dot0 { fill: var(--ours); } .dot1 { fill: var(--peer); }
"""
THROUGHPUT: tuple[tuple[str, Callable[[Run], float | None]], ...] = (
    ("Events per CPU second, steady state", steady_cpu),
    ("Events per CPU second, cold run", cold_cpu),
    ("Events a second, steady state", steady_speed),
    ("Peak memory in MB: less is better", lambda run: run.peak_mb),
)


def written(found: Results) -> str:
    body = "\n".join([*_head(found), *_throughput(found), *_latency(found), *_growth(found)])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>lakehouse-ingest: speed</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _head(found: Results) -> Iterator[str]:
    yield f"<h1>How fast it is</h1><p>{escape(' '.join(about(found)))}</p>"
    yield "<table><tr><th>figure</th><th>found</th><th>wanted</th><th></th></tr>"
    for bar in bars(found):
        kind, verdict = {None: ("", "-"), True: ("met", "met"), False: ("not", "not met")}[bar.met]
        yield (
            f"<tr><td>{escape(bar.figure)}</td><td>{escape(bar.found)}</td><td>{escape(bar.wanted)}</td>"
            f'<td class="{kind}">{verdict}</td></tr>'
        )
    yield "</table>"


def _throughput(found: Results) -> Iterator[str]:
    if not found.systems:
        return
    yield "<h2>Throughput</h2>"
    for title, figure in THROUGHPUT:
        known = [(each.name, each.typical(figure), each.kind) for each in found.systems]
        rows = [plots.Row(name, value, kind) for name, value, kind in known if value is not None]
        if rows:
            yield _figure(title, plots.bars(title, rows), "")


def _latency(found: Results) -> Iterator[str]:
    if found.latency:
        yield "<h2>Latency</h2>"
        title = "Seconds from produce to visible"
        rows = [(each.name, (each.p50, each.p95, each.p99)) for each in found.latency]
        yield _figure(
            title, plots.ranges(title, rows, ("p50", "p95", "p99")), "For a reader that comes by the catalog."
        )


def _growth(found: Results) -> Iterator[str]:
    if found.growth:
        yield "<h2>Growth</h2>"
    for each in found.growth:
        if each.points:
            title = f"Cost of a batch by {each.name}"
            series = {
                "CPU seconds": [(point.x, point.cpu) for point in each.points],
                "seconds": [(point.x, point.seconds) for point in each.points],
            }
            yield _figure(title, plots.lines(title, series, each.unit, "seconds a batch"), "")


def _figure(title: str, plot: str, caption: str) -> str:
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{escape(title)}</h3>{plot}{below}</figure>"


if __name__ == "__main__":
    HTML.write_text(written(kept()), encoding="utf-8")
