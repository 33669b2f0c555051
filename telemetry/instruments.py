"""The catalogue of everything that is measured: what is not in it can't be recorded.

Names follow OpenTelemetry: dotted, units apart, counts of things in the plural. An attribute is written as a
bare word (`pipeline`) and leaves the process under our prefix (`lakehouse.pipeline`); a name with a dot in
it (`error.type`) belongs to a public convention and leaves as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]

# The SDK's own boundaries are made for milliseconds. Freshness after an outage is counted in hours.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400)


class UnknownInstrument(LookupError):
    """A programming error: the name, its kind or an attribute isn't in the catalogue."""


@dataclass(frozen=True)
class Instrument:
    name: str
    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


def _catalogue(*instruments: Instrument) -> dict[str, Instrument]:
    return {instrument.name: instrument for instrument in instruments}


def _seconds(name: str, attributes: tuple[str, ...], meaning: str) -> Instrument:
    return Instrument(name, "histogram", "s", attributes, meaning, SECONDS)


STREAM = ("pipeline", "stream")
TABLE = ("pipeline", "table")
DROPPED = "lakehouse.telemetry.dropped"

INSTRUMENTS: Mapping[str, Instrument] = _catalogue(
    Instrument(
        "lakehouse.batches",
        "counter",
        "{batch}",
        (*STREAM, "outcome"),
        "Batches; outcome is landed or failed",
    ),
    Instrument(
        "lakehouse.records",
        "counter",
        "{record}",
        (*STREAM, "table", "outcome", "reason"),
        "Where records went: landed, dead, trimmed, filtered or discarded; reason for the dead and discarded",
    ),
    Instrument("lakehouse.errors", "counter", "{error}", ("pipeline", "error.type"), "Errors, by class"),
    _seconds("lakehouse.batch.duration", STREAM, "From the start of a batch to its acknowledgement"),
    _seconds("lakehouse.stage.duration", (*STREAM, "stage"), "One stage of one batch"),
    _seconds("lakehouse.commit.duration", TABLE, "From the first byte written to the snapshot being visible"),
    Instrument(
        "lakehouse.commit.retries",
        "counter",
        "{retry}",
        TABLE,
        "Commits refused by the catalog and tried again",
    ),
    _seconds("lakehouse.freshness", STREAM, "From the broker's time of a record to the record being visible"),
    Instrument("lakehouse.files", "counter", "{file}", TABLE, "Data files added"),
    Instrument(
        "lakehouse.restarts",
        "counter",
        "{restart}",
        (*STREAM, "cause"),
        "Streams started again after an error",
    ),
    Instrument("lakehouse.schema.changes", "counter", "{change}", TABLE, "Schema changes of tables"),
    Instrument("lakehouse.snapshots.expired", "counter", "{snapshot}", TABLE, "Snapshots expired"),
    Instrument(
        DROPPED,
        "counter",
        "{item}",
        ("signal",),
        "Spans (traces) and pushes (metrics) that the collector never got",
    ),
)


@cache
def exported(attribute: str) -> str:
    """The name under which an attribute leaves the process."""
    return attribute if "." in attribute else f"lakehouse.{attribute}"


def check(instruments: Mapping[str, Instrument], name: str, kind: Kind, attributes: Iterable[str]) -> None:
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
