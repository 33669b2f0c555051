"""The demo's tables read back by another engine, and whether the counts add up.

Nothing here is taken from the pipeline's own counts but what says so: rows and offsets come out of the tables, ends
of the topic from the broker, and what was produced from the producer.
"""

import datetime as dt
import importlib.metadata
import importlib.util
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from lakehouse_ingest.accounting import LANDED
from lakehouse_ingest.records import Offsets

TOPIC = "sensors"
NAMESPACE = "demo"
TABLE, DEAD, BATCHES = (f"{NAMESPACE}.{name}" for name in (TOPIC, "dead_letters", "lakehouse_batches"))
EXTENSIONS = ("avro", "httpfs", "iceberg")

ATTACH = """\
ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}',
  AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none')"""
HELD = f"""\
WITH held AS (SELECT _source AS s FROM lake.{TABLE} UNION ALL
              SELECT _source AS s FROM lake.{DEAD})
SELECT s.partition, count(*) AS rows, count(DISTINCT s.offset) AS offsets,
       min(s.offset) AS first, max(s.offset) AS last
FROM held WHERE s.topic = '{TOPIC}' GROUP BY ALL ORDER BY ALL"""  # noqa: S608 - of our own words
OUTCOMES = f"""\
WITH held AS (SELECT '{LANDED}' AS outcome, NULL AS detail, _source AS s FROM lake.{TABLE} UNION ALL
              SELECT reason AS outcome, detail, _source AS s FROM lake.{DEAD})
SELECT outcome, count(*) AS rows, count(*) FILTER (s.offset >= ($begins)[s.partition + 1]) AS new,
       arg_max(detail, s.offset) AS detail
FROM held WHERE s.topic = '{TOPIC}' GROUP BY ALL ORDER BY ALL"""  # noqa: S608 - of our own words
QUESTION = f"""\
SELECT location, count(*) AS events, round(avg(temperature), 1) AS degrees,
       round(100 * avg((NOT ok)::INT), 1) AS percent_not_ok
FROM lake.{TABLE} GROUP BY ALL ORDER BY degrees DESC"""  # noqa: S608 - of our own words


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
    produced: int
    broken: Mapping[str, int]  # produced so, by the reason that it should be set aside for
    begins: Offsets  # the topic's ends before this run
    ends: Offsets  # and now
    batches: Sequence[Batch]
    seconds: Mapping[str, float]

    @property
    def received(self) -> int:
        return sum(batch.received for batch in self.batches)


@dataclass(frozen=True)
class Held:
    """One partition of the topic as the table and the dead letters hold it together."""

    partition: int
    rows: int
    offsets: int  # distinct ones
    first: int
    last: int


@dataclass(frozen=True)
class Outcome:
    name: str  # landed, or a reason
    rows: int
    new: int  # of this run
    detail: str | None


@dataclass(frozen=True)
class Found:
    """The tables as an engine of somebody else's reads them."""

    engine: str
    held: tuple[Held, ...]
    outcomes: tuple[Outcome, ...]
    answer: tuple[tuple[Any, ...], ...]

    def total(self, *, of_run: bool) -> int:
        return sum(each.new if of_run else each.rows for each in self.outcomes)

    def dead(self, *, of_run: bool) -> dict[str, int]:
        counts = {each.name: each.new if of_run else each.rows for each in self.outcomes if each.name != LANDED}
        return {reason: count for reason, count in counts.items() if count}

    def landed(self, *, of_run: bool) -> int:
        return self.total(of_run=of_run) - sum(self.dead(of_run=of_run).values())


# -- reading back ----------------------------------------------------------------------------------------------------


def read_back(uri: str, begins: Offsets) -> Found:
    """By DuckDB where it is installed, else by pyiceberg."""
    numbers = [offset for _, offset in sorted(begins.items())]
    if all(importlib.util.find_spec(name) for name in ("duckdb", *map("duckdb_extension_{}".format, EXTENSIONS))):
        return _by_duckdb(uri, numbers)
    return _by_pyiceberg(uri, numbers)


def _by_duckdb(uri: str, begins: list[int]) -> Found:
    import duckdb  # noqa: PLC0415 - an extra

    # Extensions come from the wheels beside it: nothing is downloaded.
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}) as duck:
        for name in EXTENSIONS:
            duck.execute(f"LOAD '{_extension(name)}'")
        duck.execute(ATTACH.format(uri=uri))
        return Found(
            f"DuckDB {duckdb.__version__}",
            tuple(Held(*row) for row in duck.execute(HELD).fetchall()),
            tuple(Outcome(*row) for row in duck.execute(OUTCOMES, {"begins": begins}).fetchall()),
            tuple(duck.execute(QUESTION).fetchall()),
        )


def _extension(name: str) -> Path:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    return next(Path(next(iter(spec.submodule_search_locations or ()))).rglob(f"{name}.duckdb_extension"))


