"""One system after the other, each on the same records: what it takes, how long, and the proof that all is there."""

import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from tests.benchmarks.figures import Sample, at_commits, cold, steady
from tests.benchmarks.process_tree import ProcessTree, busy
from tests.benchmarks.results import MEGABYTE, Run
from tests.benchmarks.systems import Started, Surroundings, System
from tests.benchmarks.topics import PARTITIONS, Topics

LOOK = 0.2
GENTLE = 10  # whoever asks for rows takes no more than one part in so many of the time
SLOWEST = 5_000  # events a second: a system that is slower is given up
STARTING = 120.0


@dataclass
class Ground:
    """What all systems stand on: one broker, one catalog, and topics that are filled once."""

    folder: Path
    broker: EmbeddedBroker
    catalog: EmbeddedCatalog
    brokers: str
    catalog_uri: str
    topics: Topics
    _places: int = 0

    @contextmanager
    def place(self, label: str, topic: str, partitions: int = PARTITIONS) -> Iterator[Surroundings]:
        """A namespace and a folder of its own, whose files are removed at the end."""
        self._places += 1
        namespace = f"bench_{self._places}_{re.sub(r'[^a-z0-9]+', '_', label.lower())}"
        folder = self.folder / "runs" / namespace
        folder.mkdir(parents=True)
        here = Surroundings(
            self.brokers, self.catalog_uri, self.catalog.warehouse, topic, partitions, folder, namespace
        )
        client = RestCatalog("bench", uri=self.catalog_uri, token=here.token)
        client.create_namespace_if_not_exists(namespace)
        client.close()
        try:
            yield here
        except BaseException:
            _show_log(folder)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(self.catalog.warehouse / namespace, ignore_errors=True)

    def servers(self) -> list[int]:
        return [pid for pid in (self.broker.java, self.catalog.java) if pid]


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    broker, catalog = EmbeddedBroker(folder / "broker", port=0), EmbeddedCatalog(folder / "warehouse", port=0)
    with broker, catalog:
        if not (broker.uri and catalog.uri):
            raise RuntimeError("broker or catalog does not say where it is")
        yield Ground(folder, broker, catalog, broker.uri, catalog.uri, Topics(broker.uri))


def one_run(system: System, here: Surroundings, count: int, ground: Ground, beside: Collection[int] = ()) -> Run:
    """Figures, or an exception: a run whose counts do not add up has none. `beside`: further processes that work."""
    others = Others(ground)
    started = system.start(here, count)
    began, began_at = time.monotonic(), time.time()  # what we prepared for it before is not its time
    try:
        tree = ProcessTree(started.pid, beside=beside)
        samples = watched(started, tree, began, count, STARTING + count / SLOWEST)
        share = others.share(tree.cpu())
        written = started.written()
        commits = [(each.at - began_at, each.events) for each in started.commits() if each.events]
    finally:
        started.stop()
    started.check()
    seen = at_commits(samples, commits) if commits else samples
    whole = cold(seen, count)
    if whole is None:
        raise RuntimeError(f"{system.name} took no time of the processor")
    return Run(
        cold=whole,
        steady=steady(seen, count),
        peak_mb=round(tree.peak / MEGABYTE),
        files=written.files,
        size_mb=round(written.size / MEGABYTE, 1),
        others=round(share, 3),
    )


def watched(started: Started, tree: ProcessTree, began: float, count: int, patience: float) -> list[Sample]:
    """Looks at the system until a reader sees all events."""
    samples, rows, ask = [Sample(0.0, 0.0, 0)], 0, 0.0
    while rows < count:
        if time.monotonic() - began > patience:
            raise TimeoutError(f"{rows:,} of {count:,} events were visible after {patience:.0f} s")
        if (asked := time.monotonic()) >= ask:
            rows = started.rows()
            ask = asked + max(LOOK, GENTLE * (time.monotonic() - asked))
        samples.append(Sample(time.monotonic() - began, tree.cpu(), rows))
        time.sleep(max(0.0, asked + LOOK - time.monotonic()))
    return samples


class Others:
    """What programs take that are no part of the bench: a figure of a busy machine should say so."""

    def __init__(self, ground: Ground) -> None:
        self._own = [ProcessTree(pid) for pid in ground.servers()]
        self._began, self._busy, self._spent = time.monotonic(), busy(), self._servers()

    def share(self, tree: float) -> float:
        """Of all processors since the beginning; `tree`: seconds that the system took."""
        spent = self._servers() - self._spent + tree
        taken = busy() - self._busy - spent
        return max(0.0, taken / (time.monotonic() - self._began) / len(os.sched_getaffinity(0)))

    def _servers(self) -> float:
        return sum(tree.cpu() for tree in self._own) + time.process_time()


def _show_log(folder: Path) -> None:
    for log in sorted(folder.glob("log*.txt")):
        print(f"{log.name}: {log.read_text(errors='replace')[-3000:]}", file=sys.stderr, flush=True)
