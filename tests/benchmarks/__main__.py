"""`make bench`: ours and others on the same records, in one run; latency, starts and growth of ours.

python -m tests.benchmarks [--quick] [--only ours,connect] [--rounds 3] [--events 4000000]

`--only` takes words that are part of a system's name, or the names of further parts: latency, start, growth, cluster.
What a run finds is in `build/bench.json` and `build/bench.html`; `python -m tests.benchmarks.table` puts it into the
docs.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from signal import SIGTERM, signal

from lakehouse_ingest.environment.scratch import scratch_folder
from tests.benchmarks import clusters, growth, latency, starting
from tests.benchmarks.bars import SPARK
from tests.benchmarks.ours import BASE, CASES
from tests.benchmarks.page import HTML, written
from tests.benchmarks.peers import peers
from tests.benchmarks.race import Ground, ground, one_run
from tests.benchmarks.results import KEPT, Results, SystemResult, about, keep
from tests.benchmarks.systems import System
from tests.benchmarks.table import shown
from tests.benchmarks.topics import KINDS

EVENTS, ROUNDS = 4_000_000, 3
QUICK_EVENTS, QUICK_ROUNDS = 3_000_000, 1
LATENCY_S, QUICK_LATENCY_S = 300, 30
RATES, QUICK_RATES = (1_000, 10_000), (10_000,)
START, LATENCY, GROWTH, CLUSTER = "start", "latency", "growth", "cluster"
JARS = ("LAKEHOUSE_INGEST_JARS", "LAKEHOUSE_INGEST_JARS_MIRROR")


class Bench:
    def __init__(self, words: argparse.Namespace) -> None:
        self._quick, self._only = words.quick, [word.strip().lower() for word in words.only.split(",") if word.strip()]
        self._events = words.events or (QUICK_EVENTS if words.quick else EVENTS)
        self._rounds = words.rounds or (QUICK_ROUNDS if words.quick else ROUNDS)
        self.found = Results(about(self._events, self._rounds, quick=words.quick))

    def run(self, ground: Ground) -> None:
        """Whatever fails is named, and the rest goes on."""
        systems = [each for each in (*CASES, *peers()) if self._wants(each.name)]
        for system in systems:
            with _named(system.name):
                system.prepare()
        self._race(ground, systems)
        if self._wants(START):
            with _named(START):
                others = [each for each in peers() if each.name == SPARK]
                self.found.starts = starting.measured(ground, [BASE, *others], self._rounds)
        if self._wants(LATENCY):
            self._latency(ground)
        if self._wants(GROWTH) and not self._quick:
            with _named(GROWTH):
                self.found.growth = growth.measured(ground)
        if self._wants(CLUSTER) and not self._quick:
            self._clusters(ground)

    def _race(self, ground: Ground, systems: Sequence[System]) -> None:
        """Round by round, so that a machine that becomes slower does so for all."""
        self.found.systems = [SystemResult(each.name, each.kind) for each in systems]
        for number in range(self._rounds):
            for system, result in zip(systems, self.found.systems, strict=True):
                kind = getattr(system, "topic", "plain")
                topic = ground.topics.of(kind if kind in KINDS else "plain", self._events)
                with _named(system.name, result.failures), ground.place(system.name, topic) as here:
                    result.runs.append(one_run(system, here, self._events, ground))
                    say(f"round {number + 1}, {system.name}: {result.runs[-1]}")

    def _latency(self, ground: Ground) -> None:
        seconds, rates = (QUICK_LATENCY_S, QUICK_RATES) if self._quick else (LATENCY_S, RATES)
        for rate in rates:
            for every in ("", "0s"):
                with _named(f"latency at {rate} events/s, every = {every or latency.DEFAULT}"):
                    self.found.latency.append(latency.measured(ground, rate, every, seconds))
                    say(str(self.found.latency[-1]))

    def _clusters(self, ground: Ground) -> None:
        self.found.clusters = [SystemResult(name, "ours") for name in clusters.MASTERS]
        for number in range(self._rounds):
            for result in self.found.clusters:
                with _named(result.name, result.failures):
                    result.runs.append(clusters.one_run_on(result.name, ground, self._events))
                    say(f"round {number + 1}, {result.name}: {result.runs[-1]}")

    def _wants(self, name: str) -> bool:
        return not self._only or any(word in name.lower() for word in self._only)


@contextmanager
def _named(what: str, failures: list[str] | None = None) -> Iterator[None]:
    """One system that fails does not end the bench; it has no figure."""
    try:
        yield
    except Exception as failure:  # noqa: BLE001 - whatever it is, it belongs to this system
        say(f"{what}: no figure, because of {type(failure).__name__}: {failure}")
        traceback.print_exc()
        if failures is not None:
            failures.append(f"{type(failure).__name__}: {failure}"[:300])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.benchmarks")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--events", type=int, default=0)
    bench = Bench(parser.parse_args())
    signal(SIGTERM, lambda *_: sys.exit(128 + SIGTERM))  # so that what we started is ended
    for variable in [name for name in os.environ if name.startswith("LAKEHOUSE_INGEST_") and name not in JARS]:
        del os.environ[variable]  # settings of whoever runs the bench
    try:
        with scratch_folder() as folder, ground(folder) as servers:
            bench.run(servers)
    finally:  # who ends it early keeps what it has found so far
        keep(bench.found)
        HTML.write_text(written(bench.found), encoding="utf-8")
        print(shown(bench.found))
        print(f"Written: {KEPT} and {HTML}")


if __name__ == "__main__":
    main()
