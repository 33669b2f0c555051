"""What each test and each fixture costs: seconds of the processor, children included, and seconds of the clock.

LAKEHOUSE_TEST_COSTS=build/costs.jsonl make test          # a line for each; none without the variable
python -m tests.services.costs build/costs.jsonl          # the dearest files, tests and fixtures
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest

VARIABLE = "LAKEHOUSE_TEST_COSTS"
LOOK, FRESH = 0.25, 0.02
TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 40


@dataclass(frozen=True)
class Process:
    parent: int
    began: int
    own: int  # ticks, its own and those of the children that it has waited for


def processes() -> Mapping[int, Process]:
    """Of the whole machine: it is quicker to read them all than to ask each thread for its children."""
    found: dict[int, Process] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:  # it has just ended
                continue
            words = stat.rpartition(") ")[2].split()
            found[int(folder.name)] = Process(int(words[1]), int(words[19]), sum(map(int, words[11:15])))
    return found


@dataclass
class Meter:
    """The seconds of this process and of all that it ever started.

    A child that was waited for is in its parent's figure. One that lost its parent, such as the JVM of a killed
    pipeline, is in nobody's: it is looked at every quarter of a second for as long as it lives.
    """

    _known: dict[int, Process] = field(default_factory=dict)
    _gone: int = 0
    _seconds: float = 0.0
    _looked: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def seconds(self) -> float:
        with self._lock:
            if time.monotonic() - self._looked < FRESH:  # most fixtures are nothing, and a look takes milliseconds
                return self._seconds
            there = processes()
            ours = {os.getpid()} | {pid for pid, was in self._known.items() if _same(there.get(pid), was)}
            while more := {pid for pid, each in there.items() if each.parent in ours} - ours:
                ours |= more
            for pid, was in self._known.items():
                if pid not in ours and was.parent not in ours:
                    self._gone += was.own
            self._known = {pid: there[pid] for pid in ours if pid in there}
            self._seconds = (self._gone + sum(each.own for each in self._known.values())) / TICKS
            self._looked = time.monotonic()
            return self._seconds

    def watch(self) -> None:
        while True:
            time.sleep(LOOK)
            self.seconds()


def _same(now: Process | None, was: Process) -> bool:
    return now is not None and now.began == was.began


class Costs:
    """A plugin of pytest: fixtures within fixtures, and within tests, are each counted once."""

    def __init__(self, file: Path, worker: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._worker, self._meter = file, worker, Meter()
        self._within: list[list[float]] = []
        Thread(target=self._meter.watch, name="costs", daemon=True).start()

    def _counted(self, kind: str, name: str) -> Generator[None, Any, Any]:
        cpu, wall, inner = self._meter.seconds(), time.monotonic(), [0.0, 0.0]
        self._within.append(inner)
        try:
            return (yield)
        finally:
            self._within.pop()
            spent = [self._meter.seconds() - cpu, time.monotonic() - wall]
            for outer in self._within[-1:]:
                outer[:] = [sum(pair) for pair in zip(outer, spent, strict=True)]
            own = [round(all_ - part, 2) for all_, part in zip(spent, inner, strict=True)]
            line = {"kind": kind, "name": name, "cpu": own[0], "wall": own[1], "worker": self._worker}
            with self._file.open("a") as file:
                file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._counted("test", item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        return (yield from self._counted("fixture", f"{fixturedef.baseid}::{fixturedef.argname}"))


def wanted(config: pytest.Config) -> None:
    """Registers the plugin where the variable names a file; each worker writes into it, and the one before them not."""
    if (file := os.environ.get(VARIABLE)) and not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Costs(Path(file).resolve(), os.environ.get("PYTEST_XDIST_WORKER", "one")))


def _sums(lines: Iterable[Mapping[str, Any]], by: str) -> Iterator[str]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for line in lines:
        name = line["name"].partition("::")[0] if by == "file" else line["name"]
        sums[name] = [was + more for was, more in zip(sums[name], (line["cpu"], line["wall"], 1), strict=True)]
    dearest = sorted(sums.items(), key=lambda each: -each[1][0])
    total = [sum(figures) for figures in zip(*sums.values(), strict=True)] or [0.0, 0.0, 0.0]
    for name, (cpu, wall, count) in [("all", total), *dearest[:SHOWN]]:
        yield f"{cpu:8.1f} {wall:8.1f} {count:5.0f}  {name}"


if __name__ == "__main__":
    read = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    tests = [line for line in read if line["kind"] == "test"]
    fixtures = [line for line in read if line["kind"] == "fixture"]
    for title, lines, by in (("files", tests, "file"), ("tests", tests, "test"), ("fixtures", fixtures, "fixture")):
        print(f"\n     cpu     wall count  {title}")
        print("\n".join(_sums(lines, by)))
