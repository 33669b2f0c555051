"""`lakehouse-ingest top`: what a running pipeline's status page shows, in a terminal. It asks that process alone."""

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
from lakehouse_ingest.printable import all_printable, printable
from lakehouse_ingest.settings import HealthSettings

LOOK_S = 2.0
PATIENCE_S = 10.0
PAGE = "/status.json"
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - who listens at all addresses is asked at one
MINUTES, CELLS = 60, 30  # the last hour, two minutes a cell
BLOCKS = "▁▂▃▄▅▆▇█"
STATES = {"running": "green", "failed": "red", "ended": "dim"}
BATCHES, PROBLEMS = 6, 5


def top(settings: HealthSettings | None, *, url: str | None = None, once: bool = False) -> None:
    """`settings` say where it serves, unless the `url` does."""
    page = _page(url) if url else _page_of(settings or HealthSettings())
    console = Terminal()
    told = ask(page)
    if once or not console.is_terminal:
        console.print(frame(told, page))
        return
    with Live(frame(told, page), console=console, auto_refresh=False, screen=True) as live, suppress(KeyboardInterrupt):
        while True:
            time.sleep(LOOK_S)
            try:
                told, gone = ask(page), ""
            except TryAgain as silence:
                gone = str(silence)
            live.update(frame(told, page, gone), refresh=True)


# -- the process ------------------------------------------------------------------------------------------


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise SettingsRefused(f"--url {url}: must begin with http:// or https://")
    return f"{url.rstrip('/').removesuffix(PAGE)}{PAGE}"


def _page_of(settings: HealthSettings) -> str:
    if settings.port is None:
        raise SettingsRefused(
            "`health.port` is not set, so no page is served: set it and start the pipeline again, or give --url"
        )
    if settings.port == 0:
        raise SettingsRefused(
            "`health.port` is 0, which is any free port: give --url, which the log's `health_serves` tells"
        )
    host = ANYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}{PAGE}"


def ask(page: str) -> Mapping[str, Any]:
    """What it tells now."""
    try:
        with urllib.request.urlopen(page, timeout=PATIENCE_S) as answer:  # noqa: S310 - a scheme of ours, see `_page`
            told = json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as failure:
        if isinstance(failure, urllib.error.HTTPError) and failure.code == HTTPStatus.FORBIDDEN:
            raise SettingsRefused(
                fitted(f"{page} is not to be asked by that name: use its address, or add it to `health.hosts`")
            ) from None
        if isinstance(failure, urllib.error.HTTPError | ValueError):
            raise SettingsRefused(
                f"what answers at {page} is no pipeline of ours; see `health.port`, or --url"
            ) from None
        why = getattr(failure, "reason", failure)
        said = getattr(why, "strerror", None) or why
        raise TryAgain(
            fitted(f"nothing answers at {page} ({said}); start the pipeline, or see `health.port`")
        ) from None
    if not isinstance(told, dict) or not {"pipeline", "doing", "streams"} <= told.keys():
        raise _stranger(page)
    return told


def _stranger(page: str) -> SettingsRefused:
    return SettingsRefused(fitted(f"what answers at {page} is no pipeline of ours; see `health.port`, or --url"))


# -- a frame ----------------------------------------------------------------------------------------------


def frame(told: Mapping[str, Any], page: str, gone: str = "") -> RenderableType:
    told, page, gone = all_printable(told), printable(page), printable(gone)
    return Group(
        _head(told, page, gone),
        *(Text(reason, style="yellow") for reason in told["reasons"]),
        *_part("Streams, over the last hour", _streams(told)),
        *_part("The last batches", _batches(told)),
        *_part("Tables", _tables(told)),
        *_part("Dead letters", _dead(told)),
        *_part("What went wrong", _problems(told)),
    )


def _head(told: Mapping[str, Any], page: str, gone: str) -> RenderableType:
    verdict, style = ("stuck", "red") if not told["live"] else ("not ready", "yellow")
    if told["live"] and told["ready"]:
        verdict, style = "ready", "green"
    if gone:
        verdict, style = f"no answer: {gone}", "red"
    head = Text.assemble((f" {told['pipeline']} ", "bold reverse"), "  ", (f"● {verdict}", f"bold {style}"))
    return head.append(f"  runs for {_seconds(told['now'] - told['began'])}  {page.removesuffix(PAGE)}", "dim")


