"""Whether the counts add up: the tables as they were read back, the topic, and what the producer says it made.

Nothing here is taken from the pipeline's own counts but what says so: rows and offsets come out of the tables, ends
of the topic from the broker, and what was produced from the producer. What is filtered is in no table by design: then
the offsets that are missing, what the producer made to be filtered, and the batch record have to be of one mind.
"""

import datetime as dt
import importlib.metadata
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from lakehouse_ingest.cli.demo.events import Made
from lakehouse_ingest.cli.demo.reading_back import ALARMS, BATCHES, DEAD, NAMESPACE, TOPIC, Found, Held, Since, catalog
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
    def received(self) -> int:
        return sum(batch.received for batch in self.batches)


def problems(run: Run, found: Found) -> list[str]:
    """Each a sentence; none when every record produced is in exactly the one place where it should be."""
    return [*_offsets(run, found), *_counts(run, found), *_appeared(run, found)]


def held_by_partition(run: Run, found: Found) -> Iterator[tuple[int, int, Held]]:
    """Where each partition of the topic began in this run and ends, and what the tables hold of it."""
    held = {each.partition: each for each in found.held}
    for at, end in sorted(run.ends.items()):
        yield run.begins.get(at, 0), end, held.get(at[1], Held(at[1], 0, 0, 0, -1, 0, 0))


def _offsets(run: Run, found: Found) -> Iterator[str]:
    for begin, end, there in held_by_partition(run, found):
        name = f"partition {there.partition}"
        if there.rows > there.offsets:
            yield f"{name}: {there.rows - there.offsets} rows are there more than once"
        if there.offsets + there.filtered != end:
            yield f"{name}: {there.offsets} offsets in tables and {there.filtered} filtered are not the topic's {end}"
        absent, made = end - begin - there.new, run.made.filtered[there.partition]
        if absent != made:
            yield f"{name}: {absent} offsets of this run are in no table, {made} events were made to be filtered"
        if there.last >= end or there.first < 0:
            yield f"{name}: offsets {there.first} to {there.last}, the topic has 0 to {end - 1}"
    for number in {each.partition for each in found.held} - {number for _, number in run.ends}:
        yield f"partition {number}: the topic has no such partition"


def _counts(run: Run, found: Found) -> Iterator[str]:
    made = run.made
    there = found.total(of_run=True) + made.filtered.total()
    if there != made.acknowledged:
        yield f"{made.acknowledged} events were produced, {there} of this run are in tables or filtered"
    wanted = Counter({f"{NAMESPACE}.{kind}": count for kind, count in made.sound.items()})
    yield from _unequal(wanted, found.landed(of_run=True), "landed")
    yield from _unequal(made.broken, found.dead(of_run=True), "were set aside")


def _unequal(made: Mapping[str, int], found: Mapping[str, int], what: str) -> Iterator[str]:
    for name in sorted({*made, *found}):
        if made.get(name, 0) != found.get(name, 0):
            yield f"{name}: {made.get(name, 0)} events were made so, {found.get(name, 0)} {what}"


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


def as_json(run: Run, found: Found, wrong: Sequence[str]) -> dict[str, Any]:
    ages = [batch.freshness for batch in run.batches if batch.freshness is not None]
    lake = catalog(run.uri, run.token)
    names = [*found.columns]
    return {
        "serve": f"lakehouse-ingest catalog serve --warehouse {quote(str(run.warehouse))}",
        "catalog": run.uri,
        "warehouse": str(run.warehouse),
        "topic": TOPIC,
        "tables": {"events": names, "dead_letters": DEAD, "batches": BATCHES},
        "adds_up": not wrong,
        "problems": list(wrong),
        "counts": {"run": _of_run(run, found), "total": _in_total(run, found)},
        "offsets": {
            str(there.partition): {
                "end": end,
                "rows": there.rows,
                "first": there.first,
                "last": there.last,
                "absent": end - there.offsets,
                "filtered_says_the_batch_record": there.filtered,
            }
            for _, end, there in held_by_partition(run, found)
        },
        "columns": {name: dict(columns) for name, columns in found.columns.items()},
        "columns_that_appeared": _columns(run, found),
        "days": _days({name: lake.load_table(name).inspect.partitions().to_pylist() for name in names}),
        "snapshots": {name: len(lake.load_table(name).history()) for name in (*names, DEAD, BATCHES)},
        "batches": len(run.batches),
        "freshness_s": {"p50": round(statistics.median(ages), 2), "max": round(max(ages), 2)} if ages else None,
        "events_per_second": round(run.received / max(0.1, run.seconds["ingesting"])),
        "seconds": {name: round(value, 1) for name, value in run.seconds.items()},
        "read_back_by": found.engine,
        "finished_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in ("lakehouse-ingest", "pyspark", "pyiceberg")},
    }


def _of_run(run: Run, found: Found) -> dict[str, Any]:
    ranges = [(end - begin, there.new) for begin, end, there in held_by_partition(run, found)]
    return {
        "produced": run.made.acknowledged,
        "received": run.received,
        **_outcomes(found, of_run=True),
        "filtered": sum(size - there for size, there in ranges),
        "made": {"sound": dict(run.made.sound), "broken": dict(run.made.broken), "filtered": run.made.filtered.total()},
    }


def _in_total(run: Run, found: Found) -> dict[str, Any]:
    produced = sum(run.ends.values())
    filtered = produced - sum(each.offsets for each in found.held)
    return {"produced": produced, **_outcomes(found, of_run=False), "filtered": filtered}


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
