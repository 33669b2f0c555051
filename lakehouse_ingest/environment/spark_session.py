"""Settings in, a SparkSession out: the locked jars, the catalog named `lake`, nothing resolved at run time."""

import logging
import os
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
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.class_archive import java_options
from lakehouse_ingest.environment.proxies import java_properties, tell
from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import SparkSettings
from lakehouse_ingest.settings.secret_words import HIDDEN_KEYS
from lakehouse_ingest.settings.spark_options import CATALOG, RELIED_ON

STOP_S = 10.0
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
JARS = "spark.jars"
LAUNCH = ("spark.master", "spark.submit.", "spark.driver.", JARS)
# What a machine says of another Spark, or of how others start this one: nothing of it was refused or tried.
OTHERS = (
    *("SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "PYSPARK_SUBMIT_ARGS"),
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
)
# What the launcher says at every start, whatever the logging is set to.
CHATTER = (
    "Picked up JAVA_TOOL_OPTIONS",
    "WARNING: Using incubator modules",
    "Setting default log level",
    "To adjust logging level",
)
EVENT, PART = "\x1e", "\x1f"  # what begins a line of log4j's, and parts it
LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error"}


@contextmanager
def session(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    catalog: Mapping[str, str],
    java: Path,
    scratch: Path,
    say: Callable[["Line"], None] = print,
) -> Iterator[SparkSession]:
    """`catalog` holds the REST catalog's properties: uri, token, and what else the user gave.

    The JVM gets a session of its own: a signal to our process group (Ctrl-C, `timeout`) must not take it away
    in the middle of a batch. It ends when its standard input does, so it never outlives us.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - nothing public tells
        raise SettingsRefused("there is a Spark in this process already, and there can be one only; stop it first")
    for noisy in ("py4j", "DataFrameQueryContextLogger"):
        # They print the stack of every error on its way to us; the pipeline tells it once.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interruption)
    options = _options(name, settings, jars, catalog, scratch, java_options(java))
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    arguments = SparkConf(loadDefaults=False).setAll(list(_arguments(options).items()))
    said: deque[str] = deque(maxlen=20)
    network = java_properties(scratch)
    reading, writing = os.pipe()
    relay = Thread(target=_relay, args=(reading, say, said), name="spark-stderr", daemon=True)
    relay.start()
    try:
        with _environment(java):
            gateway = _launched(arguments, {"start_new_session": True, "stderr": writing})
    except PySparkRuntimeError:
        os.close(writing)
        relay.join()
        raise SettingsRefused(
            f"Spark's Java process ended at once; see the settings under `spark`: {' '.join(said)[:100]}"
        ) from None
    os.close(writing)
    process = gateway.proc
    try:
        tell(gateway.jvm, network)
        try:
            # Not by the main thread: there pyspark would take Ctrl-C for itself, and ask Java to cancel its jobs in the
            # middle of another question, whose answer is then taken for that one's.
            with ThreadPoolExecutor(1, "spark-start") as starter:
                context = starter.submit(SparkContext, conf=conf, gateway=gateway).result()
            spark = SparkSession(context)
        except (Py4JError, PySparkException) as failure:
            raise SettingsRefused(
                f"Spark can't start with the settings under `spark`: {sentence(failure)[:120]}"
            ) from failure
        try:
            yield spark
        finally:
            with suppress(Py4JError, OSError):
                spark.stop()
    finally:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except TimeoutExpired:
            process.kill()
            process.wait()
        relay.join()
        # pyspark keeps them for the next session of this process, which would talk to nobody.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001


@contextmanager
def _environment(java: Path) -> Iterator[None]:
    """What pyspark's launcher looks at: this Java, and the Spark that pyspark comes with."""
    before = {name: os.environ.pop(name, None) for name in ("JAVA_HOME", "SPARK_HOME", *OTHERS)}
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _launched(arguments: SparkConf, how: dict[str, Any]) -> Any:
    """Not by the main thread: where Ctrl-C breaks it off, pyspark removes the folder in which Java is about to write
    where it listens; Java fails at that, and stays, when we are long gone, and listens for nobody."""
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


def _is_no_interruption(said: logging.LogRecord) -> bool:
    """py4j tells the root logger, with its stack, of a Ctrl-C that reached us while Java was asked something."""
    return not str(said.msg).startswith("KeyboardInterrupt")


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """One like this, whose client of `lake` is new, and ends with the block.

    A client whose token could not be renewed within a few seconds never renews it again (iceberg#17756); and one that
    nobody closes renews it for ever, though nobody uses it any more.
    """
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001 - nothing public does it
    try:
        yield own
    finally:
        close_catalog(own)


def close_catalog(spark: SparkSession) -> None:
    """Of this session; whoever uses `lake` there once more gets a new client."""
    java: Any = spark._jvm  # noqa: SLF001 - as below, nothing public tells
    with suppress(Py4JError, OSError):  # of a Java that is gone as well
        manager = spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001
        try:
            if LAKE in manager.listCatalogs(java.scala.Option.empty()).mkString(PART).split(PART):
                manager.catalog(LAKE).icebergCatalog().close()
        finally:
            manager.reset()


@dataclass(frozen=True)
class Line:
    """What the JVM has said: by a logger of its own, in a level of ours, or just so."""

    text: str
    level: str = "warning"
    logger: str = ""

    def __str__(self) -> str:
        return f"{self.logger}: {self.text}" if self.logger else self.text

    @classmethod
    def parse(cls, said: str) -> "Line":
        """As log4j2.properties writes them."""
        if said.startswith(EVENT) and said.count(PART) >= 2:  # noqa: PLR2004 - level, logger, text
            level, logger, text = said.removeprefix(EVENT).split(PART, 2)
            return cls(text.strip(), LEVELS.get(level, "warning"), logger)
        return cls(said)


def _relay(pipe: int, say: Callable[[Line], None], said: deque[str]) -> None:
    with open(pipe, "rb") as lines:
        for raw in lines:
            text = raw.decode(errors="replace").rstrip()
            if text and not text.startswith(CHATTER):
                line = Line.parse(text)
                said.append(str(line))
                say(line)


def _arguments(options: Mapping[str, str]) -> dict[str, str]:
    """What starts the JVM is seen by anyone on this machine: no more than that takes, and never the catalog's token."""
    return {key: value for key, value in options.items() if key.startswith(LAUNCH)}


def _options(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    catalog: Mapping[str, str],
    scratch: Path,
    classes: str = "",
) -> dict[str, str]:
    # Its URI has no blank, whatever its path has.
    log4j = Path(str(files("lakehouse_ingest").joinpath("environment", "log4j2.properties")))
    # On a laptop the host's name may lead to an address that nothing listens on.
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
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "rest",
        **{f"{CATALOG}.{key}": value for key, value in catalog.items()},
        # foreachBatch runs in a clone of the session with a catalog of its own: a cache would show old tables.
        f"{CATALOG}.cache-enabled": "false",
        # Wherever Spark shows its settings or a source's options: its own patterns know neither credentials nor
        # headers, nor what a Kafka client calls its secrets.
        "spark.redaction.regex": HIDDEN_KEYS,
        "spark.sql.redaction.options.regex": HIDDEN_KEYS,
        **{key: value for key, (value, _) in RELIED_ON.items()},
        # Where each column of an expression stands in our code, looked up thousands of times a batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # What is kept in memory is sorted by table: of small pieces few hold rows of another one as well.
        "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
        "spark.scheduler.mode": "FAIR",  # between streams; see `stream`
        # With no trigger interval an idle query asks the broker for its ends this often.
        "spark.sql.streaming.pollingDelay": "100ms",
        # And says this often that it is there: what health takes for a sign of life.
        "spark.sql.streaming.noDataProgressEventInterval": "2000",
        # The offset log is read once, in the batch that it belongs to, with the entry before.
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.shuffle.partitions": "8",
        **settings.options,
        # Beside those of the settings, not instead of them.
        JARS: ",".join(filter(None, (*map(str, jars), settings.options.get(JARS)))),
        JAVA_OPTIONS: " ".join(
            filter(None, (f"-Dlog4j2.configurationFile={log4j.as_uri()}", classes, settings.options.get(JAVA_OPTIONS)))
        ),
    }
