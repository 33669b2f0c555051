"""`make bench WHAT=telemetry`: the processor time of an event with traces and metrics on, and without them.

Pipeline after pipeline reads the same records, each for the first time, in one process and on one Spark: in pairs, one
of which sends all there is to a collector, and every other pair the other way round. What is taken is the time of
Python, Spark, broker and catalog from the first landing on, so without the start, to the end, and with what telemetry
sends then. The collector is a process of its own, whose time is not ours. The first pairs warm up, and do not count.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.observe.events import BatchLanded
from lakehouse_ingest.observe.watch import Event, Watch
from lakehouse_ingest.pipeline.assembly import Running, opened
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables.clients import connection_of
from telemetry import OFF, Telemetry, TelemetryOptions, start
from tests.benchmarks.ours import COLUMNS
from tests.benchmarks.process_tree import ProcessTree
from tests.benchmarks.systems import TIME
from tests.benchmarks.topics import Topics

PAIRS, WARMING, BATCHES, BATCH = 7, 2, 5, 100_000
# The cheapest batch: whatever is added weighs most.
TABLE = {
    "table": "events",
    "columns": [{"name": name, "type": kind} for name, kind in COLUMNS.items()],
    "event_time": TIME,
    "event_time_unit": "ms",
}
TARGET = 1.05


@contextmanager
def collector() -> Iterator[tuple[str, int]]:
    """The tests' own; where it listens, and its process."""
    command = [sys.executable, "-m", "tests.services.otlp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


class _FromTheFirst(Watch):
    """Takes the time when the first batch has landed, and counts the events of the others."""

    def __init__(self, pipeline: str, sink: Telemetry, without: int) -> None:
        super().__init__(pipeline, sink)
        self._tree = ProcessTree(os.getpid(), (without,))
        self.began: float | None = None
        self.received = 0
        self.add_listener(self._landed)

    def spent(self) -> float:
        return self._tree.cpu()

    def _landed(self, event: Event) -> None:
        if isinstance(event, BatchLanded):
            if self.began is None:
                self.began = self.spent()
            else:
                self.received += event.received


def settings_of(name: str, folder: Path, broker: str, topic: str) -> Settings:
    return Settings.model_validate(
        {
            "name": name,
            "catalog": {"path": folder / "warehouse", "namespace": name},
            "source": {"brokers": broker},
            "streams": [{"topics": [topic], "every": 0, "max_records": BATCH, "tables": [TABLE]}],
            "spark": {"master": "local[2]", "memory": "3g"},
            "log": {"level": "error"},
        }
    )


def microseconds(running: Running, settings: Settings, sink: Telemetry, scratch: Path, without: int) -> float:
    """An event's, of one pipeline."""
    watch = _FromTheFirst(settings.name, sink, without)
    scratch.mkdir()
    connection = connection_of(settings.catalog, settings.s3, running.catalog_uri)
    Pipeline(settings, running.spark, connection, watch, scratch, RunOptions(max_batches=BATCHES + 1)).run()
    sink.shutdown(30)
    # Spark shares a batch out among partitions, and rounds.
    if watch.received < 0.99 * BATCHES * BATCH or watch.began is None or sink.dropped:
        raise SystemExit(f"{watch.received} events, dropped by telemetry: {dict(sink.dropped)}")
    return (watch.spent() - watch.began) / watch.received * 1e6


def pairs(count: int, topic: str, folder: Path, broker: str) -> Iterator[Mapping[str, float]]:
    with (
        collector() as (endpoint, process),
        opened(settings_of("none", folder, broker, topic), RunOptions()) as running,
    ):
        for number in range(-WARMING, count):
            found: dict[str, float] = {}
            for how in ("off", "on") if number % 2 else ("on", "off"):
                name = f"{how}_{number + WARMING}"
                wanted = TelemetryOptions(traces=True, metrics=True, endpoint=endpoint)
                sink = start(wanted) if how == "on" else OFF
                at = settings_of(name, folder, broker, topic)
                found[how] = round(microseconds(running, at, sink, folder / f"scratch-{name}", process), 3)
            found["ratio"] = round(found["on"] / found["off"], 4)
            print(f"{'warming up' if number < 0 else f'pair {number + 1}'}: {json.dumps(found)}", flush=True)
            if number >= 0:
                yield found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with scratch_folder() as scratch:
        server = EmbeddedBroker(scratch / "broker", port=0)
        broker = server.start()
        try:
            topic = Topics(broker).of("plain", (BATCHES + 2) * BATCH)
            found = list(pairs(count, topic, scratch, broker))
        finally:
            server.stop()
    ratios = sorted(each["ratio"] for each in found)
    spread = {"least": ratios[0], "most": ratios[-1]}
    if len(ratios) > 1:
        first, _, third = quantiles(ratios, n=4, method="inclusive")
        spread |= {"quartiles": [round(first, 4), round(third, 4)]}  # type: ignore[dict-item]
    print(
        json.dumps(
            {
                "events_a_batch": BATCH,
                "cpu_microseconds_an_event": found,
                "median_ratio": round(median(ratios), 4),
                "spread": spread,
                "target": TARGET,
            }
        )
    )


if __name__ == "__main__":
    main()
