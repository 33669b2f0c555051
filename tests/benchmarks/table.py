"""What a bench found, as Markdown: printed at its end, and put into the page of the docs.

python -m tests.benchmarks.table     # puts what is in build/bench.json into docs/development/speed.md
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.benchmarks.bars import bars, best_peer, cold_cpu, steady_cpu, steady_speed
from tests.benchmarks.figures import middle, ratio
from tests.benchmarks.results import ROOT, LatencyResult, Results, StartResult, SystemResult, kept

PAGE = ROOT / "docs" / "development" / "speed.md"
BEGIN, END = "<!-- bench: written by `python -m tests.benchmarks.table` -->\n", "<!-- /bench -->\n"
NONE = "-"
KINDS = {"ours": "", "peer": "", "limit": " (does less)"}
QUIET = 0.05  # of the machine: what other programs may take before it says so


def shown(found: Results) -> str:
    parts = [
        about(found),
        _bars(found),
        _systems(found),
        _latency(found.latency),
        _starts(found.starts),
        _growth(found),
        _clusters(found.clusters),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def about(found: Results) -> list[str]:
    made = found.about
    runs = "one run" if made.rounds == 1 else f"the median of {made.rounds} runs"
    said = [
        f"{made.date}, commit {made.commit}, {made.machine} with {made.cores} cores and {made.memory_gb:g} GB.",
        f"{made.events:,} JSON events of 185 bytes, 6 Kafka partitions; {runs} of each.",
    ]
    if made.quick:
        said.append("A short run (`QUICK=1`), which shows tendencies only.")
    others = max((run.others for each in found.systems for run in each.runs), default=0.0)
    if others > QUIET:
        said.append(f"The machine was not quiet: other programs took up to {others:.0%} of it.")
    return said


def _bars(found: Results) -> list[str]:
    rows = [(bar.figure, bar.found, bar.wanted, bar.verdict) for bar in bars(found)]
    return table(("figure", "found", "wanted", ""), rows)


def _systems(found: Results) -> list[str]:
    if not found.systems:
        return []
    best = best_peer(found, steady_cpu)
    head = (
        *("events per CPU second: steady state", "cold run", "to the best peer", "events a second: steady state"),
        *("cold run", "peak MB", "files", "MB"),
    )
    rows = [(f"{each.name}{KINDS[each.kind]}", *_figures(each, best)) for each in found.systems]
    return [*table(("system", *head), rows), *_failed(found.systems)]


def _failed(found: Sequence[SystemResult]) -> list[str]:
    failed = [f"{each.name}: {failure}" for each in found for failure in each.failures]
    return ["", "Without a figure:", *(f"- {each}" for each in failed)] if failed else []


def _figures(each: SystemResult, best: float | None) -> Iterator[str]:
    steady = each.typical(steady_cpu)
    yield number(steady)
    yield number(each.typical(cold_cpu))
    yield number(ratio(steady, best), 2)
    yield number(each.typical(steady_speed))
    yield number(each.typical(lambda run: run.cold.per_second))
    yield number(each.typical(lambda run: run.peak_mb))
    yield number(each.typical(lambda run: run.files))
    yield number(each.typical(lambda run: run.size_mb))


def _latency(found: Sequence[LatencyResult]) -> list[str]:
    head = (
        "produce to visible",
        "p50 s",
        "p95 s",
        "p99 s",
        "CPU s a second",
        "peak MB",
        "commits a minute",
        "files a commit",
    )
    rows = [
        (
            *(
                each.name,
                f"{each.p50:.2f}",
                f"{each.p95:.2f}",
                f"{each.p99:.2f}",
                f"{each.cpu:.2f}",
                number(each.peak_mb),
            ),
            *(number(each.commits / each.seconds * 60), number(ratio(each.files, each.commits), 1)),
        )
        for each in found
    ]
    return table(head, rows) if rows else []


def _starts(found: Sequence[StartResult]) -> list[str]:
    rows = [
        (each.name, number(middle(each.seconds), 1), number(middle(each.cpu), 1), number(middle(each.idle_mb)))
        for each in found
    ]
    return table(("start to first commit", "s", "CPU s", "MB when idle"), rows) if rows else []


def _growth(found: Results) -> list[str]:
    rows = [
        (f"{each.name}: {point.x:,.0f}", f"{point.cpu:.2f}", f"{point.seconds:.2f}")
        for each in found.growth
        for point in each.points
    ]
    return table(("a batch", "CPU s", "s"), rows) if rows else []


def _clusters(found: Sequence[SystemResult]) -> list[str]:
    head = ("two cores", "events a second: steady state", "to local mode", "cold run", "events per CPU second", "MB")
    local = found[0].typical(steady_speed) if found else None
    rows = [
        (
            each.name,
            number(each.typical(steady_speed)),
            number(ratio(each.typical(steady_speed), local), 2),
            number(each.typical(lambda run: run.cold.per_second)),
            number(each.typical(steady_cpu)),
            number(each.typical(lambda run: run.peak_mb)),
        )
        for each in found
    ]
    return [*table(head, rows), *_failed(found)] if rows else []


def number(value: float | None, places: int = 0) -> str:
    return NONE if value is None else f"{value:,.{places}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The first column is text, the others are aligned to the right."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def renewed(text: str, found: str) -> str:
    """The page with another table between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page lacks the marks between which the table stands")
    return f"{before}{BEGIN}\n{found}\n{END}{after}"


def put(page: Path = PAGE) -> None:
    page.write_text(renewed(page.read_text(encoding="utf-8"), shown(kept())), encoding="utf-8")


if __name__ == "__main__":
    put()
