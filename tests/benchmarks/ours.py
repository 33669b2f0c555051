"""lakehouse-ingest as the bench runs it: `lakehouse-ingest run` with a settings file, and all else as by default."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import pyarrow as pa
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from lakehouse_ingest.environment.class_archive import prepare
from lakehouse_ingest.environment.jars import ensure
from lakehouse_ingest.environment.java import find_java
from tests.benchmarks.peers.program import Program
from tests.benchmarks.peers.targets import each_once
from tests.benchmarks.systems import NUMBER, TIME, Commit, Surroundings, Written

BATCH_LOG, DEAD_LETTERS = "lakehouse_batches", "dead_letters"
COLUMNS: Mapping[str, str] = {
    TIME: "long",
    "sensor_id": "string",
    "location": "string",
    "temperature": "double",
    "humidity": "double",
    NUMBER: "long",
    "status": "string",
    "device": "struct<fw: string, battery: int, rssi: int>",
}
DECLARED = "\n".join(
    [
        f'event_time = "{TIME}"',
        'event_time_unit = "ms"',
        "columns = [",
        *(f'  {{ name = "{name}", type = "{kind}" }},' for name, kind in COLUMNS.items()),
        "]",
    ]
)


@dataclass(frozen=True)
class Ours:
    """One case: which topic, and the settings of its stream and its table, as TOML."""

    name: str
    topic: str = "plain"
    stream: str = ""
    table: str = ""
    more: str = ""  # further sections
    kind: Literal["ours"] = "ours"

    def prepare(self) -> None:
        """As `lakehouse-ingest jars warm` does: no measurement waits for a download, or for the archive of classes."""
        ensure("spark")
        prepare(find_java())

    def start(self, here: Surroundings, count: int) -> Program:
        settings = here.folder / "pipeline.toml"
        settings.write_text(self.settings(here), encoding="utf-8")
        command = [sys.executable, "-m", "lakehouse_ingest", "run", "--config", str(settings)]
        return Program(command, here, Tables(here), count)

    def settings(self, here: Surroundings) -> str:
        return f"""\
name = "{here.namespace}"
[catalog]
uri = "{here.catalog_uri}"
path = "{here.warehouse}"
namespace = "{here.namespace}"
[source]
brokers = "{here.brokers}"
{self.more}
[[streams]]
topics = ["{here.topic}"]
{self.stream}
[[streams.tables]]
{self.table}
"""


TYPED = 'type_from = "field:location"'
EVENTS = 'table = "events"'
BY_HOUR = 'partition_by = ["hour(event_time)"]'
BASE = Ours("ours: declared columns", table=f"{EVENTS}\n{DECLARED}")
INFERRED = Ours("ours: inferred columns", table=EVENTS)
TYPES = Ours("ours: twenty types, declared", stream=TYPED, table=f'table = "{{type}}"\n{DECLARED}')
TYPES_INFERRED = Ours("ours: twenty types, inferred", stream=TYPED, table='table = "{type}"')
MESSY = Ours("ours: messy topic, inferred", topic="messy", table=EVENTS)
ONE_DAY = Ours("ours: one day in a batch", topic="one_day", table=f"{EVENTS}\n{DECLARED}")
HOURS = Ours("ours: 24 hours in a batch", topic="one_day", table=f"{EVENTS}\n{BY_HOUR}\n{DECLARED}")
CASES = (BASE, INFERRED, TYPES, TYPES_INFERRED, MESSY, ONE_DAY, HOURS)


@dataclass
class Tables:
    """All tables of a namespace but the batch log: what a reader finds of a topic, dead letters included."""

    here: Surroundings
    _session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        self._session.headers["Authorization"] = f"Bearer {self.here.token}"
        self._session.trust_env = False

    def rows(self) -> int:
        return sum(self._total(name, "records") for name in self._names())

    def written(self) -> Written:
        names = self._names()
        files, size = (sum(self._total(name, what) for name in names) for what in ("data-files", "files-size"))
        return Written(files, size)

    def commits(self) -> Sequence[Commit]:
        tables = [self._get(f"tables/{quote(name)}").get("metadata", {}) for name in self._names()]
        return [
            Commit(each["timestamp-ms"] / 1000, int(each["summary"].get("added-records", 0)))
            for table in tables
            for each in table.get("snapshots", ())
        ]

    def check(self, count: int) -> None:
        """A dead-letter record has no number, but its offset tells which one it had."""
        catalog = RestCatalog("bench", uri=self.here.catalog_uri, token=self.here.token)
        chunks: list[pa.ChunkedArray] = []
        for name in self._names():
            try:
                chunks.append(self._numbers(catalog.load_table((self.here.namespace, name)), name))
            except NoSuchTableError:
                continue
        each_once(pa.chunked_array([chunk for each in chunks for chunk in each.chunks], pa.int64()), count)

    def _numbers(self, table: Table, name: str) -> pa.ChunkedArray:
        if name != DEAD_LETTERS:
            return table.scan(selected_fields=(NUMBER,)).to_arrow()[NUMBER]
        rows = table.scan(selected_fields=("_source",)).to_arrow()["_source"].to_pylist()
        numbers = [row["offset"] * self.here.partitions + row["partition"] for row in rows]
        return pa.chunked_array([numbers], pa.int64())

    def _names(self) -> list[str]:
        answer = self._get("tables")
        names = [each["name"] for each in answer.get("identifiers", ())]
        return [name for name in names if name != BATCH_LOG]

    def _total(self, name: str, what: str) -> int:
        return int(self.summary(name).get(f"total-{what}", 0))

    def summary(self, name: str) -> Mapping[str, str]:
        """Of the snapshot that a reader would read now; empty without one."""
        found = self._get(f"tables/{quote(name)}?snapshots=refs").get("metadata", {})
        now = found.get("current-snapshot-id")
        return next((each["summary"] for each in found.get("snapshots", ()) if each["snapshot-id"] == now), {})

    def _get(self, what: str) -> Mapping[str, Any]:
        """Empty where it is not there (yet)."""
        uri = f"{self.here.catalog_uri}/v1/namespaces/{quote(self.here.namespace)}/{what}"
        answer = self._session.get(uri, timeout=30)
        if answer.status_code == requests.codes.not_found:
            return {}
        answer.raise_for_status()
        found: Mapping[str, Any] = answer.json()
        return found