def _part(title: str, table: Table) -> Iterator[RenderableType]:
    if table.row_count:
        yield Text(f"\n{title}", style="bold cyan")
        yield Padding(table, (0, 1))


def _table(*heads: str, left: Sequence[str] = ()) -> Table:
    """Its first column is text, and so are those on the `left`."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for number, head in enumerate(heads):
        text = not number or head in left
        table.add_column(head, justify="left" if text else "right", no_wrap=True, overflow="ellipsis")
    return table


def _streams(told: Mapping[str, Any]) -> Table:
    """Three rows each: what it does at the left, figures in the middle, and how they have been at the right."""
    table = _table("stream", "what", "now", "then", left=("what", "then"))
    table.show_header = False
    for name, doing in told["doing"].items():
        seen = told["streams"].get(name, {})
        minutes, now = seen.get("minutes", ()), told["now"]
        landed = _cells(minutes, now, lambda each: each["landed"], sum)
        state = Text(doing["state"], style=STATES.get(doing["state"], "yellow"))
        behind = "?" if seen.get("lag") is None else f"{seen['lag']:,} · {_seconds(seen['lag_s'])}"
        table.add_row(
            Text(name, style="bold"), "records a second", _rate(minutes, now), _line([each or 0 for each in landed])
        )
        lag = _cells(minutes, now, lambda each: each["lag"], max)
        table.add_row(state.append(f" {_seconds(doing['for_s'])}", "dim"), "lag", behind, _line(lag, "yellow"))
        fresh = _cells(minutes, now, lambda each: each["freshness_s"], max)
        table.add_row("", "freshness", _seconds(seen.get("freshness_s")), _line(fresh, "magenta"))
    return table


def _batches(told: Mapping[str, Any]) -> Table:
    table = _table("stream", "batch", "ended", "received", "landed", "dead", "tables", "took", "", left=("",))
    last = list(reversed(told["batches"]))[:BATCHES]
    longest = max((each["took_s"] for each in last), default=0) or 1
    for each in last:
        bar = BLOCKS[-1] * max(1, round(8 * each["took_s"] / longest))
        table.add_row(
            Text(each["stream"]),
            f"{each['batch']:,}",
            f"{_seconds(told['now'] - each['ended'])} ago",
            f"{each['received']:,}",
            f"{each['landed']:,}",
            Text(f"{each['dead']:,}", style="red" if each["dead"] else "dim"),
            str(each["tables"]),
            _seconds(each["took_s"]),
            Text(bar, style="red" if each["dead"] else "blue"),
        )
    return table


def _tables(told: Mapping[str, Any]) -> Table:
    table = _table("table", "rows", "files", "size", "snapshots", "changes", "last landing")
    for each in told["tables"]:
        table.add_row(
            Text(each["name"]),
            f"{each['rows']:,}",
            f"{each['files']:,}",
            _size(each["bytes"]),
            f"{each['snapshots']:,}",
            f"{each['schema_changes']:,}",
            f"{_seconds(told['now'] - each['landed_at'])} ago",
        )
    return table


def _dead(told: Mapping[str, Any]) -> Table:
    table = _table("stream", "reason", "records", left=("reason",))
    for name, seen in told["streams"].items():
        for reason, count in seen["dead"].items():
            table.add_row(Text(name), Text(reason, style="red"), f"{count:,}")
    return table


def _problems(told: Mapping[str, Any]) -> Table:
    table = _table("when", "what", "where", "said", left=("what", "where", "said"))
    for each in told["problems"][:PROBLEMS]:
        what = Text(each["event"], style="red" if each["level"] == "error" else "yellow")
        table.add_row(f"{_seconds(told['now'] - each['at'])} ago", what, Text(each["where"]), Text(each["what"]))
    return table


# -- figures ----------------------------------------------------------------------------------------------


def _cells(
    minutes: Sequence[Mapping[str, Any]],
    now: float,
    what: Callable[[Mapping[str, Any]], float | None],
    together: Callable[[Sequence[float]], float],
) -> list[float | None]:
    """The last hour, the newest at the right; None where nothing was seen."""
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


def _rate(minutes: Sequence[Mapping[str, Any]], now: float) -> str:
    """Of the last whole minute."""
    last = int(now) // 60 * 60 - 60
    rate = next((minute["landed"] / 60 for minute in minutes if minute["at"] == last), 0.0)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"  # noqa: PLR2004


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"  # noqa: PLR2004
        count /= 1024
    return f"{count:.1f} TiB"
