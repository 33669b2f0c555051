"""A Java process that is started and directed from Python, and that cannot outlive us.

py4j's server ends when its standard input does, and only we hold the other end of that pipe. So the JVM ends with us,
even by SIGKILL. It runs in a process session of its own, or Ctrl-C in the terminal would end it before our last commit.
Its output goes to a log file, and its temporary files to a scratch folder. It listens on loopback, behind a token.
"""

import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError

from lakehouse_ingest.environment.class_archive import java_options
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.errors import TryAgain

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
START_SECONDS = 60.0
STOP_SECONDS = 5.0
OPTIONS = ("-XX:+UseSerialGC", "-XX:+DisplayVMOutputToStderr", "-Djava.awt.headless=true")


class Jvm:
    """One running JVM; `classes` leads to its packages."""

    def __init__(self, name: str, classpath: Sequence[Path], options: Sequence[str], log: Path, lock: int) -> None:
        """`lock` is an open file, which stays locked until the JVM has ended as well."""
        self.name, self.log = name, log
        py4j = next(SPARK_JARS.glob("py4j-*.jar"))
        java = find_java()
        classes = shlex.split(java_options(java, classpath[0].parent, name)) if classpath else []
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        with ExitStack() as started:
            # Java unpacks libraries of 1 MB each, and leaves them behind if it is killed.
            scratch = f"-Djava.io.tmpdir={started.enter_context(scratch_folder())}"
            command = [str(java), *OPTIONS, *classes, scratch, *options]
            command += ["-cp", os.pathsep.join(map(str, [py4j, *classpath]))]
            command += ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
            with log.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            started.callback(self._kill)
            port, token = self._greeting()
            # Without memory management the few objects that we make live as long as the JVM, and no finalizer
            # talks to a JVM that is gone.
            self._gateway = JavaGateway(
                gateway_parameters=GatewayParameters(
                    address="127.0.0.1",
                    port=int(port),
                    auth_token=token,
                    auto_convert=True,
                    enable_memory_management=False,
                )
            )
            self._redirect_output()
            self._ending = started.pop_all()

    @property
    def classes(self) -> Any:
        return self._gateway.jvm

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def array(self, *texts: str) -> Any:
        """A Java String[]."""
        made = self._gateway.new_array(self.classes.java.lang.String, len(texts))
        for at, text in enumerate(texts):
            made[at] = text
        return made

    def failed(self, error: Exception) -> TryAgain:
        """Java's innermost cause as one sentence, and where its log is."""
        said = str(error)
        if isinstance(error, Py4JJavaError):
            with suppress(Py4JError):
                cause = error.java_exception
                while cause.getCause() is not None:
                    cause = cause.getCause()
                said = cause.toString()
        first = said.strip().splitlines()[0] if said.strip() else type(error).__name__
        return TryAgain(f"The embedded {self.name} did not start: {first} (its log: {self.log}).")

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ends it and waits until its process is gone."""
        with suppress(Py4JError, OSError):
            self._gateway.close()
        self._close_pipes()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._ending.close()

    def _greeting(self) -> list[str]:
        """The port and the token, a line each: nothing else is printed before we redirect the output."""
        deadline, said = time.monotonic() + START_SECONDS, b""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        # Not `select`, which refuses in a process with more than 1,024 open files.
        with selectors.DefaultSelector() as output:
            output.register(pipe, selectors.EVENT_READ)
            while said.count(b"\n") < 2:  # noqa: PLR2004 - two lines
                ready = output.select(max(0.0, deadline - time.monotonic()))
                more = os.read(pipe, 4096) if ready else b""
                if not more:
                    why = "it ended at once" if ready else f"it said nothing for {START_SECONDS:.0f} seconds"
                    last = self.log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise self.failed(RuntimeError(": ".join([why, *last])))
                said += more
        return said.decode().split()

    def _redirect_output(self) -> None:
        """Nobody reads the pipe from here on, and a full pipe would block every thread that prints."""
        java = self.classes.java
        java.lang.System.setOut(java.io.PrintStream(java.io.FileOutputStream(str(self.log), True), True))
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _kill(self) -> None:
        self._close_pipes()
        self._process.kill()
        self._process.wait()
