"""The demo's last words: what became of the events, and the proof, on 80 columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.cli.demo.events import HEARTBEAT, READING
from lakehouse_ingest.cli.demo.proof import Run
from lakehouse_ingest.cli.demo.reading_back import ALARMS, DEAD, NAMESPACE, TOPIC, Found
from lakehouse_ingest.cli.printing import UNKNOWN_STREAM, verdict_sentence
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.operations.verify.findings import StreamVerdict
from lakehouse_ingest.records import SOURCE

WIDTH, DETAIL = 80, 40
NONE = "–"  # noqa: RUF001 - what stands in a table where no number is


def show(console: Terminal, run: Run, verdict: StreamVerdict | None, found: Found, told: Mapping[str, Any]) -> None:
    """Fits on 80 columns, and reads the same where there are no colours."""
    _events(console, run, told)
    _types(console, run, found)
    _appeared(console, run, found)
    _reasons(console, run, found)
    _days(console, found, told)
    _proof(console, verdict, found)
    console.print(_verdict(run, told, found))


def _events(console: Terminal, run: Run, told: Mapping[str, Any]) -> None:
    count, every = told["counts"]["run"], told["counts"]["total"]
    earlier = any(run.begins.values())
    left = run.received - count["produced"]
    waited = f", {left:,} of them left by an earlier run" if left > 0 else ""
    names = [name.removeprefix(f"{NAMESPACE}.") for name in found_tables(told)]
    lines = [
        ("produced", count["produced"], every["produced"], f"to one topic, {TOPIC}, in {len(run.ends)} partitions"),
        ("received", count["received"], "", f"batches: {len(run.batches)}{waited}"),
        ("landed", count["landed"], every["landed"], f"in {len(names)} tables: {_listed(names)}"),
        ("dead letters", count["dead"], every["dead"], f"in {DEAD}, each with its reason"),
        ("filtered", count["filtered"], every["filtered"], f"{HEARTBEAT}s: counted, not kept"),
    ]
    _print(
        console,
        "What became of the events",
        _columns("", "this run", *(["all runs"] if earlier else []), words=[""]),
        ([name, new, *([total] if earlier else []), words] for name, new, total, words in lines),
    )
    if fresh := told["freshness_s"]:
        console.print(
            f"Visible to readers {fresh['p50']:.1f} s after the broker took a batch's oldest event (median), at worst "
            f"{fresh['max']:.1f} s: the first batch holds what came while Spark started. "
            f"{told['events_per_second']:,} events a second.\n",
            width=WIDTH,
        )


def found_tables(told: Mapping[str, Any]) -> list[str]:
    tables: list[str] = told["tables"]["events"]
    return tables


def _listed(names: Sequence[str]) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))


def _types(console: Terminal, run: Run, found: Found) -> None:
    made, landed = run.made, found.landed(of_run=True)
    table = _columns("type", "made", "landed")
    table.add_column("columns")
    rows = [
        [
            name.removeprefix(f"{NAMESPACE}."),
            made.sound[name.removeprefix(f"{NAMESPACE}.")],
            landed.get(name, 0),
            ("declared: " if name == f"{NAMESPACE}.{READING}" else "from the data: ") + _written(columns),
        ]
        for name, columns in found.columns.items()
    ]
    rows.append([HEARTBEAT, made.filtered.total(), NONE, "keep_types leaves them out"])
    _print(console, "A table for each type, made when its first event came", table, rows)


def _written(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items() if name != SOURCE)


def _appeared(console: Terminal, run: Run, found: Found) -> None:
    if not found.since:
        return
    name = run.made.column
    title = f"A new field in the midst of it, {name}, became a column" if name else "Columns that came in earlier runs"
    _print(
        console,
        f"{title} by itself" if name else title,
        _columns(ALARMS, "rows", "from event", "to event"),
        ([f"{each.column} {_is(each.there)}", each.rows, each.first, each.last] for each in found.since),
    )


def _is(there: bool) -> str:  # noqa: FBT001 - one word or the other
    return "is there" if there else "is null"


def _reasons(console: Terminal, run: Run, found: Found) -> None:
    _print(
        console,
        "Dead letters; how many were made so is known from the producer",
        _columns("reason", "made so", "found", words=["an example of the detail"]),
        (
            [each.reason, run.made.broken[each.reason], each.new, _short(each.detail or "")]
            for each in found.outcomes
            if each.reason and each.new
        ),
    )


def _short(text: str) -> str:
    """A detail may be long; in a row of 80 columns it gets what the numbers leave."""
    return text if len(text) <= DETAIL else f"{text[: DETAIL - 1]}…"


def _days(console: Terminal, found: Found, told: Mapping[str, Any]) -> None:
    names = [*found.columns]
    _print(
        console,
        "Rows by day(event_time), which partitions each of them",
        _columns("day", *(name.removeprefix(f"{NAMESPACE}.") for name in names), "files"),
        ([each["day"], *(each["rows"].get(name, 0) for name in names), each["files"]] for each in told["days"]),
    )


def _proof(console: Terminal, verdict: StreamVerdict | None, found: Found) -> None:
    console.print(Text("Do the counts add up? What `lakehouse-ingest verify` says", style="bold"))
    console.print(Text(verdict_sentence(verdict) if verdict else UNKNOWN_STREAM), width=WIDTH)
    console.print()
    if found.query:
        console.print(Text(f"The same rows, counted by {found.engine} through the REST catalog", style="bold"))
        console.print(Text("\n".join(f"  {line}" for line in found.query.splitlines()), style="dim"), soft_wrap=True)
        console.print()
    else:
        console.print("DuckDB is not installed (the extra `demo`), so pyiceberg has counted the rows.\n")


def _verdict(run: Run, told: Mapping[str, Any], found: Found) -> Panel:
    if told["problems"]:
        lines = ["The counts do NOT add up.", *told["problems"]]
        return Panel(Text("\n".join(lines)), border_style="bold red", style="red", width=WIDTH)
    count, total = told["counts"]["run"], told["counts"]["total"]
    said = [
        "{produced:,} produced = {landed:,} landed + {dead:,} dead letters + {filtered:,} filtered.".format(**count),
        "Each of the topic's {produced:,} offsets is in exactly one table, but for the {filtered:,} filtered ones, "
        "which are in none.".format(**total),
        f"So says `lakehouse-ingest verify`; {found.engine} and the producer count the same.",
    ]
    said += [
        "New column {column} in {table} since event {since_event:,}; {null:,} older rows null.".format(**each)
        for each in told["columns_that_appeared"]
        if each["column"] == run.made.column
    ]
    return Panel(Text("\n".join(said)), border_style="bold green", width=WIDTH)


def _columns(name: str, *numbers: str, words: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    for word in words:
        table.add_column(word)
    return table


def _print(console: Terminal, title: str, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        # Not read as markup: what stations send may hold brackets.
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    console.print(Text(title, style="bold"))
    console.print(table, width=WIDTH)
    console.print()
