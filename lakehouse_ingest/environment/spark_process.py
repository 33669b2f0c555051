"""Spark's Java process: the command that starts it, and how it ends.

Spark's own script starts a shell and another Java, which only put together the command that the script then runs. That
takes 0.15 seconds of the processor. So the command is put together here, and a test compares it with the script's.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from lakehouse_ingest.environment import spark_internals
from lakehouse_ingest.errors import SettingsRefused

STOP_S = 10.0
LOOK_S = 0.02
HOME = Path(pyspark.__file__).parent
MEMORY, JAVA_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
CLASS_PATH, LIBRARY_PATH = "spark.driver.extraClassPath", "spark.driver.extraLibraryPath"
# Variables that name another Spark, or change how this one starts: our checks of the settings do not see them.
OTHERS = (
    *("SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "PYSPARK_SUBMIT_ARGS"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
)
GATEWAY_PORT, GATEWAY_SECRET = OTHERS[-2:]
# What Spark needs of Java 17 and later, without the module that only its library for machine learning uses.
OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent", "util.concurrent.atomic"),
)
MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED),
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
)
EVENT, PART = "\x1e", "\x1f"  # the first begins a line of log4j, the second separates its fields
LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}
# Java and Spark print these at every start, whatever the logging is set to.
CHATTER = (
    "Picked up JAVA_TOOL_OPTIONS",
    "Setting default log level",
    "To adjust logging level",
)


@dataclass(frozen=True)
class Line:
    """A line that the JVM printed: by a logger of its own, with a level of ours, or without both."""

    text: str
    level: str = "warning"
    logger: str = ""

    def __str__(self) -> str:
        return f"{self.logger}: {self.text}" if self.logger else self.text

    @classmethod
    def parse(cls, printed: str) -> "Line":
        """Reads what log4j2.properties makes the JVM write."""
        if printed.startswith(EVENT) and printed.count(PART) >= 2:  # noqa: PLR2004 - level, logger, text
            level, logger, text = printed.removeprefix(EVENT).split(PART, 2)
            return cls(text.strip(), LEVELS.get(level, "warning"), logger)
        return cls(printed)


class SparkProcess:
    """A JVM that has been started, and may not be up yet."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", address: Path, printed: Sequence[str], relay: Thread
    ) -> None:
        self._process, self._address, self._printed, self._relay = process, address, printed, relay
        self._gateway: JavaGateway | None = None

    def connected(self) -> JavaGateway:
        """Waits until the JVM answers."""
        while not self._address.exists():
            if self._process.poll() is not None:
                self._relay.join()
                said = " ".join(self._printed)[:100]
                raise SettingsRefused(f"Spark's Java process ended at once; see the settings under `spark`: {said}")
            time.sleep(LOOK_S)
        with self._address.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
        self._address.unlink()  # with the secret, another process could run code there
        with _variables({GATEWAY_PORT: str(port), GATEWAY_SECRET: secret}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call] # of a JVM that is there already
        self._gateway.proc = self._process
        return self._gateway

    def end(self, stop_s: float) -> None:
        """Java has so many seconds to end by itself. It does when its standard input ends."""
        if self._gateway:
            with suppress(Py4JError, OSError):
                self._gateway.shutdown()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(stop_s if self._gateway else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._relay.join()
        if self._gateway:  # or pyspark knows the Java of somebody else
            spark_internals.forget_java()


class _Forked:
    """A JVM that is forked by a thread of its own, where no signal is handled.

    What a signal raises comes between any two steps of the main thread. If it came between the fork and our `try`,
    nobody would end that JVM: it would run on without its folder. Here the block ends whatever was forked.
    """

    def __init__(self, address: Path, say: Callable[[Line], None]) -> None:
        self._address, self._say = address, say
        self._lock, self._ended = Lock(), False
        self._process: SparkProcess | None = None

    def started(self, words: Sequence[str], variables: Mapping[str, str]) -> SparkProcess:
        with ThreadPoolExecutor(1, "spark-fork") as forking:
            return forking.submit(self._fork, words, variables).result()

    def end(self, stop_s: float) -> None:
        with self._lock:  # a thread that comes later forks nothing
            self._ended, process = True, self._process
        if process:
            process.end(stop_s)

    def _fork(self, words: Sequence[str], variables: Mapping[str, str]) -> SparkProcess:
        with self._lock:
            if self._ended:
                raise CancelledError
            printed: deque[str] = deque(maxlen=20)
            reading, writing = os.pipe()
            relay = Thread(target=_relay, args=(reading, self._say, printed), name="spark-stderr", daemon=True)
            relay.start()
            try:
                process = subprocess.Popen(  # noqa: S603 - the Java of this machine
                    words, env=variables, stdin=subprocess.PIPE, stderr=writing, start_new_session=True
                )
            finally:
                os.close(writing)
            self._process = SparkProcess(process, self._address, printed, relay)
            return self._process


@contextmanager
def spark_process(
    java: Path,
    options: Mapping[str, str],
    jars: Sequence[Path],
    scratch: Path,
    say: Callable[[Line], None] = print,
    stop_s: float = STOP_S,
) -> Iterator[SparkProcess]:
    """Starts the JVM, with `jars` on its class path. After the block it has `stop_s` seconds to end by itself.

    It gets a process session of its own: a signal to our process group (Ctrl-C, `timeout`) must not end it in the
    middle of a batch. It ends when its standard input does, so it never outlives us.
    """
    address = scratch / "spark-address"
    address.unlink(missing_ok=True)
    variables = {**environment(java, options), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)}
    if options.get("spark.master", "").startswith("local-cluster"):
        variables["SPARK_HOME"] = str(_linked_home(scratch / "spark-home"))
    forked, words = _Forked(address, say), command(java, options, jars)
    try:
        yield forked.started(words, variables)
    finally:
        forked.end(stop_s)


