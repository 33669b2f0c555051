"""The dashboards, as a description: `python deploy/grafana/dashboards.py` writes what Grafana is given.

A panel is a title, a unit and its queries, each with its legend. `@` in a query is the dashboard's choice of pipelines.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("dashboards")
CHOSEN = 'lakehouse_pipeline=~"$pipeline"'
UNLESS_UNKNOWN = '@,lakehouse_kind!="unknown"'
STREAM, TABLE = "{{lakehouse_stream}}", "{{lakehouse_table}}"
COLUMNS, HEIGHT = 24, 8

Query = tuple[str, str]
"""And the legend of what it finds."""


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # Grafana's word for it
    queries: Sequence[Query]
    kind: str = "timeseries"  # or stat, bargauge, state-timeline
    width: int = 8
    says: str = ""
    limits: Sequence[tuple[float, str]] = ()  # from which value on which colour
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]


# -- words of the queries -----------------------------------------------------------------------------------


def rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def increase(series: str, over: str = "$__rate_interval") -> str:
    return f"increase({series}[{over}])"


def total(by: str, query: str) -> Query:
    return f"sum by ({by}) ({query})", f"{{{{{by}}}}}"


def each(query: str, legend: str = STREAM) -> Query:
    return query, legend


def ratio(of: str, to: str) -> str:
    return f"{of} / ({to} > 0)"


def records(outcome: str) -> str:
    return f'lakehouse_records_total{{@,lakehouse_outcome="{outcome}"}}'


def quantiles(metric: str, by: str, *shares: float) -> list[Query]:
    """The legend names the share only where there are several."""
    return [
        (
            f"histogram_quantile({share}, sum by ({by}, le) ({rate(f'{metric}_bucket{{@}}')}))",
            f"{{{{{by}}}}}" + (f" p{share * 100:g}" if len(shares) > 1 else ""),
        )
        for share in shares
    ]


# -- the panels ---------------------------------------------------------------------------------------------


def stat(title: str, unit: str, query: str, *limits: tuple[float, str]) -> Panel:
    """One number; from which value on it has which colour."""
    return Panel(title, unit, [(query, "")], "stat", 4, limits=limits)


def lines(title: str, unit: str, *queries: Query, says: str = "", width: int = 8) -> Panel:
    return Panel(title, unit, queries, width=width, says=says)


def heaps(title: str, unit: str, *queries: Query, says: str = "", width: int = 8) -> Panel:
    return Panel(title, unit, queries, width=width, says=says, stacked=True)


GOOD, SOON, BAD = "green", "orange", "red"
DEAD, LANDED, ALL = records("dead"), records("landed"), "lakehouse_records_total{@}"
DEAD_IN_RANGE, ALL_IN_RANGE = (f"sum({increase(series, '$__range')})" for series in (DEAD, ALL))
WAIT, WAIT_S = "lakehouse_lag{@}", "lakehouse_lag_time_seconds{@}"
FOUND = "last_over_time(lakehouse_verify_findings{@}[2d])"
REASONED = 'lakehouse_records_total{@,lakehouse_reason!=""}'
PHASES = 'lakehouse_spark_phase_duration_seconds{@,lakehouse_phase!="triggerExecution"}'
CPU = rate("lakehouse_process_cpu_seconds_total{@}")
FRESHNESS, COMMITS = "lakehouse_freshness_seconds", "lakehouse_commit_duration_seconds"
STAGES = "lakehouse_stage_duration_seconds"

OVERVIEW = [
    stat("Streams that run", "short", "sum(lakehouse_running{@})"),
    stat("Streams that do not", "short", "sum(1 - lakehouse_running{@})", (0, GOOD), (1, BAD)),
    stat("Landed", "cps", f"sum({rate(LANDED)})"),
    stat("Records that wait", "short", f"sum({WAIT})"),
    stat("The oldest of them for", "s", f"max({WAIT_S})", (0, GOOD), (60, SOON), (300, BAD)),
    stat("Dead letters", "short", DEAD_IN_RANGE, (0, GOOD), (1, SOON)),
    heaps("Records by what became of them", "cps", total("lakehouse_outcome", rate(ALL)), width=12),
    lines(
        "Freshness: from the broker to visible",
        "s",
        *quantiles(FRESHNESS, "lakehouse_stream", 0.5, 0.95),
        says="Of the oldest record of each batch, by the broker's time",
        width=12,
    ),
    lines("Records that wait", "short", total("lakehouse_stream", WAIT)),
    lines(
        "Since the last landing",
        "s",
        each("time() - lakehouse_landed_timestamp_seconds{@}"),
        says="Grows as well while there is nothing to land",
    ),
    lines("Batches a minute", "short", total("lakehouse_outcome", f"60 * {rate('lakehouse_batches_total{@}')}")),
    Panel("Streams", "short", [each("lakehouse_running{@}")], "state-timeline", says="1: its query runs"),
    lines("Errors", "short", total("error_type", increase("lakehouse_errors_total{@}"))),
    lines("Streams begun again", "short", total("lakehouse_cause", increase("lakehouse_restarts_total{@}"))),
    lines(
        "Warnings",
        "short",
        total("lakehouse_event", increase("lakehouse_warnings_total{@}")),
        says="Log lines that somebody should look at and that nothing else here counts; spark: its errors",
    ),
]

TABLES = [
    lines("Rows", "short", each("lakehouse_table_rows{@}", TABLE)),
    lines("Size", "bytes", each("lakehouse_table_size_bytes{@}", TABLE)),
    lines("Data files", "short", each("lakehouse_table_files{@}", TABLE)),
    lines(
        "Size of a file, on average",
        "bytes",
        each(ratio("lakehouse_table_size_bytes{@}", "lakehouse_table_files{@}"), TABLE),
        says="Small ones make readers slow: compact the table, or land less often",
    ),
    lines("Snapshots", "short", each("lakehouse_table_snapshots{@}", TABLE)),
    lines(
        "Size of the metadata",
        "bytes",
        each("lakehouse_table_metadata_bytes{@}", TABLE),
        says="What each reader loads first; `ledger.keep_snapshots` bounds it",
    ),
    lines(
        "Partitions that a landing wrote to",
        "short",
        each("lakehouse_table_partitions{@}", TABLE),
        says="Many at once make small files: coarser partitions, or fewer late records",
    ),
    lines("Snapshots expired", "short", total("lakehouse_table", increase("lakehouse_snapshots_expired_total{@}"))),
    heaps("Landed", "cps", total("lakehouse_table", rate(LANDED))),
    heaps("Written", "Bps", total("lakehouse_table", rate("lakehouse_written_bytes_total{@}"))),
    lines("Files added a minute", "short", total("lakehouse_table", f"60 * {rate('lakehouse_files_total{@}')}")),
    lines("Commits, p95", "s", *quantiles(COMMITS, "lakehouse_table", 0.95)),
    lines(
        "Commits that another came before",
        "short",
        total("lakehouse_table", increase("lakehouse_commit_retries_total{@}")),
        says="Staged again, from the same files",
    ),
    lines(
        "Commits whose answer was lost",
        "short",
        total("lakehouse_table", increase("lakehouse_commit_reconciled_total{@}")),
        says="They have landed: the table showed it",
    ),
]

DEAD_LETTERS = [
    stat("Dead letters", "short", DEAD_IN_RANGE, (0, GOOD), (1, SOON)),
    stat("Of all records", "percentunit", ratio(DEAD_IN_RANGE, ALL_IN_RANGE), (0, GOOD), (0.001, SOON), (0.01, BAD)),
    stat("Schema changes", "short", f"sum({increase('lakehouse_schema_changes_total{@}', '$__range')})"),
    stat("Wrong, says verify", "short", f"sum({FOUND.replace('@', UNLESS_UNKNOWN)})", (0, GOOD), (1, BAD)),
    stat("Verified before", "s", "min(time() - last_over_time(lakehouse_verify_timestamp_seconds{@}[7d]))"),
    Panel("By reason", "short", [total("lakehouse_reason", increase(DEAD, "$__range"))], "bargauge", 12),
    heaps("Dead and discarded, by reason", "cps", total("lakehouse_reason", rate(REASONED)), width=12),
    lines(
        "Share of dead letters",
        "percentunit",
        each(ratio(f"sum by (lakehouse_stream) ({rate(DEAD)})", f"sum by (lakehouse_stream) ({rate(ALL)})")),
    ),
    lines("Schema changes", "short", total("lakehouse_table", increase("lakehouse_schema_changes_total{@}"))),
    lines("What verify has found", "short", total("lakehouse_kind", FOUND), says="At its last run, of two days"),
]

LATENCY = [
    lines("Freshness", "s", *quantiles(FRESHNESS, "lakehouse_stream", 0.5, 0.95, 0.99)),
    lines(
        "Age of the newest event time",
        "s",
        each("lakehouse_event_age_seconds{@}"),
        says="When it became visible; below 0: the events' clock is ahead of ours",
    ),
    lines("The oldest record that waits, for", "s", each(WAIT_S), says="At most"),
    lines("Records that wait", "short", each(WAIT, "{{lakehouse_topic}}/{{lakehouse_partition}}")),
    lines(
        "Offsets that wait for a transaction",
        "short",
        each("lakehouse_uncommitted{@}", "{{lakehouse_topic}}/{{lakehouse_partition}}"),
        says="One that is open; no part of the lag. Where it stays, kafka-transactions.sh find-hanging",
    ),
    lines(
        "Offsets a second",
        "short",
        total("lakehouse_topic", rate("lakehouse_offset{@}")),
        says="Holes of the log count as well",
    ),
    lines("Received", "Bps", total("lakehouse_stream", rate("lakehouse_received_bytes_total{@}"))),
    lines("Batches", "s", *quantiles("lakehouse_batch_duration_seconds", "lakehouse_stream", 0.5, 0.95)),
    lines(
        "Stages, on average",
        "s",
        each(
            ratio(*(f"sum by (lakehouse_stage) ({rate(f'{STAGES}_{part}{{@}}')})" for part in ("sum", "count"))),
            "{{lakehouse_stage}}",
        ),
        says="Of one table each; tables are written side by side",
    ),
    lines("Commits, p95", "s", *quantiles(COMMITS, "lakehouse_table", 0.95)),
    heaps(
        "Spark's phases of its last trigger",
        "s",
        total("lakehouse_phase", PHASES),
        says="addBatch holds the wait for the next batch to be due",
        width=12,
    ),
    lines(
        "Spark's rates of its last trigger",
        "cps",
        each("lakehouse_spark_input_rate_per_second{@}", f"{STREAM} in"),
        each("lakehouse_spark_processed_rate_per_second{@}", f"{STREAM} processed"),
        width=12,
    ),
]

PROCESS = [
    heaps("Processors in use", "short", total("lakehouse_process", CPU), width=12),
    heaps("Memory", "bytes", total("lakehouse_process", "lakehouse_process_memory_bytes{@}"), width=12),
    lines("Processor time for a million records", "s", each(ratio(f"1e6 * sum({CPU})", f"sum({rate(LANDED)})"), "all")),
    lines(
        "Spans and pushes that nobody took",
        "short",
        total("lakehouse_signal", "lakehouse_telemetry_dropped_total"),
        says="Since the process began; no batch has waited for them",
    ),
    lines("Being scraped takes", "s", each('scrape_duration_seconds{job="lakehouse-ingest"}', "{{instance}}")),
]

DASHBOARDS = (
    Dashboard("overview", "Overview", OVERVIEW),
    Dashboard("tables", "Tables", TABLES),
    Dashboard("dead-letters", "Dead letters and schema", DEAD_LETTERS),
    Dashboard("latency", "Latency and lag", LATENCY),
    Dashboard("process", "Process", PROCESS),
)


# -- as Grafana has it --------------------------------------------------------------------------------------


def placed(panels: Sequence[Panel]) -> Iterator[tuple[Panel, dict[str, int]]]:
    """From left to right, from top to bottom; a row is as high as its highest."""
    x = y = highest = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, highest = 0, y + highest, 0
        height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        yield panel, {"x": x, "y": y, "w": panel.width, "h": height}
        x, highest = x + panel.width, max(highest, height)


def as_panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps = [
        {"color": colour, "value": value if index else None} for index, (value, colour) in enumerate(panel.limits)
    ] or [{"color": "blue", "value": None}]
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {
            "fillOpacity": 25 if panel.stacked else 8,
            "showPoints": "never",
            "spanNulls": 60_000,
            "axisSoftMin": 0,
        }
        custom["stacking"] = {"mode": "normal" if panel.stacked else "none"}
    defaults = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "custom": custom}
    if panel.kind != "stat":
        defaults["color"] = {"mode": "palette-classic"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **({"description": panel.says} if panel.says else {}),
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.replace("@", CHOSEN), "legendFormat": legend or "__auto"}
            for index, (query, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    last = {"calcs": ["lastNotNull"], "values": False}
    shown = {"stat": {"colorMode": "value", "graphMode": "area"}, "bargauge": {"orientation": "horizontal"}}
    return {"reduceOptions": last, **shown[panel.kind]} if panel.kind in shown else {"showValue": "never"}


def as_dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"lakehouse-{dashboard.name}",
        "title": f"lakehouse-ingest: {dashboard.title}",
        "tags": ["lakehouse-ingest"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {"type": "dashboards", "title": "", "tags": ["lakehouse-ingest"], "keepTime": True, "includeVars": True}
        ],
        "templating": {"list": [_datasource(), _pipeline()]},
        "panels": [as_panel(panel, number, place) for number, (panel, place) in enumerate(placed(dashboard.panels), 1)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _pipeline() -> dict[str, Any]:
    query = "label_values(lakehouse_running, lakehouse_pipeline)"
    return {
        "name": "pipeline",
        "label": "Pipeline",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": {"query": query, "refId": "pipelines"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def written(dashboard: Dashboard) -> str:
    """A panel a line: what changes in one shows in one line."""
    made = as_dashboard(dashboard)
    panels = ",\n".join(f"  {json.dumps(panel)}" for panel in made.pop("panels"))
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in made.items())
    return f'{{\n{head},\n "panels": [\n{panels}\n ]\n}}\n'


def files() -> dict[Path, str]:
    return {FOLDER / f"{dashboard.name}.json": written(dashboard) for dashboard in DASHBOARDS}


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
        print(file.name)
