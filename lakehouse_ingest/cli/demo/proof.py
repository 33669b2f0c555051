"""Whether the counts add up: `verify` says that every offset is in one place, and the producer what it made.

A second engine counts the rows again, so that nobody has to believe `verify` alone.
"""

import dataclasses
import datetime as dt
import importlib.metadata
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from lakehouse_ingest.cli.demo.events import Made
from lakehouse_ingest.cli.demo.reading_back import ALARMS, BATCHES, DEAD, NAMESPACE, TOPIC, Found, Since, catalog
from lakehouse_ingest.operations.verify.findings import StreamVerdict
from lakehouse_ingest.records import Offsets


@dataclass(frozen=True)
class Batch:
    """One batch as the pipeline told it."""

    received: int
    seconds: float
    freshness: float | None  # from the broker's time of its oldest record until all of it was visible


@dataclass(frozen=True)
class Run:
    """What was done, as known outside of the tables."""

    folder: Path
    warehouse: Path
    uri: str
    token: str = field(repr=False)
    made: Made
    begins: Offsets  # the topic's ends before this run
    ends: Offsets  # and now
    batches: Sequence[Batch]
    seconds: Mapping[str, float]

    @property
    def size(self) -> int:
        """How many offsets the topic got in this run."""
        return sum(self.ends.values()) - sum(self.begins.values())

    @property
    def received(self) -> int:
        return sum(batch.received for batch in self.batches)


def problems(run: Run, verdict: StreamVerdict | None, found: Found) -> list[str]:
    """Each a sentence; none when every record produced is in exactly the one place where it should be."""
    return [*_verified(run, verdict, found), *_produced(run, found), *_appeared(run, found)]


def _verified(run: Run, verdict: StreamVerdict | None, found: Found) -> Iterator[str]:
    """`verify` has looked at the whole topic and found nothing, and the second engine counts the same rows."""
    if verdict is None:
        yield "verify finds nothing of the pipeline in the catalog"
        return
    yield from (each.says for each in verdict.findings)
    produced = sum(run.ends.values())
    placed = sum(verdict.tables.values()) + verdict.dead + verdict.filtered
    if not verdict.offsets == placed == produced:
        yield (
            f"verify has counted {verdict.offsets} offsets, {placed} rows and filtered records;"
            f" the topic has {produced} offsets"
        )
    counted = {**verdict.tables, **({DEAD: verdict.dead} if verdict.dead else {})}
    there = {**found.landed(of_run=False), **({DEAD: dead} if (dead := sum(found.dead(of_run=False).values())) else {})}
    yield from _unequal(counted, there, "rows are counted by verify", f"by {found.engine}")


def _produced(run: Run, found: Found) -> Iterator[str]:
    """What became of the events of this run, against what the producer says it made."""
    made, size = run.made, run.size
    if size != made.acknowledged:
        yield f"{made.acknowledged} events were produced, the topic has grown by {size}"
    landed, dead = found.landed(of_run=True), found.dead(of_run=True)
    wanted = {f"{NAMESPACE}.{kind}": count for kind, count in made.sound.items()}
    yield from _unequal(wanted, landed, "events were made so", "landed")
    yield from _unequal(made.broken, dead, "events were made so", "are dead letters")
    left = size - sum(landed.values()) - sum(dead.values())
    if left != (filtered := made.filtered.total()):
        yield f"{left} offsets of this run are in no table, {filtered} events were made to be filtered"


def _unequal(made: Mapping[str, int], found: Mapping[str, int], so: str, what: str) -> Iterator[str]:
    for name in sorted({*made, *found}):
        if made.get(name, 0) != found.get(name, 0):
            yield f"{name}: {made.get(name, 0)} {so}, {found.get(name, 0)} {what}"