def command(java: Path, options: Mapping[str, str], jars: Sequence[Path] = ()) -> list[str]:
    """What Spark's launcher would make of these options, with our jars behind those of Spark."""
    environ = os.environ
    class_path = [
        *options.get(CLASS_PATH, "").split(os.pathsep),
        str(HOME / "conf"),
        *map(str, (HOME / "jars").glob("slf4j-api-*.jar")),
        str(HOME / "jars" / "*"),
        *map(str, jars),
        *(environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")),
    ]
    return [
        *(str(java), "-cp", os.pathsep.join(filter(None, class_path))),
        *shlex.split(environ.get("SPARK_SUBMIT_OPTS", "")),
        f"-Xmx{options[MEMORY]}",
        *shlex.split(options.get(DEFAULT_JAVA_OPTIONS, "")),
        *shlex.split(options.get(JAVA_OPTIONS, "")),
        *MODULES,
        "-Dderby.connection.requireAuthentication=false",
        "org.apache.spark.deploy.SparkSubmit",
        *(word for key, value in options.items() for word in ("--conf", f"{key}={value}")),
        "pyspark-shell",
    ]


def environment(java: Path, options: Mapping[str, str]) -> dict[str, str]:
    """This Java, the Spark that pyspark comes with, and what Spark's script sets."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # it stays, because pyspark reads it later
    found = {name: value for name, value in os.environ.items() if name not in OTHERS}
    found |= {
        "JAVA_HOME": str(java.parent.parent),
        "SPARK_HOME": str(HOME),
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": "0",
    }
    if paths := import_paths():
        found["PYTHONPATH"] = paths
    if libraries := options.get(LIBRARY_PATH):
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (libraries, found.get("LD_LIBRARY_PATH"))))
    return found


def _linked_home(folder: Path) -> Path:
    """Executors of `local-cluster` keep jars and logs in SPARK_HOME: 120 MB each, for ever, among Python's packages."""
    folder.mkdir()
    for part in HOME.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder


def import_paths() -> str:
    """Where we import from, and so where the workers should: a transform may be a module beside a user's script.

    Without the standard library, which each Python knows by itself. Nothing for workers that run another Python: its
    packages are in other folders.
    """
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return ""
    own = sysconfig.get_path("stdlib")
    every = (os.path.abspath(each) for each in sys.path)  # noqa: PTH100 - "" is here
    return os.pathsep.join(path for path in every if not path.startswith(own))


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _relay(pipe: int, say: Callable[[Line], None], printed: deque[str]) -> None:
    with open(pipe, "rb") as lines:
        for raw in lines:
            text = raw.decode(errors="replace").rstrip()
            if text and not text.startswith(CHATTER):
                line = Line.parse(text)
                printed.append(str(line))
                say(line)
