"""`lakehouse-ingest top`: the status page of a running pipeline, in a terminal.

It asks that process for the value that its page draws, and nothing else: no broker and no catalog."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import SettingsRefused, TryAgain, fitted
from lakehouse_ingest.observe.figures import ago, count, lag, rate, seconds, size
from lakehouse_ingest.printable import all_printable, printable
from lakehouse_ingest.settings import HealthSettings

LOOK_S = 2.0
PATIENCE_S = 10.0
PAGE = "/status.json"
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a server that listens at all addresses is asked at one
MINUTES, CELLS = 60, 30  # the last hour, two minutes a cell
BLOCKS = "▁▂▃▄▅▆▇█"
STATES = {"running": "green", "failed": "red", "ended": "dim"}
BATCHES, PROBLEMS = 6, 5


def top(settings: HealthSettings | None, *, url: str | None = None, once: bool = False) -> None:
    """The `settings` say where the page is, unless the `url` does."""
    page = _page(url) if url else _page_of(settings or HealthSettings())
    console = Terminal()
    report = ask(page)
    if once or not console.is_terminal:
        console.print(frame(report, page))
        return
    with (
        Live(frame(report, page), console=console, auto_refresh=False, screen=True) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            time.sleep(LOOK_S)
            try:
                report, gone = ask(page), ""
            except TryAgain as silence:
                gone = str(silence)
            live.update(frame(report, page, gone), refresh=True)


# -- the process ------------------------------------------------------------------------------------------


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise SettingsRefused(f"--url {url}: must begin with http:// or https://")
    return f"{url.rstrip('/').removesuffix(PAGE)}{PAGE}"


def _page_of(settings: HealthSettings) -> str:
    if settings.port is None:
        raise SettingsRefused(
            "`health.port` is not set, so there is no page; set it and start the pipeline again, or give --url"
        )
    if settings.port == 0:
        raise SettingsRefused(
            "`health.port` is 0, which is any free port: give --url, with the address in the log line `health_serves`"
        )
    host = ANYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}{PAGE}"


def ask(page: str) -> Mapping[str, Any]:
    """The report of the process as it is now."""
    try:
        with urllib.request.urlopen(page, timeout=PATIENCE_S) as answer:  # noqa: S310 - a scheme of ours, see `_page`
            report = json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as failure:
        if isinstance(failure, urllib.error.HTTPError) and failure.code == HTTPStatus.FORBIDDEN:
            raise SettingsRefused(
                fitted(f"{page} does not answer to that name: use its address, or add the name to `health.hosts`")
            ) from None
        if isinstance(failure, urllib.error.HTTPError | ValueError):
            raise _stranger(page) from None
        why = getattr(failure, "reason", failure)
        said = getattr(why, "strerror", None) or why
        raise TryAgain(
            fitted(f"nothing answers at {page} ({said}); start the pipeline, or see `health.port`")
        ) from None
    if not isinstance(report, dict) or not {"pipeline", "doing", "streams"} <= report.keys():
        raise _stranger(page)
    return report


def _stranger(page: str) -> SettingsRefused:
    return SettingsRefused(fitted(f"what answers at {page} is no pipeline of ours; see `health.port`, or --url"))


# -- a frame ----------------------------------------------------------------------------------------------


def frame(report: Mapping[str, Any], page: str, gone: str = "") -> RenderableType:
    report, page, gone = all_printable(report), printable(page), printable(gone)
    return Group(
        _head(report, page, gone),
        *(Text(reason, style="yellow") for reason in report["reasons"]),
        *_part("Streams, over the last hour", _streams(report)),
        *_part("The last batches", _batches(report)),
        *_part("Tables", _tables(report)),
        *_part("Dead letters", _dead(report)),
        *_part("What went wrong", _problems(report)),
    )


def _head(report: Mapping[str, Any], page: str, gone: str) -> RenderableType:
    verdict, style = ("stuck", "red") if not report["live"] else ("not ready", "yellow")
    if report["live"] and report["ready"]:
        verdict, style = "ready", "green"
    if gone:
        verdict, style = f"no answer: {gone}", "red"
    head = Text.assemble((f" {report['pipeline']} ", "bold reverse"), "  ", (f"● {verdict}", f"bold {style}"))
    return head.append(f"  runs for {seconds(report['now'] - report['began'])}  {page.removesuffix(PAGE)}", "dim")


def _part(title: str, table: Table) -> Iterator[RenderableType]:
    if table.row_count:
        yield Text(f"\n{title}", style="bold cyan")
        yield Padding(table, (0, 1))


def _table(*heads: str, left: Sequence[str] = ()) -> Table:
    """The first column is text, and so are those on the `left`."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for number, head in enumerate(heads):
        text = not number or head in left
        table.add_column(head, justify="left" if text else "right", no_wrap=True, overflow="ellipsis")
    return table


