"""Describes the Grafana dashboards; `python deploy/grafana/dashboards.py` writes their JSON files."""

from pathlib import Path

from grafana_json import written
from panels import (
    TABLE,
    Dashboard,
    Panel,
    each,
    heaps,
    increase,
    lines,
    quantiles,
    rate,
    ratio,
    records,
    stat,
    total,
)

FOLDER = Path(__file__).with_name("dashboards")
UNLESS_UNKNOWN = '@,lakehouse_kind!="unknown"'

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
    stat("Streams running", "short", "sum(lakehouse_running{@})", says="Streams whose Spark query is running"),
    stat(
        "Streams not running",
        "short",
        "sum(1 - lakehouse_running{@})",
        (0, GOOD),
        (1, BAD),
        says="They wait for a retry, have failed, or have ended. /ready gives the reason",
    ),
    stat("Rows written", "cps", f"sum({rate(LANDED)})", says="Per second, over all tables"),
    stat("Records waiting", "short", f"sum({WAIT})", says="In the source, and in no table yet"),
    stat(
        "Oldest waiting record (age)",
        "s",
        f"max({WAIT_S})",
        (0, GOOD),
        (60, SOON),
        (300, BAD),
        says="An upper bound. Compare it with the retention of the topic",
    ),
    stat("Dead-letter records", "short", DEAD_IN_RANGE, (0, GOOD), (1, SOON), says="Over the shown time"),
    heaps("Records by outcome", "cps", total("lakehouse_outcome", rate(ALL)), width=12),
    lines(
        "Freshness: broker to visible row",
        "s",
        *quantiles(FRESHNESS, "lakehouse_stream", 0.5, 0.95),
        says="Age of the oldest record of a batch when its row became visible, by the broker's clock",
        width=12,
    ),
    lines("Records waiting", "short", total("lakehouse_stream", WAIT), says="In the source, and in no table yet"),
    lines(
        "Time since the last batch",
        "s",
        each("time() - lakehouse_landed_timestamp_seconds{@}"),
        says="Also grows while there is nothing to read",
    ),
    lines(
        "Batches per minute",
        "short",
        total("lakehouse_outcome", f"60 * {rate('lakehouse_batches_total{@}')}"),
        says="A failed batch is retried, and no record is lost",
    ),
    Panel(
        "Streams running",
        "short",
        [each("lakehouse_running{@}")],
        "state-timeline",
        says="1: the stream's Spark query is running",
    ),
    lines(
        "Errors",
        "short",
        total("error_type", increase("lakehouse_errors_total{@}")),
        says="Errors that ended a start of a stream, by class",
    ),
    lines(
        "Stream restarts",
        "short",
        total("lakehouse_cause", increase("lakehouse_restarts_total{@}")),
        says="After an error, by its class. The stream begins again where the tables are",
    ),
    lines(
        "Warnings",
        "short",
        total("lakehouse_event", increase("lakehouse_warnings_total{@}")),
        says="Log events that need attention and that no other panel counts. spark: errors that Spark logged",
    ),
]

TABLES = [
    lines("Rows", "short", each("lakehouse_table_rows{@}", TABLE), says="Rows of the table after its last batch"),
    lines("Size", "bytes", each("lakehouse_table_size_bytes{@}", TABLE), says="Total size of the data files"),
    lines("Data files", "short", each("lakehouse_table_files{@}", TABLE), says="Files that hold the rows now"),
    lines(
        "Average file size",
        "bytes",
        each(ratio("lakehouse_table_size_bytes{@}", "lakehouse_table_files{@}"), TABLE),
        says="Many small files slow readers down. Compact the table, or set a longer commit interval (`every`)",
    ),
    lines(
        "Snapshots",
        "short",
        each("lakehouse_table_snapshots{@}", TABLE),
        says="`ledger.keep_snapshots` and `ledger.keep_for` limit it",
    ),
    lines(
        "Metadata size",
        "bytes",
        each("lakehouse_table_metadata_bytes{@}", TABLE),
        says="Size of the metadata file, which every reader loads first. `ledger.keep_snapshots` limits it",
    ),
    lines(
        "Partitions written per batch",
        "short",
        each("lakehouse_table_partitions{@}", TABLE),
        says="Many partitions in one batch make small files. Use coarser partitions, or look for late records",
    ),
    lines(
        "Snapshots expired",
        "short",
        total("lakehouse_table", increase("lakehouse_snapshots_expired_total{@}")),
        says="Snapshots that the pipeline removed",
    ),
    heaps("Rows written", "cps", total("lakehouse_table", rate(LANDED))),
    heaps("Bytes written", "Bps", total("lakehouse_table", rate("lakehouse_written_bytes_total{@}"))),
    lines("Files added per minute", "short", total("lakehouse_table", f"60 * {rate('lakehouse_files_total{@}')}")),
    lines(
        "Commit duration, p95",
        "s",
        *quantiles(COMMITS, "lakehouse_table", 0.95),
        says="From the first request to the visible snapshot",
    ),
    lines(
        "Commit retries",
        "short",
        total("lakehouse_table", increase("lakehouse_commit_retries_total{@}")),
        says="Another writer committed first. The same files were committed again on top of that commit",
    ),
    lines(
        "Commits confirmed by lookup",
        "short",
        total("lakehouse_table", increase("lakehouse_commit_reconciled_total{@}")),
        says="The catalog's answer was lost or wrong. The table showed that the commit had succeeded",
    ),
]

