"""The demo's tables as an engine of somebody else's reads them, through the catalog."""

import importlib.metadata
import importlib.util
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from lakehouse_ingest.cli.demo.events import ALARM, LATER, READING
from lakehouse_ingest.records import SOURCE, Offsets

TOPIC = NAMESPACE = "plant"
READINGS, ALARMS, DEAD, BATCHES = (
    f"{NAMESPACE}.{name}" for name in (READING, ALARM, "dead_letters", "lakehouse_batches")
)
EXTENSIONS = ("avro", "httpfs", "iceberg")

ATTACH = """\
ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}',
  TOKEN '{token}', ACCESS_DELEGATION_MODE 'none')"""
HELD = """\
WITH held AS ({all})
SELECT s.partition, count(*) AS rows, count(DISTINCT s.offset) AS offsets
FROM held WHERE s.topic = '{topic}' GROUP BY ALL ORDER BY ALL"""
# What is asked beyond that is no news to a reader of the report.
HELD_MORE = """\
       min(s.offset) AS first, max(s.offset) AS last,
       count(DISTINCT s.offset) FILTER (s.offset >= ($begins)[s.partition + 1]) AS new"""
FILTERED = f"""\
SELECT p.partition, sum(p.filtered)::BIGINT AS filtered
FROM (SELECT unnest(partitions) AS p
      FROM lake.{BATCHES}) GROUP BY ALL ORDER BY ALL"""  # noqa: S608 - of our own words
OUTCOMES = """\
WITH held AS ({all})
SELECT name, reason, count(*) AS rows, count(*) FILTER (s.offset >= ($begins)[s.partition + 1]) AS new,
       arg_max(detail, s.offset) AS detail
FROM held WHERE s.topic = '{topic}' GROUP BY ALL ORDER BY ALL"""
SINCE = """\
SELECT {column} IS NOT NULL AS there, count(*) AS rows,
       min(number) AS first, max(number) AS last
FROM lake.{table} GROUP BY ALL ORDER BY ALL"""
SINCE_MORE = """\
       count(*) FILTER (number >= $begin) AS new,
       min(number) FILTER (number >= $begin) AS new_first,
       max(number) FILTER (number >= $begin) AS new_last"""
QUESTION = f"""\
SELECT location, degrees, alarms, codes FROM
  (SELECT location, round(avg(temperature), 1) AS degrees
   FROM lake.{READINGS} GROUP BY ALL) JOIN
  (SELECT location, count(*) AS alarms, count(DISTINCT code) AS codes
   FROM lake.{ALARMS} GROUP BY ALL) USING (location) ORDER BY degrees DESC"""  # noqa: S608 - of our own words


@dataclass(frozen=True)
class Held:
    """One partition of the topic as all the tables hold it together."""

    partition: int
    rows: int
    offsets: int  # distinct ones
    first: int
    last: int
    new: int  # distinct ones of this run
    filtered: int  # says the batch record: these are in no table


@dataclass(frozen=True)
class Outcome:
    table: str
    reason: str | None  # of the dead letters
    rows: int
    new: int  # of this run
    detail: str | None = None


@dataclass(frozen=True)
class Since:
    """The rows that have a value in a column, or those that have none; events are numbered as they were produced."""

    column: str
    there: bool
    rows: int
    first: int  # event
    last: int
    new: int  # of this run
    new_first: int | None
    new_last: int | None


@dataclass(frozen=True)
class Found:
    """All that was asked."""

    engine: str
    held: Sequence[Held]
    outcomes: Sequence[Outcome]
    columns: Mapping[str, Mapping[str, str]]  # by table, with their types
    since: Sequence[Since] = ()
    answer: Sequence[Sequence[Any]] = ()
    queries: Sequence[str] = ()  # as they were asked, but for what was asked besides

    def total(self, *, of_run: bool) -> int:
        return sum(each.new if of_run else each.rows for each in self.outcomes)

    def dead(self, *, of_run: bool) -> dict[str, int]:
        counts = {each.reason: each.new if of_run else each.rows for each in self.outcomes if each.reason}
        return {reason: count for reason, count in counts.items() if count}

    def landed(self, *, of_run: bool) -> dict[str, int]:
        """By table."""
        counts = {each.table: each.new if of_run else each.rows for each in self.outcomes if not each.reason}
        return {table: count for table, count in counts.items() if count}


def read_back(uri: str, token: str, begins: Offsets) -> Found:
    """By DuckDB where it is installed, else by pyiceberg."""
    lake = catalog(uri, token)
    numbers = [offset for _, offset in sorted(begins.items())]
    names = tables(lake)
    if all(importlib.util.find_spec(name) for name in ("duckdb", *map("duckdb_extension_{}".format, EXTENSIONS))):
        return _by_duckdb(uri, token, names, numbers)
    return _by_pyiceberg(lake, names, numbers)


def catalog(uri: str, token: str) -> Catalog:
    return load_catalog("lake", type="rest", uri=uri, token=token)


def tables(lake: Catalog) -> list[str]:
    """Those of events: somebody may have sent others than ours."""
    found = (".".join(name) for name in lake.list_tables(NAMESPACE))
    return sorted(name for name in found if name not in (DEAD, BATCHES))


# -- by DuckDB ---------------------------------------------------------------------------------------------------------