def _by_pyiceberg(uri: str, begins: list[int]) -> Found:
    lake = _catalog(uri)
    rows = (
        lake.load_table(TABLE).scan(selected_fields=("location", "temperature", "ok", "_source")).to_arrow().to_pylist()
    )
    dead = lake.load_table(DEAD).scan(selected_fields=("reason", "detail", "_source")).to_arrow().to_pylist()
    held = [
        (row.get("reason", LANDED), row.get("detail"), row["_source"]["partition"], row["_source"]["offset"])
        for row in (*rows, *dead)
        if row["_source"]["topic"] == TOPIC
    ]
    places: dict[int, list[int]] = {}
    for _, _, partition, offset in held:
        places.setdefault(partition, []).append(offset)
    totals = Counter(outcome for outcome, *_ in held)
    new = Counter(outcome for outcome, _, partition, offset in held if offset >= begins[partition])
    details = {outcome: detail for outcome, detail, *_ in held}
    halls: dict[str, list[tuple[float, bool]]] = {}
    for row in rows:
        halls.setdefault(row["location"], []).append((row["temperature"], row["ok"]))
    answer = (
        (
            hall,
            len(seen),
            round(statistics.fmean(degrees for degrees, _ in seen), 1),
            round(100 * statistics.fmean(not ok for _, ok in seen), 1),
        )
        for hall, seen in halls.items()
    )
    return Found(
        f"pyiceberg {importlib.metadata.version('pyiceberg')}",
        tuple(Held(at, len(all_), len(set(all_)), min(all_), max(all_)) for at, all_ in sorted(places.items())),
        tuple(Outcome(name, count, new[name], details[name]) for name, count in sorted(totals.items())),
        tuple(sorted(answer, key=lambda row: -row[2])),
    )


def _catalog(uri: str) -> Catalog:
    return load_catalog("lake", type="rest", uri=uri)


def partitions(uri: str) -> list[dict[str, Any]]:
    """The table's days with their rows and files, from its metadata."""
    made = _catalog(uri).load_table(TABLE).inspect.partitions().to_pylist()
    days = [
        {"day": str(each["partition"]["event_time_day"]), "rows": each["record_count"], "files": each["file_count"]}
        for each in made
    ]
    return sorted(days, key=lambda each: each["day"])


def snapshots(uri: str) -> dict[str, int]:
    lake = _catalog(uri)
    return {name: len(lake.load_table(name).history()) for name in (TABLE, DEAD, BATCHES)}


# -- the proof -------------------------------------------------------------------------------------------------------


def problems(run: Run, found: Found) -> list[str]:
    """Each a sentence; none when every record produced is in exactly one place, for the reason it should be."""
    wrong = []
    held = {each.partition: each for each in found.held}
    for (_, number), end in sorted(run.ends.items()):
        there = held.pop(number, Held(number, 0, 0, 0, -1))
        if there.rows > there.offsets:
            wrong.append(f"partition {number}: {there.rows - there.offsets} rows are there more than once")
        if there.offsets < end:
            wrong.append(f"partition {number}: {end - there.offsets} of {end} offsets are in neither table")
        if there.last >= end or there.first < 0:
            wrong.append(f"partition {number}: offsets {there.first} to {there.last}, the topic has 0 to {end - 1}")
    wrong += [f"partition {number}: the topic has no such partition" for number in held]
    new = found.total(of_run=True)
    if new != run.produced:
        wrong.append(f"{run.produced} events were produced, the tables hold {new} of this run")
    dead = found.dead(of_run=True)
    wrong += [
        f"{reason}: {run.broken.get(reason, 0)} events were made so, {dead.get(reason, 0)} were set aside"
        for reason in sorted({*run.broken, *dead})
        if run.broken.get(reason, 0) != dead.get(reason, 0)
    ]
    return wrong


def as_json(run: Run, found: Found, wrong: Sequence[str]) -> dict[str, Any]:
    """What stays beside the warehouse."""
    ages = [batch.freshness for batch in run.batches if batch.freshness is not None]
    counts = {
        name: {
            "landed": found.landed(of_run=of_run),
            "dead": sum(found.dead(of_run=of_run).values()),
            "reasons": found.dead(of_run=of_run),
        }
        for name, of_run in (("run", True), ("total", False))
    }
    counts["run"] = {"produced": run.produced, "received": run.received, **counts["run"]}
    counts["total"] = {"produced": sum(run.ends.values()), **counts["total"]}
    return {
        "serve": f"lakehouse-ingest catalog serve --warehouse {run.warehouse}",
        "catalog": run.uri,
        "warehouse": str(run.warehouse),
        "topic": TOPIC,
        "tables": {"events": TABLE, "dead_letters": DEAD, "batches": BATCHES},
        "adds_up": not wrong,
        "problems": list(wrong),
        "counts": counts,
        "offsets": {
            str(each.partition): {"rows": each.rows, "first": each.first, "last": each.last} for each in found.held
        },
        "partitions": partitions(run.uri),
        "snapshots": snapshots(run.uri),
        "batches": len(run.batches),
        "freshness_s": {"p50": round(statistics.median(ages), 2), "max": round(max(ages), 2)} if ages else None,
        "events_per_second": round(run.received / max(0.1, run.seconds["ingesting"])),
        "seconds": {name: round(value, 1) for name, value in run.seconds.items()},
        "read_back_by": found.engine,
        "finished_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in ("lakehouse-ingest", "pyspark", "pyiceberg")},
    }


def write(run: Run, told: Mapping[str, Any]) -> Path:
    path = run.folder / "demo.json"
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return path