def _streams(report: Mapping[str, Any]) -> Table:
    """Three rows for each stream: its state, its figures now, and its figures over the last hour."""
    table = _table("stream", "what", "now", "then", left=("what", "then"))
    table.show_header = False
    for name, doing in report["doing"].items():
        seen = report["streams"].get(name, {})
        minutes, now = seen.get("minutes", ()), report["now"]
        landed = _cells(minutes, now, lambda each: each["landed"], sum)
        state = Text(doing["state"], style=STATES.get(doing["state"], "yellow"))
        behind = lag(seen.get("lag"), seen.get("lag_s"))
        rates = _line([each or 0 for each in landed])
        table.add_row(Text(name, style="bold"), "records a second", rate(seen.get("per_second")), rates)
        lags = _cells(minutes, now, lambda each: each["lag"], max)
        table.add_row(state.append(f" {seconds(doing['for_s'])}", "dim"), "lag", behind, _line(lags, "yellow"))
        fresh = _cells(minutes, now, lambda each: each["freshness_s"], max)
        table.add_row("", "freshness", seconds(seen.get("freshness_s")), _line(fresh, "magenta"))
    return table


def _batches(report: Mapping[str, Any]) -> Table:
    table = _table("stream", "batch", "ended", "received", "landed", "dead", "tables", "took", "", left=("",))
    last = list(reversed(report["batches"]))[:BATCHES]
    longest = max((each["took_s"] for each in last), default=0) or 1
    for each in last:
        bar = BLOCKS[-1] * max(1, round(8 * each["took_s"] / longest))
        table.add_row(
            Text(each["stream"]),
            count(each["batch"]),
            ago(report["now"] - each["ended"]),
            count(each["received"]),
            count(each["landed"]),
            Text(count(each["dead"]), style="red" if each["dead"] else "dim"),
            str(each["tables"]),
            seconds(each["took_s"]),
            Text(bar, style="red" if each["dead"] else "blue"),
        )
    return table


def _tables(report: Mapping[str, Any]) -> Table:
    table = _table("table", "rows", "files", "size", "snapshots", "changes", "last commit")
    for each in report["tables"]:
        table.add_row(
            Text(each["name"]),
            count(each["rows"]),
            count(each["files"]),
            size(each["bytes"]),
            count(each["snapshots"]),
            count(each["schema_changes"]),
            ago(report["now"] - each["landed_at"]),
        )
    return table


def _dead(report: Mapping[str, Any]) -> Table:
    table = _table("stream", "reason", "records", left=("reason",))
    for name, seen in report["streams"].items():
        for reason, records in seen["dead"].items():
            table.add_row(Text(name), Text(reason, style="red"), count(records))
    return table


def _problems(report: Mapping[str, Any]) -> Table:
    table = _table("when", "what", "where", "message", left=("what", "where", "message"))
    for each in report["problems"][:PROBLEMS]:
        what = Text(each["event"], style="red" if each["level"] == "error" else "yellow")
        table.add_row(ago(report["now"] - each["at"]), what, Text(each["where"]), Text(each["what"]))
    return table


# -- figures ----------------------------------------------------------------------------------------------


def _cells(
    minutes: Sequence[Mapping[str, Any]],
    now: float,
    what: Callable[[Mapping[str, Any]], float | None],
    together: Callable[[Sequence[float]], float],
) -> list[float | None]:
    """The last hour, the newest at the right; None where there are no figures."""
    found: list[list[float]] = [[] for _ in range(CELLS)]
    last, each_cell = int(now) // 60 * 60, MINUTES // CELLS
    for minute in minutes:
        ago = (last - minute["at"]) // 60
        if 0 <= ago < MINUTES and (value := what(minute)) is not None:
            found[CELLS - 1 - ago // each_cell].append(value)
    return [together(values) if values else None for values in found]


def _line(values: Sequence[float | None], style: str = "blue") -> Text:
    most = max((value for value in values if value is not None), default=0) or 1
    drawn = "".join(" " if value is None else BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in values)
    return Text(drawn, style=style)
