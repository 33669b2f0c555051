"""What the demo's tables hold, by a second engine: one query of DuckDB, or pyiceberg where DuckDB is not installed."""

import importlib.metadata
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from lakehouse_ingest.cli.demo.events import ALARM, LATER, READING
from lakehouse_ingest.records import SOURCE, Offsets
from lakehouse_ingest.tables import Connection, PipelineTables

TOPIC = NAMESPACE = "plant"
READINGS, ALARMS, DEAD, BATCHES = (
    f"{NAMESPACE}.{name}" for name in (READING, ALARM, "dead_letters", "lakehouse_batches")
)
EXTENSIONS = ("avro", "httpfs", "iceberg")

ATTACH = "ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{uri}', TOKEN '{token}', ACCESS_DELEGATION_MODE 'none')"
EVENTS = """\
  SELECT '{0}' AS name, NULL AS reason, NULL AS detail,
         _source AS s FROM lake.{0}"""
DEAD_LETTERS = """\
  SELECT '{0}' AS name, reason, detail,
         _source AS s FROM lake.{0}"""
OUTCOMES = """\
SELECT name, reason, count(*) AS rows{more} FROM (
{tables})
WHERE s.topic = '{topic}' GROUP BY ALL ORDER BY ALL"""
# These belong to the report. A reader who wants to repeat the query does not need them.
OF_THE_REPORT = """,
  count(*) FILTER (s.offset >= ($begins)[s.partition + 1]) AS new, arg_max(detail, s.offset) AS detail"""


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
    engine: str
    outcomes: Sequence[Outcome]
    query: str = ""  # as DuckDB was asked
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by table, with their types
    since: Sequence[Since] = ()

    def dead(self, *, of_run: bool) -> dict[str, int]:
        counts = {each.reason: each.new if of_run else each.rows for each in self.outcomes if each.reason}
        return {reason: count for reason, count in counts.items() if count}

    def landed(self, *, of_run: bool) -> dict[str, int]:
        """By table."""
        counts = {each.table: each.new if of_run else each.rows for each in self.outcomes if not each.reason}
        return {table: count for table, count in counts.items() if count}


def read_back(uri: str, token: str, begins: Offsets) -> Found:
    lake, ours = catalog(uri, token), PipelineTables(Connection(uri, token=token), NAMESPACE)
    numbers = [offset for _, offset in sorted(begins.items())]
    names = tables(lake)
    by_duckdb = all(
        importlib.util.find_spec(name) for name in ("duckdb", *map("duckdb_extension_{}".format, EXTENSIONS))
    )
    found = _by_duckdb(uri, token, names, numbers) if by_duckdb else _by_pyiceberg(lake, names, numbers)
    states = {name: state for name in names if (state := ours.find(name))}
    columns = {name: {each.name: str(each.type) for each in state.columns} for name, state in states.items()}
    appeared = [name for name in LATER if name in columns.get(ALARMS, ())]
    alarms = _rows(lake, ALARMS, ("number", *appeared)) if appeared else []
    since = [each for column in appeared for each in _since(column, alarms, sum(numbers))]
    return Found(found.engine, found.outcomes, found.query, columns, since)


def catalog(uri: str, token: str) -> Catalog:
    return load_catalog("lake", type="rest", uri=uri, token=token)


def tables(lake: Catalog) -> list[str]:
    """Those of events: somebody may have sent others than ours."""
    found = (".".join(name) for name in lake.list_tables(NAMESPACE))
    return sorted(name for name in found if name not in (DEAD, BATCHES))


def _by_duckdb(uri: str, token: str, names: Sequence[str], begins: list[int]) -> Found:
    import duckdb  # noqa: PLC0415 - an extra

    held = "\n  UNION ALL\n".join([*map(EVENTS.format, names), DEAD_LETTERS.format(DEAD)])
    # Extensions come from the wheels beside it: nothing is downloaded.
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}) as duck:
        for name in EXTENSIONS:
            duck.execute(f"LOAD '{_extension(name)}'")
        duck.execute(ATTACH.format(uri=uri, token=token))
        query = OUTCOMES.format(more=OF_THE_REPORT, tables=held, topic=TOPIC)
        found = [Outcome(*row) for row in duck.execute(query, {"begins": begins}).fetchall()]
    return Found(f"DuckDB {duckdb.__version__}", found, OUTCOMES.format(more="", tables=held, topic=TOPIC))


def _extension(name: str) -> Path:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    return next(Path(next(iter(spec.submodule_search_locations or ()))).rglob(f"{name}.duckdb_extension"))


def _by_pyiceberg(lake: Catalog, names: Sequence[str], begins: Sequence[int]) -> Found:
    totals: Counter[tuple[str, str | None]] = Counter()
    new: Counter[tuple[str, str | None]] = Counter()
    details: dict[tuple[str, str | None], str | None] = {}
    for name in (*names, DEAD):
        for row in _rows(lake, name, (SOURCE, *(("reason", "detail") if name == DEAD else ()))):
            if row[SOURCE]["topic"] == TOPIC:
                kind = (name, row.get("reason"))
                totals[kind] += 1
                new[kind] += row[SOURCE]["offset"] >= begins[row[SOURCE]["partition"]]
                details[kind] = row.get("detail")
    ordered = sorted(totals, key=lambda kind: (kind[0], kind[1] or ""))
    found = [Outcome(*kind, totals[kind], new[kind], details[kind]) for kind in ordered]
    return Found(f"pyiceberg {importlib.metadata.version('pyiceberg')}", found)


def _rows(lake: Catalog, name: str, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.load_table(name).scan(selected_fields=fields).to_arrow().to_pylist()
    return found


def _since(column: str, rows: Iterable[Mapping[str, Any]], begin: int) -> list[Since]:
    numbers: dict[bool, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row[column] is not None].append(row["number"])
    found = []
    for there, events in sorted(numbers.items()):
        new = [number for number in events if number >= begin]
        bounds = (min(new, default=None), max(new, default=None))
        found.append(Since(column, there, len(events), min(events), max(events), len(new), *bounds))
    return found
