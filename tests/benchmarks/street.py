"""`make bench`: what a batch costs, from a real broker into tables behind the catalog.

200-byte JSON of eight fields and a type, 500,000 rows a batch, day partitions. The same events go into one table with
declared columns (one pass), into one whose columns come from the data, and into twenty, by their type. CPU seconds are
those of Python, Spark, broker and catalog together, after a first batch that warms them up; they and their ratios are
printed as JSON. A ratio, not a promise: it depends on the machine and on what else runs there.
"""

import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from catalog import connect
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.pipeline.assembly import opened
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables.clients import connection_of
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import descendants

BATCHES, BATCH, PARTITIONS, SEED = 3, 500_000, 6, 7
START_MS, DAY_MS = 1_750_000_000_000, 86_400_000
TYPES = 20
COLUMNS = {
    "sensor": "string",
    "ts_ms": "long",
    "temperature": "double",
    "humidity": "double",
    "location": "string",
    "battery": "int",
    "ok": "boolean",
    "note": "string",
    "type": "string",
}
DECLARED = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
CASES: Mapping[str, Mapping[str, Any]] = {
    "one table, declared": {"tables": [{"table": "events", "columns": DECLARED, "event_time_unit": "ms"}]},
    "one table, from the data": {"tables": [{"table": "events"}]},
    "twenty tables, declared": {
        "type_from": "field:type",
        "tables": [{"table": "{type}", "columns": DECLARED, "event_time_unit": "ms"}],
    },
    "twenty tables, from the data": {"type_from": "field:type", "tables": [{"table": "{type}"}]},
}


def events(count: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(SEED)
    for n in range(count):
        event = {
            "type": f"kind_{n // PARTITIONS % TYPES:02}",
            "sensor": f"sensor-{n % 5000:05d}",
            "ts_ms": START_MS - START_MS % DAY_MS + chance.randrange(DAY_MS),
            "temperature": round(chance.uniform(-10, 40), 2),
            "humidity": round(chance.random(), 4),
            "location": ("NYC", "BER", "SIN", "GRU")[n % 4],
            "battery": n % 100,
            "ok": n % 97 != 0,
            "note": "x" * 24,
        }
        yield None, json.dumps(event).encode(), None, None, n % PARTITIONS


def cpu_seconds(*without: int) -> float:
    """CPU of this process and all below it so far: Spark's JVM, its Python workers, the broker and the catalog.

    `without`: processes that do not count. A worker that has ended counts with its parent.
    """
    total = process_time()
    for pid in descendants(os.getpid()):
        if pid in without:
            continue
        with suppress(OSError):  # it has ended
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            fields = text.rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # of the process and its ended children
    return total


def measured(folder: Path, broker: str, stream: Mapping[str, Any], batches: int) -> dict[str, Any]:
    folder.mkdir()
    topic = folder.name
    create_topic(broker, topic, PARTITIONS)
    produce(broker, topic, events(BATCH))
    settings = Settings.model_validate(
        {
            "name": topic,
            "catalog": {"path": folder / "warehouse"},
            "source": {"brokers": broker},
            "streams": [{"topics": [topic], "every": 0, "max_records": BATCH, **stream}],
            "spark": {"master": "local[2]", "memory": "3g"},
            "log": {"level": "warning"},
        }
    )
    with opened(settings, RunOptions(until_latest=True)) as running:
        running.pipeline.run()
        produce(broker, topic, events(batches * BATCH))
        began, cpu = monotonic(), cpu_seconds()
        running.pipeline.run()
        seconds, cpu = monotonic() - began, cpu_seconds() - cpu
        lake = connect(connection_of(settings.catalog, settings.s3, running.catalog_uri)).pyiceberg
        rows = lake.load_table("ingest.lakehouse_batches").scan().to_arrow().to_pylist()
        landed = Counter[str]()
        for row in rows:
            if row["kind"] == "landing":
                landed[row["table"]] += row["rows"]
        _check(lake, landed, (batches + 1) * BATCH)
    return {
        "cpu_seconds_a_batch": round(cpu / batches, 2),
        "events_per_second": round(batches * BATCH / seconds),
        "events_per_cpu_second": round(batches * BATCH / cpu),
    }


def _check(lake: Any, landed: Counter[str], count: int) -> None:
    if sum(landed.values()) != count:
        raise SystemExit(f"{sum(landed.values())} of {count} events have landed")
    for name in landed if len(landed) > 1 else ():
        kinds = set(lake.load_table(name).scan(selected_fields=("type",)).to_arrow()["type"].to_pylist())
        if kinds != {name.removeprefix("ingest.")}:
            raise SystemExit(f"the table {name} holds events of {kinds}")


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES
    with tempfile.TemporaryDirectory() as scratch:
        server = EmbeddedBroker(Path(scratch) / "broker", port=0)
        broker = server.start()
        try:
            found = {}
            for number, (name, stream) in enumerate(CASES.items()):
                found[name] = measured(Path(scratch) / f"bench-{number}", broker, stream, batches)
                print(f"{name}: {json.dumps(found[name])}", flush=True)
            first = found["one table, declared"]["cpu_seconds_a_batch"]
            ratios = {name: round(each["cpu_seconds_a_batch"] / first, 2) for name, each in found.items()}
            print(json.dumps({"cases": found, "cpu_to_one_declared_table": ratios}))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
