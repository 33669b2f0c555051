"""A Spark standalone cluster of this machine: a master and two workers, each a process of its own.

with Cluster(tmp_path) as cluster:
    pipelines.start(f'{settings}[spark]\nmaster = "{cluster.uri}"')
"""

import os
import re
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Self

import pyspark

from lakehouse_ingest.environment.java import find_java
from tests.services.pipelines import STARTING, arguments, descendants, until

HERE = "127.0.0.1"
DAEMON = b"lakehouse_ingest.pipeline.python_daemon"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
ADDRESS = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
PORTS = ("--host", HERE, "--port", "0", "--webui-port", "0")
SPARK = Path(pyspark.__file__).parent


class Cluster:
    """Workers of one core each, in an environment that knows nothing of this project."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder, self._first, self._ending = folder, workers, ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.uri = ""

    def __enter__(self) -> Self:
        with self._ending as started:
            self.uri = self._start("master", MASTER, *PORTS, until_said=ADDRESS)[1]
            for _ in range(self._first):
                self.add_worker()
            self._ending = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def add_worker(self, memory: str = "1g") -> None:
        number = len(self._processes)
        place = ("--cores", "1", "--memory", memory, "--work-dir", str(self._folder / f"work-{number}"))
        registered = re.compile(r"Successfully registered with master (\S+)")
        self._start(f"worker-{number}", WORKER, *PORTS, *place, self.uri, until_said=registered)

    @property
    def processes(self) -> list[int]:
        """The master and the workers."""
        return [process.pid for process in self._processes]

    @property
    def executors(self) -> list[int]:
        """The processes that the workers have started for applications."""
        return [pid for process in self._processes for pid in executors(process.pid)]

    def _start(self, name: str, *command: str, until_said: re.Pattern[str]) -> re.Match[str]:
        log = self._folder / f"{name}.log"
        own = ("PATH", "HOME", "LANG", "TMPDIR")
        environment = {key: os.environ[key] for key in own if key in os.environ}
        # All are killed, and what Java has unpacked would stay in /tmp.
        java_scratch = f'"-Djava.io.tmpdir={self._folder}"'
        environment["JAVA_TOOL_OPTIONS"] = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java_scratch}"
        environment |= {"JAVA_HOME": str(find_java().parent.parent), "SPARK_HOME": str(SPARK)}
        environment |= {"SPARK_LOCAL_IP": HERE, "SPARK_DAEMON_MEMORY": "128m"}
        with log.open("wb") as said:
            process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-class"), *command],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._processes.append(process)
        self._ending.callback(_end, process)
        found: list[re.Match[str]] = []

        def has_said() -> bool:
            found.extend(until_said.finditer(log.read_text(errors="replace")))
            return bool(found) or process.poll() is not None

        assert until(has_said, STARTING), f"{name} does not start"
        assert found, log.read_text(errors="replace")
        return found[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    for pid in [*descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
    process.wait(30)


def executors(pid: int) -> list[int]:
    """The executors among the descendants of a process."""
    return [each for each in descendants(pid) if b"CoarseGrainedExecutorBackend" in arguments(each)]


def tasks_of(executor: int) -> list[int]:
    """The Python processes of an executor in which tasks run, once there are any."""
    return [pid for each in descendants(executor) if DAEMON in arguments(each) for pid in descendants(each)]
