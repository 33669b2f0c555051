"""The demo's last words: what became of the events, and the proof, on 80 columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.accounting import LANDED
from lakehouse_ingest.demo.proof import DEAD, HELD, QUESTION, TABLE, TOPIC, Found, Held, Run

WIDTH, DETAIL = 80, 40


def show(console: Console, run: Run, found: Found, told: Mapping[str, Any]) -> None:
    """Fits on 80 columns, and reads the same where there are no colours."""
    sql = found.engine.startswith("DuckDB")
    _events(console, run, found, told)
    _reasons(console, run, found)
    _days(console, told)
    _question(console, found)
    if sql:
        _quoted(console, QUESTION)
    _proof(console, run, found)
    if sql:
        _quoted(console, HELD)
    else:
        console.print("DuckDB is not installed (the extra `demo`), so pyiceberg has read them.\n")
    console.print(_verdict(told, found))


def _events(console: Console, run: Run, found: Found, told: Mapping[str, Any]) -> None:
    count, every = told["counts"]["run"], told["counts"]["total"]
    earlier = any(run.begins.values())
    left = run.received - found.total(of_run=True)
    waited = f", {left:,} of them left by an earlier run" if left > 0 else ""
    lines = [
        ("produced", count["produced"], every["produced"], f"to topic {TOPIC}, {len(run.ends)} partitions"),
        ("received", count["received"], "", f"batches: {len(run.batches)}{waited}"),
        ("landed", count["landed"], every["landed"], f"in {TABLE} (snapshots: {told['snapshots'][TABLE]})"),
        ("set aside", count["dead"], every["dead"], f"in {DEAD} (snapshots: {told['snapshots'][DEAD]})"),
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


def _reasons(console: Console, run: Run, found: Found) -> None:
    _print(
        console,
        "Set aside, with the reason; how many were made so is known from the producer",
        _columns("reason", "made so", "found", words=["an example of the detail"]),
        (
            [each.name, run.broken.get(each.name, 0), each.new, _short(each.detail or "")]
            for each in found.outcomes
            if each.name != LANDED and each.new
        ),
    )


def _short(text: str) -> str:
    """A detail may be long; in a row of 80 columns it gets what the numbers leave."""
    return text if len(text) <= DETAIL else f"{text[: DETAIL - 1]}…"


def _days(console: Console, told: Mapping[str, Any]) -> None:
    _print(
        console,
        f"Partitions of {TABLE}, by day(event_time)",
        _columns("day", "rows", "files"),
        ([each["day"], each["rows"], each["files"]] for each in told["partitions"]),
    )


def _question(console: Console, found: Found) -> None:
    _print(
        console,
        f"A question to them, answered by {found.engine} through the REST catalog",
        _columns("location", "events", "degrees", "percent_not_ok"),
        found.answer,
    )


def _proof(console: Console, run: Run, found: Found) -> None:
    held = {each.partition: each for each in found.held}
    places = [(end, held.get(number, Held(number, 0, 0, 0, -1))) for (_, number), end in sorted(run.ends.items())]
    _print(
        console,
        f"Do the counts add up? Both tables, read by {found.engine}, against the topic",
        _columns("partition", "end in Kafka", "rows", "distinct offsets", "first", "last"),
        ([str(each.partition), end, each.rows, each.offsets, each.first, each.last] for end, each in places),
    )


def _verdict(told: Mapping[str, Any], found: Found) -> Panel:
    if told["problems"]:
        lines = ["The counts do NOT add up.", *told["problems"]]
        return Panel(Text("\n".join(lines)), border_style="bold red", style="red", width=WIDTH)
    count, total = told["counts"]["run"], told["counts"]["total"]["produced"]
    said = (
        f"{count['produced']:,} produced = {count['landed']:,} landed + {count['dead']:,} set aside. "
        f"Every offset of the topic, {total:,} in all, is in exactly one of the two tables, says {found.engine}."
    )
    return Panel(Text(said), border_style="bold green", width=WIDTH)


def _columns(name: str, *numbers: str, words: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right")
    for word in words:
        table.add_column(word, no_wrap=True, overflow="ellipsis")
    return table


def _print(console: Console, title: str, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        # Not read as markup: what sensors send may hold brackets.
        table.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    console.print(Text(title, style="bold"))
    console.print(table, width=WIDTH)
    console.print()


def _quoted(console: Console, sql: str) -> None:
    console.print(Text("\n".join(f"  {line}" for line in sql.splitlines()), style="dim"), soft_wrap=True)
    console.print()