DEAD_LETTERS = [
    stat("Dead-letter records", "short", DEAD_IN_RANGE, (0, GOOD), (1, SOON), says="Over the shown time"),
    stat(
        "Dead-letter share",
        "percentunit",
        ratio(DEAD_IN_RANGE, ALL_IN_RANGE),
        (0, GOOD),
        (0.001, SOON),
        (0.01, BAD),
        says="Of all records, over the shown time",
    ),
    stat(
        "Schema changes",
        "short",
        f"sum({increase('lakehouse_schema_changes_total{@}', '$__range')})",
        says="Columns added or widened, over the shown time",
    ),
    stat(
        "Verify findings",
        "short",
        f"sum({FOUND.replace('@', UNLESS_UNKNOWN)})",
        (0, GOOD),
        (1, BAD),
        says="Losses, duplicates and contradictions, from the last run of `verify` within two days",
    ),
    stat(
        "Time since last verify",
        "s",
        "min(time() - last_over_time(lakehouse_verify_timestamp_seconds{@}[7d]))",
        says="Run `verify` every night",
    ),
    Panel(
        "Dead-letter records by reason",
        "short",
        [total("lakehouse_reason", increase(DEAD, "$__range"))],
        "bargauge",
        12,
    ),
    heaps("Dead-lettered and discarded records by reason", "cps", total("lakehouse_reason", rate(REASONED)), width=12),
    lines(
        "Dead-letter share by stream",
        "percentunit",
        each(ratio(f"sum by (lakehouse_stream) ({rate(DEAD)})", f"sum by (lakehouse_stream) ({rate(ALL)})")),
    ),
    lines(
        "Schema changes",
        "short",
        total("lakehouse_table", increase("lakehouse_schema_changes_total{@}")),
        says="Columns added or widened, by table",
    ),
    lines(
        "Verify findings by kind",
        "short",
        total("lakehouse_kind", FOUND),
        says="From the last run of `verify` within two days",
    ),
]

LATENCY = [
    lines(
        "Freshness",
        "s",
        *quantiles(FRESHNESS, "lakehouse_stream", 0.5, 0.95, 0.99),
        says="Age of the oldest record of a batch when its row became visible, by the broker's clock",
    ),
    lines(
        "Age of the newest event time",
        "s",
        each("lakehouse_event_age_seconds{@}"),
        says="At the moment its row became visible. Below 0, the clock of the events is ahead of this machine's",
    ),
    lines("Oldest waiting record (age)", "s", each(WAIT_S), says="An upper bound"),
    lines(
        "Records waiting by partition",
        "short",
        each(WAIT, "{{lakehouse_topic}}/{{lakehouse_partition}}"),
        says="In the source, and in no table yet",
    ),
    lines(
        "Offsets waiting for a transaction",
        "short",
        each("lakehouse_uncommitted{@}", "{{lakehouse_topic}}/{{lakehouse_partition}}"),
        says="Held back by an open transaction; not part of the lag. If it stays: kafka-transactions.sh find-hanging",
    ),
    lines(
        "Offsets per second",
        "short",
        total("lakehouse_topic", rate("lakehouse_offset{@}")),
        says="Includes offset gaps",
    ),
    lines(
        "Bytes received",
        "Bps",
        total("lakehouse_stream", rate("lakehouse_received_bytes_total{@}")),
        says="Size of the values of the records",
    ),
    lines(
        "Batch duration",
        "s",
        *quantiles("lakehouse_batch_duration_seconds", "lakehouse_stream", 0.5, 0.95),
        says="From the start of a batch to its end, with all tables committed",
    ),
    lines(
        "Average duration of batch steps",
        "s",
        each(
            ratio(*(f"sum by (lakehouse_stage) ({rate(f'{STAGES}_{part}{{@}}')})" for part in ("sum", "count"))),
            "{{lakehouse_stage}}",
        ),
        says="From read to write: the sum of all tasks, which run at the same time",
    ),
    lines(
        "Commit duration, p95",
        "s",
        *quantiles(COMMITS, "lakehouse_table", 0.95),
        says="From the first request to the visible snapshot",
    ),
    heaps(
        "Spark phases, last trigger",
        "s",
        total("lakehouse_phase", PHASES),
        says="addBatch includes the wait for the next batch",
        width=16,
    ),
]

PROCESS = [
    heaps(
        "CPU cores in use",
        "short",
        total("lakehouse_process", CPU),
        width=12,
        says="Of the driver, the JVM and its Python workers",
    ),
    heaps(
        "Memory",
        "bytes",
        total("lakehouse_process", "lakehouse_process_memory_bytes{@}"),
        width=12,
        says="Resident memory of the driver, the JVM and its Python workers",
    ),
    lines(
        "CPU seconds per million rows",
        "s",
        each(ratio(f"1e6 * sum({CPU})", f"sum({rate(LANDED)})"), "all"),
        says="CPU time of the driver, the JVM and the workers",
    ),
    lines(
        "Telemetry dropped",
        "short",
        total("lakehouse_signal", "lakehouse_telemetry_dropped_total"),
        says="Spans and metric pushes that the collector never got since the process started. No batch waits for them",
    ),
    lines(
        "Scrape duration",
        "s",
        each('scrape_duration_seconds{job="lakehouse-ingest"}', "{{instance}}"),
        says="How long Prometheus takes to scrape /metrics",
    ),
]

DASHBOARDS = (
    Dashboard("overview", "Overview", OVERVIEW),
    Dashboard("tables", "Tables", TABLES),
    Dashboard("dead-letters", "Dead-letter records and schema", DEAD_LETTERS),
    Dashboard("latency", "Latency and lag", LATENCY),
    Dashboard("process", "Process", PROCESS),
)


def files() -> dict[Path, str]:
    return {FOLDER / f"{dashboard.name}.json": written(dashboard) for dashboard in DASHBOARDS}


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
        print(file.name)
