"""Settings in, a SparkSession out: the locked jars, the catalog named `lake`, nothing resolved at run time."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse_ingest.environment import spark_internals
from lakehouse_ingest.environment.class_archive import java_options
from lakehouse_ingest.environment.proxies import java_properties, set_system_properties
from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.environment.spark_process import (
    JAVA_OPTIONS,
    PART,
    STOP_S,
    Line,
    SparkProcess,
    import_paths,
    spark_process,
)
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import SparkSettings
from lakehouse_ingest.settings.secret_words import HIDDEN_KEYS
from lakehouse_ingest.settings.spark_options import CATALOG, RELIED_ON

IMPORT_PATHS = "spark.executorEnv.PYTHONPATH"
JARS = "spark.jars"
LAUNCH = ("spark.master", "spark.submit.", "spark.driver.", JARS)
# Java schedules tasks and expires snapshots, and sees no record. What its optimizing compiler and its concurrent
# collector take is more than that work: 4 seconds of the processor in each start, and 40 MB. A heap that begins with a
# part of the machine's memory is filled before it is collected: 90 MB on a machine of 24 GB. A collector, a
# compiler or a heap that `spark.driver.extraJavaOptions` names comes later on the command line, and counts.
TEMPORARY = "-Djava.io.tmpdir"
LEAN = "-XX:+NeverActAsServerClassMachine -XX:TieredStopAtLevel=1 -Xms48m"
TUNED = {
    "spark.scheduler.mode": "FAIR",  # between streams; see `stream`
    "spark.sql.streaming.minBatchesToRetain": "2",  # of the checkpoint, which nobody reads again
    # The checkpoint is a local folder that one start writes. Spark's default runs `readlink` and `chmod` for each file:
    # a query of four batches that do nothing takes 0.60 seconds of the processor with it, and 0.26 with this one.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.shuffle.partitions": "8",  # of Iceberg's actions
    # What is sent to tasks may hold credentials. Beyond this size pyspark would write it to a file.
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
    say: Callable[[Line], None] = print,
    stop_s: float = STOP_S,
) -> Iterator[SparkSession]:
    """`catalog` holds the REST catalog's properties: uri, token, and what else the user gave.

    After the block Java has `stop_s` seconds to end by itself.
    """
    with starting(name, settings, jars, java, scratch, say, stop_s) as begun, begun.session(catalog) as spark:
        yield spark


@dataclass(frozen=True)
class Starting:
    """A Spark whose JVM has been started, while we do other things."""

    _process: SparkProcess
    _options: Mapping[str, str]
    _network: Mapping[str, str]

    @contextmanager
    def session(self, catalog: Mapping[str, str]) -> Iterator[SparkSession]:
        """`catalog`: see the function `session`."""
        if spark_internals.is_running():
            raise SettingsRefused("there is a Spark in this process already, and there can be one only; stop it first")
        gateway = self._process.connected()
        set_system_properties(gateway.jvm, self._network)
        spark = _session_of(gateway, {**_catalog_options(catalog), **self._options})
        try:
            yield spark
        finally:
            with suppress(Py4JError, OSError):
                spark.stop()


@contextmanager
def starting(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    java: Path,
    scratch: Path,
    say: Callable[[Line], None] = print,
    stop_s: float = STOP_S,
) -> Iterator[Starting]:
    """Starts the JVM and does not wait for it. The catalog may not be there yet."""
    _quiet_loggers()
    _java_scratch(scratch).mkdir(parents=True, exist_ok=True)
    classes = java_options(java, jars[0].parent if jars else None)
    # Tasks in this JVM, or beside it, find the jars on its class path. Executors elsewhere have to fetch them.
    options = _options(name, settings, () if settings.master.partition("[")[0] == "local" else jars, scratch, classes)
    with spark_process(java, _arguments(options), jars, scratch, say, stop_s) as process:
        yield Starting(process, options, java_properties(scratch))


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


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """py4j logs, with its stack, a Ctrl-C that reached us while it waited for an answer of Java."""
    return not str(record.msg).startswith("KeyboardInterrupt")


@contextmanager
def session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """A clone of this session, whose client of `lake` is new and is closed after the block.

    A client whose token could not be renewed within a few seconds never renews it again (iceberg#17756). And a client
    that is never closed renews its token for ever, though it is no longer used.
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


def _arguments(options: Mapping[str, str]) -> dict[str, str]:
    """A command line is seen by anyone on this machine: the JVM's has what its start needs, and no token."""
    return {key: value for key, value in options.items() if key.startswith(LAUNCH)}


def _catalog_options(catalog: Mapping[str, str]) -> dict[str, str]:
    return {
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "rest",
        **{f"{CATALOG}.{key}": value for key, value in catalog.items()},
        # foreachBatch runs in a clone of the session with a catalog of its own: a cache would show old tables.
        f"{CATALOG}.cache-enabled": "false",
    }


def _java_scratch(scratch: Path) -> Path:
    """Where Java unpacks its libraries and Spark makes folders, which both leave behind if they are killed."""
    return scratch / "java"


def _options(
    name: str, settings: SparkSettings, jars: Sequence[Path], scratch: Path, classes: str = ""
) -> dict[str, str]:
    submitted = os.environ.get("SPARK_SUBMIT_OPTS", "")  # they come before what is set here, which would win
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
        **({IMPORT_PATHS: paths} if (paths := import_paths()) else {}),
        # Hidden wherever Spark shows its settings or a source's options. Its own patterns know neither credentials
        # nor headers, nor the names that a Kafka client has for its secrets.
        "spark.redaction.regex": HIDDEN_KEYS,
        "spark.sql.redaction.options.regex": HIDDEN_KEYS,
        **{key: value for key, (value, _) in RELIED_ON.items()},
        **TUNED,
        **settings.options,
        # Added to those of the settings, not instead of them.
        **(
            {JARS: ",".join(every)} if (every := [*map(str, jars), *filter(None, [settings.options.get(JARS)])]) else {}
        ),
        JAVA_OPTIONS: " ".join(
            filter(
                None,
                (
                    LEAN,
                    "" if TEMPORARY in submitted else f'"{TEMPORARY}={_java_scratch(scratch)}"',
                    f"-Dlog4j2.configurationFile={log4j.as_uri()}",
                    classes,
                    settings.options.get(JAVA_OPTIONS),
                ),
            )
        ),
    }
