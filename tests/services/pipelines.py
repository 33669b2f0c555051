"""`lakehouse-ingest run` as a process of its own, to be watched, stopped, frozen and killed.

with Pipelines(tmp_path, jars_folder) as pipelines:
    running = pipelines.start(settings_text(...))
    running.wait_for("batch_landed")
    running.kill()
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from threading import Lock
from types import TracebackType
from typing import Any, Self

from lakehouse_ingest.environment.embedded.claim import alive
from tests.services.doors import in_settings

ROOT = Path(__file__).parents[2]
STARTING = 200.0  # Spark takes ten seconds on an idle machine
LANDING = 60.0
LOOK = 0.02
# Compiled quickly rather than well: these JVMs live for seconds. What Spark generates for hundreds of tables is more
# than the first compiler has room for by itself. Once that is full, everything after it is interpreted.
ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=240m"
QUICKLY = f"-XX:TieredStopAtLevel=1 {ROOM_FOR_CODE}"
JAVA_OPTIONS = f"{QUICKLY} -XX:+UseSerialGC"
TWO_COLUMNS = """\
table = "events"
columns = [{ name = "n", type = "long", required = true }, { name = "text", type = "string" }]"""

Event = Mapping[str, Any]


def until(what: Callable[[], bool], seconds: float, look: float = LOOK) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(look)
    return True


class Heard:
    """What a log says so far. It is asked fifty times a second, so only what is new is read and parsed."""

    def __init__(self, log: Path) -> None:
        self._log, self._lock = log, Lock()
        self._text, self._parsed = bytearray(), 0
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        with self._lock:
            self._read()
            end = self._text.rfind(b"\n") + 1  # the last line may be half written
            for line in self._text[self._parsed : end].decode(errors="replace").splitlines():
                with suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._events.append(event)
            self._parsed = max(self._parsed, end)
            return [*self._events]

    def has(self, word: str) -> bool:
        with self._lock:
            self._read()
            return word.encode() in self._text

    def _read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(len(self._text))
            self._text += log.read()


class Running:
    """One start of a pipeline, in a process group of its own; `log` is all that it said."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.log, self.started = log, time.monotonic()
        self._heard = Heard(log)
        self._seen: set[tuple[int, str]] = set()  # its children, so long as it lived, and when each began
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    # -- what it says -------------------------------------------------------------------------------------

    def events(self, name: str | None = None) -> list[Event]:
        """Its log so far; what is no JSON is not ours."""
        return [event for event in self._heard.events() if name in (None, event.get("event"))]

    def last_words(self) -> list[str]:
        """The lines that are no log events."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("{")]

    def is_struck(self) -> bool:
        """By a fail point: a worker's words come to the log by way of Spark."""
        return self._heard.has("fail_point")

    def wait_for(self, name: str, count: int = 1, seconds: float = STARTING) -> Event:
        """The count-th event of this name; fails when the process ends before, or with the deadline."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.ended  # looked at before the log, so that nothing is missed
            if len(found := self.events(name)) >= count:
                return found[count - 1]
            if ended or time.monotonic() > deadline:
                why = f"it ended with {self._process.returncode}" if ended else f"not within {seconds:.0f} s"
                raise AssertionError(f"no {name} number {count}: {why}\n{self.tail()}")
            time.sleep(LOOK)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # -- what is done to it -------------------------------------------------------------------------------

    def send(self, number: Signals) -> None:
        self.family()
        self._process.send_signal(number)

    def send_to_group(self, number: Signals) -> None:
        """As a terminal's Ctrl-C does, or `timeout`."""
        self.family()
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL of Python alone: its JVM has to notice by itself."""
        self.family()
        self._process.kill()
        self._process.wait(30)

    def freeze(self) -> None:
        """All its processes are stopped when this returns, first the Python workers, which write the files."""
        self.family()
        for pid in [*reversed([*descendants(self.pid)]), self.pid]:
            with suppress(ProcessLookupError, FileNotFoundError):  # Spark ends processes that it needs no more
                freeze(pid)

    def thaw(self) -> None:
        for pid in [*self.family(), self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGCONT)

    def workers(self) -> list[int]:
        """The processes in which tasks run."""
        return [pid for pid in descendants(self.jvm()) if is_worker(pid)]

    def wait(self, seconds: float = LANDING) -> int:
        """Its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:.0f} s\n{self.tail()}") from None

    # -- its children -------------------------------------------------------------------------------------

    def family(self) -> list[int]:
        """Its living descendants, and those it once had."""
        if not self.ended:
            self._seen.update((pid, _beginning(pid)) for pid in descendants(self.pid))
        # The number of one that is gone may be a stranger's by now.
        return [pid for pid, began in self._seen if alive(pid) and _beginning(pid) == began]

    def jvm(self) -> int:
        """Spark's: a child of Python. What it forks itself, for each `chmod`, has its arguments too for a moment."""
        self.family()
        return next(filter(is_spark, _children(self.pid)))

    def end(self) -> None:
        """Whatever state it is in: nothing of it is left afterwards."""
        for pid in [*self.family(), *([] if self.ended else [self.pid])]:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        self._process.wait(30)


