"""`make profile`: where the processor time of a run goes, as flame graphs in build/profile.

The command line runs one pipeline on the events of `make bench`, from its start until all of them have landed.
`python.svg` shows our process and Spark's Python workers, `java.svg` Spark's JVM. Java's compilers and collectors have
no Java stack, so they are only in the table that is printed: the seconds of each process, and of Java's threads.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from os import sysconf
from pathlib import Path
from shutil import which
from zlib import crc32

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.scratch import scratch_folder
from tests.benchmarks.ours import CASES, Ours
from tests.benchmarks.systems import Surroundings
from tests.benchmarks.topics import PARTITIONS, Topics
from tests.services.pipelines import arguments, descendants, is_spark, is_worker

EVENTS = 4_000_000
FOLDER = Path("build/profile")
RATE = 100  # samples a second
LOOK_S, LEAST_S = 0.5, 0.05
SAMPLES = "jdk.ExecutionSample"
DEPTH = 512  # frames: of a deeper stack Java leaves out the outermost, and it would stand in the wrong place
WIDTH, ROW, LETTER, NARROWEST = 1600, 17, 6.6, 0.3  # pixels

# On one line: py-spy writes a line for each stack, in which this command stands.
JAVA = (
    '[spark.options]\n"spark.driver.extraJavaOptions" = "-XX:FlightRecorderOptions=stackdepth={depth}'
    ' -XX:StartFlightRecording=filename={recording},settings=profile,jdk.ExecutionSample#period=5ms"\n'
)

Stack = tuple[str, ...]


def profiled(case: Ours, folder: Path, events: int) -> Mapping[str, float]:
    """Run a pipeline under both profilers. Returns the seconds of its processes and threads."""
    with scratch_folder() as scratch:
        broker, catalog = EmbeddedBroker(scratch / "broker", port=0), EmbeddedCatalog(scratch / "warehouse", port=0)
        try:
            address, uri = broker.start(), catalog.start()
            topic = Topics(address).of(case.topic, events)
            here = Surroundings(address, uri, catalog.warehouse, topic, PARTITIONS, scratch, "profiled")
            config, recording = scratch / "pipeline.toml", scratch / "java.jfr"
            watched = replace(case, more=JAVA.format(recording=recording, depth=DEPTH))
            config.write_text(watched.settings(here), encoding="utf-8")
            found = _run(config, scratch / "python.txt")
            stacks = _python_stacks(scratch / "python.txt")
            (folder / "python.svg").write_text(flame_graph(stacks, f"Our process and the tasks: {case.name}"))
            (folder / "java.svg").write_text(flame_graph(_java_stacks(recording), f"Spark's JVM: {case.name}"))
        finally:
            catalog.stop()
            broker.stop()
    return found


def _run(config: Path, stacks: Path) -> Mapping[str, float]:
    spy = [which("py-spy") or "py-spy", "record", "--subprocesses", "--rate", str(RATE)]
    spy += ["--function", "--format", "raw", "--output", str(stacks), "--"]
    run = [sys.executable, "-m", "lakehouse_ingest", "run", "--config", str(config), "--until-latest", "--allow-code"]
    found: dict[tuple[int, int], tuple[str, float]] = {}
    with subprocess.Popen([*spy, *run]) as process:
        while process.poll() is None:
            for pid in [*descendants(process.pid)]:
                found |= {(pid, thread): (name, seconds) for thread, name, seconds in _threads(pid)}
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
    if process.returncode:
        raise SystemExit(process.returncode)
    by_name: dict[str, float] = defaultdict(float)
    for name, seconds in found.values():
        by_name[name] += seconds
    return by_name


def _threads(pid: int) -> Iterator[tuple[int, str, float]]:
    """The threads of a process so far. They are named after their process, and those of Java after their kind."""
    with suppress(OSError):  # it has ended
        is_java = is_spark(pid)
        what = "Spark's JVM" if is_java else "tasks" if is_worker(pid) else "our process"
        if b"python_daemon" in arguments(pid) and not is_worker(pid):
            what = "imports for the tasks"
        for thread in [*Path(f"/proc/{pid}/task").iterdir()]:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            seconds = sum(map(int, rest.split()[11:13])) / sysconf("SC_CLK_TCK")
            kind = re.sub(r"[-# .\d]+", " ", name).strip()
            yield int(thread.name), f"{what}: {kind}" if is_java else what, seconds


def _python_stacks(raw: Path) -> Counter[Stack]:
    """The tasks of all workers together, and an import as what it runs: how Python imports is left out."""
    found = Counter[Stack]()
    for line in raw.read_text(encoding="utf-8").splitlines():
        stack, _, samples = line.rpartition(" ")
        found[tuple(_frame(each) for each in stack.split(";") if "<frozen" not in each)] += int(samples)
    return found


def _frame(text: str) -> str:
    if text.startswith("process "):
        return "workers" if "python_daemon" in text else "Spark's JVM" if "pyspark-shell" in text else "our process"
    name, _, place = text.rpartition(" (")
    return f"{name} {Path(place).name.partition(':')[0]}"


# -- Java's samples -------------------------------------------------------------------------------------------


def _java_stacks(recording: Path) -> Counter[Stack]:
    """How often each stack was seen, from the thread down to the method that ran."""
    command = [str(find_java().with_name("jfr")), "print", "--json", "--stack-depth", str(DEPTH), "--events", SAMPLES]
    printed = subprocess.run([*command, str(recording)], capture_output=True, text=True, check=True).stdout
    found = Counter[Stack]()
    for event in json.loads(printed)["recording"]["events"]:
        sample = event["values"]
        frames = [each["method"] for each in (sample["stackTrace"] or {"frames": []})["frames"]]
        thread = re.sub(r"[-#\s\d]+", " ", (sample["sampledThread"] or {}).get("javaName") or "unknown").strip()
        found[thread, *(f"{_short(each['type']['name'])}.{each['name']}" for each in reversed(frames))] += 1
    return found


def _short(name: str) -> str:
    """The class without its package, and a lambda without its number."""
    return re.sub(r"\$\$Lambda.*", "$$Lambda", re.split(r"[./]", name.partition("+")[0])[-1])


def flame_graph(stacks: Mapping[Stack, int], title: str) -> str:
    """The stacks as an SVG: the wider a frame, the more samples. A browser shows the whole name of a frame."""
    total = sum(stacks.values())
    height = ROW * (2 + max(map(len, stacks), default=0))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="11"'
    drawn = "".join(_frames([*stacks.items()], 0, 0.0, 1, WIDTH / max(1, total)))
    return f'{head} font-family="monospace"><text x="4" y="12">{escape(title)}: {total} samples</text>{drawn}</svg>'


def _frames(stacks: Sequence[tuple[Stack, int]], depth: int, left: float, row: int, scale: float) -> Iterator[str]:
    below: dict[str, list[tuple[Stack, int]]] = {}
    for stack, count in stacks:
        if len(stack) > depth:
            below.setdefault(stack[depth], []).append((stack, count))
    for name, inner in sorted(below.items()):
        samples = sum(count for _, count in inner)
        if (width := samples * scale) >= NARROWEST:
            shown, hue = escape(name[: int(width / LETTER)]), crc32(name.encode()) % 60
            yield (
                f'<g><title>{escape(name)}: {samples}</title><rect x="{left:.1f}" y="{row * ROW}" width="{width:.1f}"'
                f' height="{ROW - 1}" fill="hsl({hue},80%,70%)"/><text x="{left + 2:.1f}" y="{row * ROW + 12}">'
                f"{shown}</text></g>"
            )
            yield from _frames(inner, depth + 1, left, row + 1, scale)
        left += width


def main() -> None:
    cases = {case.name.removeprefix("ours: "): case for case in CASES}
    parser = argparse.ArgumentParser(prog="tests.benchmarks.profile")
    parser.add_argument("--case", choices=cases, default=next(iter(cases)))
    parser.add_argument("--events", type=int, default=EVENTS)
    words = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    seconds = profiled(cases[words.case], FOLDER, words.events)
    for name, each in sorted(seconds.items(), key=lambda item: -item[1]):
        if each >= LEAST_S:
            print(f"{each:8.2f} s  {name}")
    rate = words.events / sum(seconds.values())
    print(f"{rate:,.0f} events per CPU second while both profilers looked on; see {FOLDER}")


if __name__ == "__main__":
    main()
