"""Settings in, a SparkSession out: the locked jars, the catalog named `lake`, nothing resolved at run time."""

import logging
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Thread
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakehouse_ingest.environment import spark_internals
from lakehouse_ingest.environment.class_archive import java_options
from lakehouse_ingest.environment.proxies import java_properties, set_system_properties
from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import SparkSettings
from lakehouse_ingest.settings.secret_words import HIDDEN_KEYS
from lakehouse_ingest.settings.spark_options import CATALOG, RELIED_ON

STOP_S = 10.0
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
IMPORT_PATHS = "spark.executorEnv.PYTHONPATH"
JARS = "spark.jars"
LAUNCH = ("spark.master", "spark.submit.", "spark.driver.", JARS)
# Variables that name another Spark, or change how this one starts: our checks of the settings do not see them.
OTHERS = (
    *("SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "PYSPARK_SUBMIT_ARGS"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
)
# The launcher prints these at every start, whatever the logging is set to.
CHATTER = (
    "Picked up JAVA_TOOL_OPTIONS",
    "WARNING: Using incubator modules",
    "Setting default log level",
    "To adjust logging level",
)
EVENT, PART = "\x1e", "\x1f"  # the first begins a line of log4j, the second separates its fields
LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}

TUNED = {
    "spark.scheduler.mode": "FAIR",  # between streams; see `stream`
    "spark.sql.streaming.minBatchesToRetain": "2",  # of the checkpoint, which nobody reads again
    # The checkpoint is a local folder that one start writes. Spark's default runs `readlink` and `chmod` for each file:
    # a query of four batches that do nothing takes 0.60 seconds of the processor with it, and 0.26 with this one.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.shuffle.partitions": "8",  # of Iceberg's actions
    # What tasks are told may hold credentials. Beyond this size pyspark would write it to a file.
    "spark.broadcast.UDFCompressionThreshold": str(2**31 - 1),
    "spark.python.daemon.module": "lakehouse_ingest.pipeline.python_daemon",  # imports once for all workers
}


@contextmanager
def session(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    catalog: Mapping[str, str],
    java: Path,
    scratch: Path,
    say: Callable[["Line"], None] = print,
    stop_s: float = STOP_S,
) -> Iterator[SparkSession]:
    """`catalog` holds the REST catalog's properties: uri, token, and what else the user gave.

    After the block Java has `stop_s` seconds to end by itself.
    """
    if spark_internals.is_running():
        raise SettingsRefused("there is a Spark in this process already, and there can be one only; stop it first")
    _quiet_loggers()
    options = _options(name, settings, jars, catalog, scratch, java_options(java))
    network = java_properties(scratch)
    with _java_process(options, java, say, stop_s) as gateway:
        set_system_properties(gateway.jvm, network)
        spark = _session_of(gateway, options)
        try:
            yield spark
        finally:
            with suppress(Py4JError, OSError):
                spark.stop()


@contextmanager
def _java_process(
    options: Mapping[str, str], java: Path, say: Callable[["Line"], None], stop_s: float
) -> Iterator[JavaGateway]:
    """The JVM gets a process session of its own: a signal to our process group (Ctrl-C, `timeout`) must not end it in
    the middle of a batch. It ends when its standard input does, so it never outlives us."""
    printed: deque[str] = deque(maxlen=20)
    reading, writing = os.pipe()
    relay = Thread(target=_relay, args=(reading, say, printed), name="spark-stderr", daemon=True)
    relay.start()
    try:
        with _environment(java):
            gateway = _launched(_conf(_arguments(options)), {"start_new_session": True, "stderr": writing})
    except PySparkRuntimeError:
        os.close(writing)
        relay.join()
        raise SettingsRefused(
            f"Spark's Java process ended at once; see the settings under `spark`: {' '.join(printed)[:100]}"
        ) from None
    os.close(writing)
    process = gateway.proc
    try:
        yield gateway
    finally:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(stop_s)
        except TimeoutExpired:
            process.kill()
            process.wait()
        relay.join()
        spark_internals.forget_java()


def _session_of(gateway: JavaGateway, options: Mapping[str, str]) -> SparkSession:
    try:
        # Not by the main thread: there pyspark would take Ctrl-C for itself, and ask Java to cancel its jobs in the
        # middle of another question, whose answer is then taken for that one's.
        with ThreadPoolExecutor(1, "spark-start") as starter:
            context = starter.submit(SparkContext, conf=_conf(options), gateway=gateway).result()
        return SparkSession(context)
    except (Py4JError, PySparkException) as failure:
        raise SettingsRefused(
            f"Spark can't start with the settings under `spark`: {sentence(failure)[:120]}"
        ) from failure


def _conf(options: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(options.items()))


def _quiet_loggers() -> None:
    for noisy in ("py4j", "DataFrameQueryContextLogger"):
        # They print the stack of every error on its way to us; the pipeline reports it once.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interruption)