def _appeared(run: Run, found: Found) -> Iterator[str]:
    """A field that this run brought: all of its events have it from one on, and none before that one."""
    column, since = run.made.column, run.made.since
    if column is None or since is None:
        return
    nothing = Since(column, True, 0, 0, 0, 0, None, None)
    rows = {each.there: each for each in found.since if each.column == column}
    having, without = rows.get(True, nothing), rows.get(False, nothing)
    if (having.new, having.new_first) != (run.made.having, since):
        yield (
            f"{column}: {run.made.having} events were made with it, the first is {since};"
            f" {having.new} rows have it, the first is {having.new_first}"
        )
    if without.new_last is not None and without.new_last > since:
        yield f"{column}: event {without.new_last} has none, but it came after event {since}"


# -- what stays beside the warehouse -----------------------------------------------------------------------------------


def as_json(run: Run, verdict: StreamVerdict | None, found: Found, wrong: Sequence[str]) -> dict[str, Any]:
    ages = [batch.freshness for batch in run.batches if batch.freshness is not None]
    lake = catalog(run.uri, run.token)
    columns = found.columns
    return {
        "serve": f"lakehouse-ingest catalog serve --warehouse {quote(str(run.warehouse))}",
        "catalog": run.uri,
        "warehouse": str(run.warehouse),
        "topic": TOPIC,
        "tables": {"events": [*columns], "dead_letters": DEAD, "batches": BATCHES},
        "adds_up": not wrong,
        "problems": list(wrong),
        "counts": {"run": _of_run(run, found), "total": _in_total(run, verdict, found)},
        "verify": {"code": verdict.code, **dataclasses.asdict(verdict)} if verdict else None,
        "columns": columns,
        "columns_that_appeared": _columns(run, found),
        "days": _days({name: lake.load_table(name).inspect.partitions().to_pylist() for name in columns}),
        "snapshots": {name: len(lake.load_table(name).history()) for name in (*columns, DEAD, BATCHES)},
        "batches": len(run.batches),
        "freshness_s": {"p50": round(statistics.median(ages), 2), "max": round(max(ages), 2)} if ages else None,
        "events_per_second": round(run.received / max(0.1, run.seconds["ingesting"])),
        "seconds": {name: round(value, 1) for name, value in run.seconds.items()},
        "read_back_by": found.engine,
        "finished_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in ("lakehouse-ingest", "pyspark", "pyiceberg")},
    }


def _of_run(run: Run, found: Found) -> dict[str, Any]:
    outcomes = _outcomes(found, of_run=True)
    return {
        "produced": run.made.acknowledged,
        "received": run.received,
        **outcomes,
        "filtered": run.size - outcomes["landed"] - outcomes["dead"],
        "made": {"sound": dict(run.made.sound), "broken": dict(run.made.broken), "filtered": run.made.filtered.total()},
    }


def _in_total(run: Run, verdict: StreamVerdict | None, found: Found) -> dict[str, Any]:
    filtered = verdict.filtered if verdict else 0
    return {"produced": sum(run.ends.values()), **_outcomes(found, of_run=False), "filtered": filtered}


def _outcomes(found: Found, *, of_run: bool) -> dict[str, Any]:
    landed, dead = found.landed(of_run=of_run), found.dead(of_run=of_run)
    return {"landed": sum(landed.values()), "dead": sum(dead.values()), "tables": landed, "reasons": dead}


def _columns(run: Run, found: Found) -> list[dict[str, Any]]:
    """Each with the event that brought it, and how many rows are null because they are older."""
    nulls = {each.column: each.rows for each in found.since if not each.there}
    return [
        {
            "table": ALARMS,
            "column": each.column,
            "since_event": each.first,
            "rows": each.rows,
            "null": nulls.get(each.column, 0),
            "in_this_run": each.column == run.made.column,
        }
        for each in found.since
        if each.there
    ]


def _days(partitions: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of each day by table, and the files, from the tables' metadata."""
    days: dict[str, dict[str, Any]] = {}
    for table, found in partitions.items():
        for each in found:
            day = str(each["partition"]["event_time_day"])
            of_day = days.setdefault(day, {"day": day, "rows": {}, "files": 0})
            of_day["rows"][table] = each["record_count"]
            of_day["files"] += each["file_count"]
    return [days[day] for day in sorted(days)]


def write(run: Run, told: Mapping[str, Any]) -> Path:
    path = run.folder / "demo.json"
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return path