def _by_duckdb(uri: str, token: str, names: Sequence[str], begins: list[int]) -> Found:
    import duckdb  # noqa: PLC0415 - an extra

    held = HELD.format(all=_union("SELECT _source AS s FROM lake.{}", (*names, DEAD)), topic=TOPIC)
    events = _union("SELECT '{0}' AS name, NULL AS reason, NULL AS detail, _source AS s FROM lake.{0}", names)
    dead = _union("SELECT '{0}' AS name, reason, detail, _source AS s FROM lake.{0}", [DEAD])
    outcomes = OUTCOMES.format(all=f"{events} UNION ALL {dead}", topic=TOPIC)
    # Extensions come from the wheels beside it: nothing is downloaded.
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}) as duck:
        for name in EXTENSIONS:
            duck.execute(f"LOAD '{_extension(name)}'")
        duck.execute(ATTACH.format(uri=uri, token=token))

        def ask(sql: str, **values: Any) -> list[Any]:
            return duck.execute(sql, values).fetchall()

        columns = {name: {row[0]: row[1] for row in ask(f"DESCRIBE lake.{name}")} for name in names}
        filtered = dict(ask(FILTERED))
        appeared = [name for name in LATER if name in columns.get(ALARMS, ())]
        since = {column: SINCE.format(column=column, table=ALARMS) for column in appeared}
        return Found(
            f"DuckDB {duckdb.__version__}",
            [Held(*(*row, filtered.get(row[0], 0))) for row in ask(_asking(held, HELD_MORE), begins=begins)],
            [Outcome(*row) for row in ask(outcomes, begins=begins)],
            columns,
            [
                Since(column, *row)
                for column, sql in since.items()
                for row in ask(_asking(sql, SINCE_MORE), begin=sum(begins))
            ],
            ask(QUESTION),
            (held, FILTERED, *[*since.values()][-1:]),
        )


def _union(select: str, names: Iterable[str]) -> str:
    return " UNION ALL\n              ".join(select.format(name) for name in names)


def _asking(sql: str, more: str) -> str:
    """The same query with further columns."""
    select, source, rest = sql.rpartition("\nFROM ")
    return f"{select},\n{more}{source}{rest}"


def _extension(name: str) -> Path:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    return next(Path(next(iter(spec.submodule_search_locations or ()))).rglob(f"{name}.duckdb_extension"))


# -- by pyiceberg ------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def _by_pyiceberg(lake: Catalog, names: Sequence[str], begins: list[int]) -> Found:
    columns = {
        name: {each.name: str(each.field_type) for each in lake.load_table(name).schema().fields} for name in names
    }
    appeared = [name for name in LATER if name in columns.get(ALARMS, ())]
    wanted = {
        READINGS: ("location", "temperature"),
        ALARMS: ("location", "code", "number", *appeared),
        DEAD: ("reason", "detail"),
    }
    rows = {name: _rows(lake, name, (SOURCE, *wanted.get(name, ()))) for name in (*names, DEAD)}
    ours = [(name, row) for name, found in rows.items() for row in found if row[SOURCE]["topic"] == TOPIC]
    return Found(
        f"pyiceberg {importlib.metadata.version('pyiceberg')}",
        _held([row for _, row in ours], begins, _filtered(lake)),
        _outcomes(ours, begins),
        columns,
        [each for column in appeared for each in _since(column, rows[ALARMS], sum(begins))],
        _answer(rows.get(READINGS, []), rows.get(ALARMS, [])),
    )


def _rows(lake: Catalog, name: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.load_table(name).scan(selected_fields=fields).to_arrow().to_pylist()
    return found


def _held(rows: Iterable[Row], begins: Sequence[int], filtered: Mapping[int, int]) -> list[Held]:
    places: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        places[row[SOURCE]["partition"]].append(row[SOURCE]["offset"])
    return [
        Held(
            at,
            len(found),
            len(distinct := set(found)),
            min(found),
            max(found),
            sum(offset >= begins[at] for offset in distinct),
            filtered.get(at, 0),
        )
        for at, found in sorted(places.items())
    ]


def _filtered(lake: Catalog) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in _rows(lake, BATCHES, ("partitions",)):
        for part in row["partitions"] or ():
            counts[part["partition"]] += part["filtered"]
    return counts


def _outcomes(rows: Iterable[tuple[str, Row]], begins: Sequence[int]) -> list[Outcome]:
    totals: Counter[tuple[str, str | None]] = Counter()
    new: Counter[tuple[str, str | None]] = Counter()
    details: dict[tuple[str, str | None], str | None] = {}
    for name, row in rows:
        kind = (name, row.get("reason"))
        totals[kind] += 1
        new[kind] += row[SOURCE]["offset"] >= begins[row[SOURCE]["partition"]]
        details[kind] = row.get("detail")
    ordered = sorted(totals, key=lambda kind: (kind[0], kind[1] or ""))
    return [Outcome(*kind, totals[kind], new[kind], details[kind]) for kind in ordered]


def _since(column: str, rows: Iterable[Row], begin: int) -> list[Since]:
    numbers: dict[bool, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row[column] is not None].append(row["number"])
    found = []
    for there, events in sorted(numbers.items()):
        new = [number for number in events if number >= begin]
        bounds = (min(new, default=None), max(new, default=None))
        found.append(Since(column, there, len(events), min(events), max(events), len(new), *bounds))
    return found


def _answer(readings: Iterable[Row], alarms: Iterable[Row]) -> list[tuple[Any, ...]]:
    degrees: dict[str, list[float]] = defaultdict(list)
    codes: dict[str, list[str]] = defaultdict(list)
    for row in readings:
        degrees[row["location"]].append(row["temperature"])
    for row in alarms:
        codes[row["location"]].append(row["code"])
    halls = ((hall, round(statistics.fmean(degrees[hall]), 1)) for hall in degrees if hall in codes)
    return [
        (hall, mean, len(codes[hall]), len(set(codes[hall]))) for hall, mean in sorted(halls, key=lambda it: -it[1])
    ]