@contextmanager
def _environment(java: Path) -> Iterator[None]:
    """The environment that pyspark's launcher reads: this Java, and the Spark that pyspark comes with."""
    before = {name: os.environ.pop(name, None) for name in ("JAVA_HOME", "SPARK_HOME", *OTHERS)}
    before["PYTHONPATH"] = os.environ.get("PYTHONPATH")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # it stays, because pyspark reads it later
    if _runs_our_python():
        os.environ["PYTHONPATH"] = os.pathsep.join(_import_paths())
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _runs_our_python() -> bool:
    """Whether the workers run the same Python as we. The packages of another one are in other folders."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable


def _import_paths() -> list[str]:
    """Where we import from, and so where the workers should: a transform may be a module beside a user's script.

    Without the standard library, which each Python knows by itself.
    """
    own = sysconfig.get_path("stdlib")
    return [path for each in sys.path if not (path := os.path.abspath(each)).startswith(own)]  # noqa: PTH100 - "" is here


def _launched(arguments: SparkConf, how: dict[str, Any]) -> Any:
    """Not by the main thread. There Ctrl-C makes pyspark remove the folder into which Java is about to write its port:
    Java fails at that, and its process stays when we are long gone."""
    with ThreadPoolExecutor(1, "spark-launch") as launcher:
        launching = launcher.submit(launch_gateway, arguments, how)
        try:
            return launching.result()
        except KeyboardInterrupt:
            launching.add_done_callback(_end)
            raise


def _end(launching: Future[Any]) -> None:
    if launching.exception() is None:
        process = launching.result().proc
        process.kill()
        process.wait()


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """py4j logs, with its stack, a Ctrl-C that reached us while it waited for an answer of Java."""
    return not str(record.msg).startswith("KeyboardInterrupt")


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """A clone of this session, whose client of `lake` is new and is closed after the block.

    A client whose token could not be renewed within a few seconds never renews it again (iceberg#17756). And a client
    that nobody closes renews its token for ever, though nobody uses it any more.
    """
    own = SparkSession(spark.sparkContext, spark_internals.java_session(spark).cloneSession())
    try:
        yield own
    finally:
        close_catalog(own)


def close_catalog(spark: SparkSession) -> None:
    """Closes this session's client of `lake`. The next use of `lake` there makes a new one."""
    java = spark_internals.java_packages(spark)
    with suppress(Py4JError, OSError):  # Java may be gone as well
        manager = spark_internals.java_session(spark).sessionState().catalogManager()
        try:
            if LAKE in manager.listCatalogs(java.scala.Option.empty()).mkString(PART).split(PART):
                manager.catalog(LAKE).icebergCatalog().close()
        finally:
            manager.reset()


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


def _relay(pipe: int, say: Callable[[Line], None], printed: deque[str]) -> None:
    with open(pipe, "rb") as lines:
        for raw in lines:
            text = raw.decode(errors="replace").rstrip()
            if text and not text.startswith(CHATTER):
                line = Line.parse(text)
                printed.append(str(line))
                say(line)


def _arguments(options: Mapping[str, str]) -> dict[str, str]:
    """A command line is seen by anyone on this machine: the JVM's has what its start needs, and no token."""
    return {key: value for key, value in options.items() if key.startswith(LAUNCH)}


def _options(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    catalog: Mapping[str, str],
    scratch: Path,
    classes: str = "",
) -> dict[str, str]:
    # A URI has no blank, though the path may have one.
    log4j = Path(str(files("lakehouse_ingest").joinpath("environment", "log4j2.properties")))
    # On a laptop the host's name may resolve to an address on which nothing listens.
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {
        "spark.app.name": f"lakehouse-ingest {name}",
        "spark.master": settings.master,
        "spark.submit.deployMode": "client",
        "spark.driver.memory": settings.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "unused"),
        **(local if settings.master.startswith("local") else {}),
        # A cluster starts its executors in an environment of its own. Each task tells them where to import from.
        **({IMPORT_PATHS: os.pathsep.join(_import_paths())} if _runs_our_python() else {}),
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "rest",
        **{f"{CATALOG}.{key}": value for key, value in catalog.items()},
        # foreachBatch runs in a clone of the session with a catalog of its own: a cache would show old tables.
        f"{CATALOG}.cache-enabled": "false",
        # Hidden wherever Spark shows its settings or a source's options. Its own patterns know neither credentials
        # nor headers, nor the names that a Kafka client has for its secrets.
        "spark.redaction.regex": HIDDEN_KEYS,
        "spark.sql.redaction.options.regex": HIDDEN_KEYS,
        **{key: value for key, (value, _) in RELIED_ON.items()},
        **TUNED,
        **settings.options,
        # Added to those of the settings, not instead of them.
        JARS: ",".join(filter(None, (*map(str, jars), settings.options.get(JARS)))),
        JAVA_OPTIONS: " ".join(
            filter(None, (f"-Dlog4j2.configurationFile={log4j.as_uri()}", classes, settings.options.get(JAVA_OPTIONS)))
        ),
    }
