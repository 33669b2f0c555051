"""One peer on its own broker, catalog and topic: to see whether it runs, and roughly how fast.

The figures that count are those of `make bench`, where all systems run in turn on the same topic.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from pyiceberg.catalog.rest import RestCatalog

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.scratch import scratch_folder
from tests.benchmarks.peers.program import LOG
from tests.benchmarks.systems import Surroundings, System, event
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import descendants

COUNT, PARTITIONS = 200_000, 6
LOOK_S, SILENCE_S = 0.2, 120.0


def run_alone(system: System) -> None:
    """The first word of the command line is the number of events."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    system.prepare()
    with scratch_folder() as folder:
        (folder / "run").mkdir()
        with EmbeddedBroker(folder / "broker", port=0) as broker, EmbeddedCatalog(folder / "lake", port=0) as catalog:
            assert broker.uri
            assert catalog.uri
            here = Surroundings(broker.uri, catalog.uri, folder / "lake", "events", PARTITIONS, folder / "run", "bench")
            RestCatalog("bench", uri=here.catalog_uri, token=here.token).create_namespace(here.namespace)
            create_topic(here.brokers, here.topic, PARTITIONS)
            records = ((*event(number, count), None, None, number % PARTITIONS) for number in range(count))
            produce(here.brokers, here.topic, records)
            print(json.dumps(measured(system, here, count)), flush=True)


def measured(system: System, here: Surroundings, count: int) -> dict[str, object]:
    began, ticks = monotonic(), dict[int, int]()
    started = system.start(here, count)
    try:
        rows, moved = 0, began
        while rows < count:
            for pid in [started.pid, *descendants(started.pid)]:
                with suppress(OSError):  # it has ended
                    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
                    ticks[pid] = int(fields[11]) + int(fields[12])
            before, rows = rows, started.rows()
            moved = monotonic() if rows > before else moved
            if monotonic() - moved > SILENCE_S:
                log = (here.folder / LOG).read_text(errors="replace")
                raise TimeoutError(f"{system.name} made no progress at {rows} of {count} events:\n{log[-3000:]}")
            sleep(LOOK_S)
        seconds = monotonic() - began
    finally:
        started.stop()
    started.check()
    cpu, written = sum(ticks.values()) / os.sysconf("SC_CLK_TCK"), started.written()
    return {
        "system": system.name,
        "events": count,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "events_per_cpu_second": round(count / cpu),
        "files": written.files,
        "bytes": written.size,
    }