@dataclass
class Pipelines:
    """Starts pipelines, and ends at its own end those that still run."""

    folder: Path
    jars: Path | None = None
    started: list[Running] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)  # beyond ours

    def start(
        self, settings: str, *words: str, environment: Mapping[str, str] | None = None, verb: str = "run"
    ) -> Running:
        number = len(self.started) + 1
        config = self.folder / f"pipeline-{number}.toml"
        config.write_text(settings)
        command = [sys.executable, "-m", "lakehouse_ingest", verb, "--config", str(config), *words]
        variables = {key: value for key, value in os.environ.items() if not key.startswith("LAKEHOUSE_INGEST_")}
        variables["JAVA_TOOL_OPTIONS"] = JAVA_OPTIONS
        if self.jars:
            variables["LAKEHOUSE_INGEST_JARS"] = str(self.jars)
        variables |= {**self.environment, **(environment or {})}
        running = Running(command, variables, self.folder / f"pipeline-{number}.log")
        self.started.append(running)
        return running

    def drain(self, settings: str, seconds: float = 120.0) -> Running:
        """One start that lands all that is there, and ends well."""
        running = self.start(settings, "--until-latest")
        assert running.wait(seconds) == 0, running.tail()
        return running

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self.started:
            running.end()


def settings_text(
    name: str,
    brokers: str,
    catalog_uri: str | None,
    namespace: str,
    *,
    topic: str = "",
    every: str = "0s",
    max_records: int = 20_000,
    batch_every: str = "0s",
    keep_snapshots: int = 100,
    retry: str = "120s",
    type_from: str = "",
    table: str = TWO_COLUMNS,
) -> str:
    """A settings file, with partitions by the record's day; without a catalog the embedded one."""
    uri = "\n".join(f'{key} = "{value}"' for key, value in in_settings(catalog_uri).items()) if catalog_uri else ""
    typed = f'type_from = "{type_from}"' if type_from else ""
    return f"""\
name = "{name}"
[catalog]
namespace = "{namespace}"
{uri}
[source]
brokers = "{brokers}"
[[streams]]
topics = ["{topic or name}"]
every = "{every}"
max_records = {max_records}
{typed}
[[streams.tables]]
{table}
[ledger]
batch_every = "{batch_every}"
keep_snapshots = {keep_snapshots}
keep_for = "0s"
[retry]
first = "500ms"
limit = "{retry}"
[log]
format = "json"
"""


# -- processes by their ids -------------------------------------------------------------------------------


def descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from descendants(child)


def is_spark(pid: int) -> bool:
    return b"org.apache.spark.deploy.SparkSubmit" in arguments(pid)


def is_worker(pid: int) -> bool:
    """The first of them imports for all, and forks the others."""
    return b"lakehouse_ingest.pipeline.python_daemon" in arguments(pid) and not is_spark(_parent(pid))


def arguments(pid: int) -> bytes:
    """Nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def freeze(pid: int) -> None:
    """SIGSTOP, and the proof of it. One that has ended, and whose parent does not know yet, does no more either."""
    os.kill(pid, SIGSTOP)
    assert until(lambda: _state(pid) in {"T", "Z"}, 5, 0.001), f"process {pid} did not stop: {_state(pid)}"


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # it may end while it is looked at
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def _beginning(pid: int) -> str:
    """In ticks since the machine began; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""
