"""`make bench`: how many events the whole street carries, from a real broker into a table behind the catalog.

200-byte JSON, eight declared columns, event times spread over a day, hour partitions, 500,000 rows a batch. Prints a
line a batch and a summary as JSON; a ratio, not a promise: it depends on the machine and on what else runs there.
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from pyiceberg.catalog import load_catalog

from lakehouse_ingest.commands.run import opened
from lakehouse_ingest.embedded.broker import EmbeddedBroker
from lakehouse_ingest.settings import Settings
from tests.services.kafka import create_topic, produce

EVENTS, BATCH, PARTITIONS, SEED = 2_000_000, 500_000, 6, 7
START_MS, DAY_MS = 1_750_000_000_000, 86_400_000
COLUMNS = {
    "sensor": "string",
    "ts_ms": "long",
    "temperature": "double",
    "humidity": "double",
    "location": "string",
    "battery": "int",
    "ok": "boolean",
    "note": "string",
}


def events(count: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(SEED)
    for n in range(count):
        event = {
            "sensor": f"sensor-{n % 5000:05d}",
            "ts_ms": START_MS + chance.randrange(DAY_MS),
            "temperature": round(chance.uniform(-10, 40), 2),
            "humidity": round(chance.random(), 4),
            "location": ("NYC", "BER", "SIN", "GRU")[n % 4],
            "battery": n % 100,
            "ok": n % 97 != 0,
            "note": "x" * 40,
        }
        yield None, json.dumps(event).encode(), None, None, n % PARTITIONS


def java_seconds() -> float:
    """CPU of our direct children so far: Spark's JVM, and the broker's and the catalog's with it."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measured(folder: Path, broker: str, count: int) -> dict[str, Any]:
    columns = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    table = {"columns": columns, "event_time_unit": "ms", "partition_by": ["hour(event_time)"]}
    settings = Settings.model_validate(
        {
            "name": "bench",
            "catalog": {"path": folder / "warehouse"},
            "source": {"brokers": broker},
            "streams": [{"topics": ["bench"], "every": 0, "max_records": BATCH, "tables": [table]}],
            "spark": {"master": "local[2]", "memory": "2g"},
            "log": {"level": "info"},
        }
    )
    with opened(settings, drain=True) as running:
        began, cpu = monotonic(), process_time() + java_seconds()
        running.pipeline.run()
        seconds, cpu = monotonic() - began, process_time() + java_seconds() - cpu
        record = load_catalog("bench", type="rest", uri=running.catalog_uri).load_table("ingest.lakehouse_batches")
        batches = [row for row in record.scan().to_arrow().to_pylist() if row["table"] == "ingest.bench"]
    landed = sum(row["rows"] for row in batches)
    if landed != count:
        raise SystemExit(f"{landed} of {count} events have landed")
    paces = [
        row["rows"] / (row["finished_at"] - row["started_at"]).total_seconds()
        for row in sorted(batches, key=lambda row: row["batch"])
    ]
    return {
        "events": count,
        "seconds": round(seconds, 1),
        "events_per_second": round(count / seconds),
        "events_per_cpu_second": round(count / cpu),
        "events_per_second_by_batch": [round(pace) for pace in paces],
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        server = EmbeddedBroker(folder / "broker", port=0)
        broker = server.start()
        try:
            create_topic(broker, "bench", PARTITIONS)
            produce(broker, "bench", events(count))
            print(json.dumps(measured(folder, broker, count)))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
