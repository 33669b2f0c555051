"""The list of everything that is measured. What is not in it cannot be recorded.

Names follow OpenTelemetry: dotted, units apart, counts of things in the plural. An attribute is written as a bare word
(`pipeline`) and leaves the process under our prefix (`lakehouse.pipeline`). A name with a dot (`error.type`) belongs to
a public convention and leaves as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]
Values = Mapping[str, tuple[str, ...]]

# The SDK's own boundaries are meant for milliseconds. Freshness after an outage is counted in hours.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400)


class UnknownInstrument(LookupError):
    """A programming error: the name, its kind, an attribute or its value is not in the catalogue."""


@dataclass(frozen=True)
class Instrument:
    """`values`: the closed list of an attribute that has one."""

    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()
    values: Values = field(default_factory=dict)


def _catalogue(*instruments: Instrument) -> dict[str, Instrument]:
    return {instrument.name: instrument for instrument in instruments}


def _seconds(name: str, attributes: tuple[str, ...], meaning: str, values: Values | None = None) -> Instrument:
    return Instrument(name, "histogram", "s", attributes, meaning, SECONDS, values or {})


# Where an attribute has no closed list, these words say what keeps its values few. Beyond 2,000 series of one
# instrument the SDK adds the rest up under `otel.metric.overflow`.
ATTRIBUTES: Mapping[str, str] = {
    "pipeline": "the pipeline's name, one a process",
    "stream": "name of the stream, one for each in the settings",
    "table": "table with its namespace, at most `streams.max_tables` for each stream, and the dead-letter table",
    "topic": "topic that is read",
    "partition": "number of its partition",
    "outcome": "what became of it",
    "reason": "why a record is dead or discarded",
    "stage": "part of a batch",
    "event": "name of the log line",
    "phase": "part of one trigger, in Spark's words",
    "process": "which process of the pipeline",
    "kind": "what `verify` looks for; `unknown`: what it could not decide",
    "cause": "class of the error",
    "error.type": "class of the error",
    "signal": "what was to be sent",
}

STREAM = ("pipeline", "stream")
PARTITION = (*STREAM, "topic", "partition")
TABLE = ("pipeline", "table")
PROCESS = ("pipeline", "process")
DROPPED = "lakehouse.telemetry.dropped"

OUTCOMES = ("landed", "dead", "trimmed", "filtered", "discarded")
REASONS = (
    "empty_value",
    "not_utf8",
    "broken_json",
    "not_an_object",
    "wrong_type",
    "out_of_range",
    "missing_field",
    "wrong_event_time",
    "no_column",
    "no_table",
    "too_many_tables",
    "set_aside",
    "name_taken",
)
WARNINGS = (
    "batches_reduced",
    "catalog_hard_to_try",
    "fence_not_moved",
    "group_offsets_not_published",
    "many_files",
    "memory_short",
    "metadata_not_measured",
    "replicas_take_turns",
    "settings_changed",
    "settings_not_read_again",
    "snapshots_not_expired",
    "spark",
    "tables_passed_over",
    "tasks_wait",
    "transaction_hangs",
    "variable_not_read",
)
STAGES = ("read", "route", "decode", "transform", "shape", "write", "plan", "dead_letters", "record")
PROCESSES = {"process": ("driver", "jvm", "workers")}
KINDS = (
    "duplicate",
    "lost",
    "count",
    "overlap",
    "rolled_back",
    "file_missing",
    "file_twice",
    "table_gone",
    "unknown",
)

INSTRUMENTS: Mapping[str, Instrument] = _catalogue(
    Instrument(
        "lakehouse.batches",
        "counter",
        "{batch}",
        (*STREAM, "outcome"),
        "Batches; a failed batch is run again",
        values={"outcome": ("landed", "failed")},
    ),
    Instrument(
        "lakehouse.records",
        "counter",
        "{record}",
        (*STREAM, "table", "outcome", "reason"),
        "Records by outcome; landed ones have a table, dead and discarded ones a reason",
        values={"outcome": OUTCOMES, "reason": REASONS},
    ),
    Instrument("lakehouse.received", "counter", "By", STREAM, "Size of the values of all records that were received"),
    Instrument(
        "lakehouse.errors", "counter", "{error}", ("pipeline", "error.type"), "Errors that ended a start of a stream"
    ),
    Instrument(
        "lakehouse.warnings",
        "counter",
        "{warning}",
        ("pipeline", "event"),
        "Log lines that somebody should look at and that no other metric counts; `spark`: what Spark has logged itself",
        values={"event": WARNINGS},
    ),
    Instrument(
        "lakehouse.restarts",
        "counter",
        "{restart}",
        (*STREAM, "cause"),
        "Starts of a stream after an error",
    ),
    Instrument("lakehouse.running", "gauge", "", STREAM, "1 while the stream's query runs, else 0"),
    # -- time ---------------------------------------------------------------------------------------------
    _seconds("lakehouse.batch.duration", STREAM, "From the start of a batch to its acknowledgement"),
    _seconds(
        "lakehouse.stage.duration",
        (*STREAM, "stage"),
        "One stage of one batch. From read to write: the sum of all tasks; the others run on the driver",
        {"stage": STAGES},
    ),
    _seconds("lakehouse.commit.duration", TABLE, "From the first request to publish to the snapshot being visible"),
    _seconds("lakehouse.freshness", STREAM, "From the broker's time of a batch's oldest record to its being visible"),
    Instrument(
        "lakehouse.event.age",
        "gauge",
        "s",
        STREAM,
        "Age of the newest event time of the last batch when the batch became visible; below 0: it lies in the future",
    ),
    Instrument(
        "lakehouse.landed.timestamp", "gauge", "s", STREAM, "When the last batch was done, in seconds since 1970"
    ),
    # -- how far ------------------------------------------------------------------------------------------
    Instrument(
        "lakehouse.lag", "gauge", "{record}", PARTITION, "Offsets between the complete ones and the partition's end"
    ),
    Instrument(
        "lakehouse.lag.time",
        "gauge",
        "s",
        STREAM,
        "How long the oldest record that no table holds yet has waited, at most",
    ),
    Instrument(
        "lakehouse.uncommitted",
        "gauge",
        "{record}",
        PARTITION,
        "Offsets from the last stable offset to the high watermark: they wait for the end of an open transaction, and"
        " are not part of the lag; 0 with `read_uncommitted`",
    ),
    Instrument(
        "lakehouse.offset",
        "gauge",
        "{record}",
        PARTITION,
        "The first offset that is not complete yet",
    ),
    # -- tables -------------------------------------------------------------------------------------------
    Instrument("lakehouse.files", "counter", "{file}", TABLE, "Data files added"),
    Instrument("lakehouse.written", "counter", "By", TABLE, "Size of the data files added"),
    Instrument(
        "lakehouse.commit.retries",
        "counter",
        "{retry}",
        TABLE,
        "Commits repeated, with the same files, because another commit came first",
    ),
    Instrument(
        "lakehouse.commit.reconciled",
        "counter",
        "{commit}",
        TABLE,
        "Commits whose answer was lost, and that the table was found to hold",
    ),
    Instrument("lakehouse.schema.changes", "counter", "{change}", TABLE, "Schema changes of tables"),
    Instrument("lakehouse.snapshots.expired", "counter", "{snapshot}", TABLE, "Snapshots expired"),
    Instrument("lakehouse.table.snapshots", "gauge", "{snapshot}", TABLE, "Snapshots of the table after a batch"),
    Instrument("lakehouse.table.rows", "gauge", "{row}", TABLE, "Rows of the table after a batch"),
    Instrument("lakehouse.table.files", "gauge", "{file}", TABLE, "Data files of the table after a batch"),
    Instrument("lakehouse.table.size", "gauge", "By", TABLE, "Size of those files"),
    Instrument(
        "lakehouse.table.partitions", "gauge", "{partition}", TABLE, "Partitions that the last batch has written to"
    ),
    Instrument(
        "lakehouse.table.metadata",
        "gauge",
        "By",
        TABLE,
        "Size of the table's metadata file, which each reader loads first; measured once a minute",
    ),
    # -- pushed by `verify`, which ends soon ---------------------------------------------------------------
    Instrument(
        "lakehouse.verify.findings",
        "gauge",
        "{finding}",
        (*STREAM, "kind"),
        "Findings of the last `verify`",
        values={"kind": KINDS},
    ),
    Instrument("lakehouse.verify.timestamp", "gauge", "s", STREAM, "When `verify` last ended, in seconds since 1970"),
    # -- Spark and the processes --------------------------------------------------------------------------
    Instrument(
        "lakehouse.spark.phase.duration",
        "gauge",
        "s",
        (*STREAM, "phase"),
        "Spark's durationMs of its last trigger; addBatch and triggerExecution include our wait for the next batch",
    ),
    Instrument("lakehouse.process.cpu", "counter", "s", PROCESS, "Processor time used", values=PROCESSES),
    Instrument("lakehouse.process.memory", "gauge", "By", PROCESS, "Resident memory", values=PROCESSES),
    Instrument(
        DROPPED,
        "counter",
        "{item}",
        ("signal",),
        "Spans (traces) and pushes (metrics) that the collector never got",
        values={"signal": ("traces", "metrics")},
    ),
)


@cache
def exported(attribute: str) -> str:
    """The name under which an attribute leaves the process."""
    return attribute if "." in attribute else f"lakehouse.{attribute}"


def check(
    instruments: Mapping[str, Instrument], name: str, kind: Kind, attributes: Iterable[str] | Mapping[str, object]
) -> None:
    """A typing error must fail a test, not show up as a gap on a dashboard."""
    instrument = instruments.get(name)
    if instrument is None:
        raise UnknownInstrument(f"{name!r} is not in the catalogue: {', '.join(sorted(instruments))}")
    if instrument.kind != kind:
        raise UnknownInstrument(f"{name!r} is a {instrument.kind}, used as a {kind}")
    for attribute in attributes:
        if attribute not in instrument.attributes:
            known = ", ".join(instrument.attributes)
            raise UnknownInstrument(f"{name!r} has no attribute {attribute!r}, only: {known}")
    if isinstance(attributes, Mapping):
        for attribute, allowed in instrument.values.items():
            if (value := attributes.get(attribute)) is not None and value not in allowed:
                raise UnknownInstrument(f"{name!r} has no {attribute} {value!r}, only: {', '.join(allowed)}")
