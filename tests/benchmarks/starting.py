"""How long a start takes, from the command to the first commit that a reader sees; and what is left when nothing comes.

The topic is small, so that the start is all there is. A Spark job written by hand is started in the same way.
"""

import sys
import time
from collections.abc import Iterable

from tests.benchmarks.process_tree import ProcessTree
from tests.benchmarks.race import Ground
from tests.benchmarks.results import MEGABYTE, StartResult
from tests.benchmarks.systems import System

EVENTS = 1_200
IDLE_S = 15.0
LOOK = 0.05
PATIENCE = 120.0


def measured(ground: Ground, systems: Iterable[System], rounds: int) -> list[StartResult]:
    """In turn. The first start of each warms the caches of the machine, and does not count."""
    topic = ground.topics.of("plain", EVENTS)
    found = [(system, StartResult(system.name, system.kind)) for system in systems]
    for number in range(-1, rounds):
        for system, result in found:
            with ground.place(f"start_{system.kind}", topic) as here:
                started = system.start(here, EVENTS)
                began = time.monotonic()
                try:
                    tree = ProcessTree(started.pid)
                    while started.rows() == 0:
                        if time.monotonic() - began > PATIENCE:
                            raise TimeoutError(f"{system.name} has committed nothing after {PATIENCE:.0f} s")
                        time.sleep(LOOK)
                    seconds, cpu = time.monotonic() - began, tree.cpu()
                    if number >= 0:
                        result.seconds.append(round(seconds, 2))
                        result.cpu.append(round(cpu, 2))
                        if system.kind == "ours":
                            time.sleep(IDLE_S)  # so long it is idle
                            result.idle_mb.append(round(tree.memory() / MEGABYTE))
                finally:
                    started.stop()
        print(f"start, round {number + 1}: {[(result.name, result.seconds) for _, result in found]}", file=sys.stderr)
    return [result for _, result in found]
