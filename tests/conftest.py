"""Real services, one of each for the whole run: a test that needs its own topic or namespace names it."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, default_int_handler, getsignal, signal

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.class_archive import prepare
from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.jars import ensure, jars_folder_from
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.environment.spark_session import session
from lakehouse_ingest.settings import CatalogSettings, S3Settings, SparkSettings
from lakehouse_ingest.tables.clients import spark_properties
from tests.services import costs
from tests.services.doors import in_settings, known
from tests.services.engines import engines
from tests.services.ingesting import AS_IN_A_RUN, UNCOMPILED, Bench
from tests.services.pipelines import JAVA_OPTIONS, QUICKLY

# Hypothesis draws anew each time, and a failure prints what repeats it. No deadline: a busy machine is no bug.
settings.register_profile("drawn", print_blob=True, derandomize=False, deadline=None)
settings.load_profile("drawn")

# Containers often forbid Python to keep what it has compiled. Every process that a test starts would then compile its
# packages again, which takes as long as the rest of its start, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

IN_CONTAINERS = os.environ.get("LAKEHOUSE_TEST_SERVICES") == "containers"

# py4j's finalizers log the traceback of a stopped JVM; formatted while a collection interrupts `ast.parse`,
# it breaks CPython 3.11's parser ("AST constructor recursion depth mismatch").
logging.getLogger("py4j").setLevel(logging.WARNING)

# Under nohup a hangup is ignored, behind a shell's `&` also Ctrl-C. What is started inherits that, but no handler:
# with these it hears both again.
for number, handler in ((SIGHUP, lambda *_: None), (SIGINT, default_int_handler)):
    if getsignal(number) is SIG_IGN:
        signal(number, handler)


# Every JVM that is started here, a broker of two minutes as well as a Spark, is compiled quickly rather than well:
# the second compiler takes two fifths of what it costs to start a broker. Whoever starts one may say otherwise.
os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICKLY)


def pytest_configure(config: pytest.Config) -> None:
    costs.wanted(config)
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the variable
        # What a Java that is killed leaves behind goes with this run, or with the next one if this is killed as well.
        scratch = ExitStack()
        config.add_cleanup(scratch.close)
        java_scratch = f'"-Djava.io.tmpdir={scratch.enter_context(scratch_folder())}"'
        os.environ["JAVA_TOOL_OPTIONS"] = f"{java_scratch} {os.environ['JAVA_TOOL_OPTIONS']}"


def pytest_report_header() -> list[str]:
    found = engines(os.environ)
    absent = [str(engine) for engine in found if engine.required and not engine.found]
    if absent and os.environ.get("CI") == "true":
        pytest.exit(f"CI needs every engine: {'; '.join(absent)}", returncode=1)
    if IN_CONTAINERS and not next(engine.found for engine in found if engine.name == "docker"):
        pytest.exit("LAKEHOUSE_TEST_SERVICES=containers, but no Docker engine answers: unset it.", returncode=1)
    return [str(engine) for engine in found]


@pytest.fixture(scope="session")
def jars_folder() -> Path | None:
    """Where the jars are, if not in the cache. Whoever asks will start a Spark, and most of a start is its classes."""
    prepare(find_java())
    return jars_folder_from(os.environ)


@pytest.fixture(scope="session")
def spark_jars(jars_folder: Path | None) -> list[Path]:
    return ensure("spark", folder=jars_folder)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def rest_uri(warehouse: Path, jars_folder: Path | None) -> Iterator[str]:
    if IN_CONTAINERS:
        from tests.services import containers  # noqa: PLC0415 - its library asks for Docker when it is loaded

        with containers.catalog(warehouse) as uri:
            yield uri
        return
    catalog = EmbeddedCatalog(warehouse, port=0, jars=jars_folder)
    try:
        catalog.start()
        yield known(catalog)
    finally:
        catalog.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[str]:
    """The bootstrap servers of a broker."""
    if IN_CONTAINERS:
        from tests.services import containers  # noqa: PLC0415 - its library asks for Docker when it is loaded

        with containers.broker() as servers:
            yield servers
        return
    kafka = EmbeddedBroker(tmp_path_factory.mktemp("broker"), port=0, jars=jars_folder)
    try:
        yield kafka.start()
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def spark(spark_jars: list[Path], rest_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this process, on the catalog of the tests; as a run has it but for `UNCOMPILED`."""
    scratch = tmp_path_factory.mktemp("spark")
    with session(
        "tests",
        # Within a few minutes the second compiler and a parallel collector cost more than they gain.
        SparkSettings(
            master="local[2]",
            memory="2g",
            options={"spark.driver.defaultJavaOptions": JAVA_OPTIONS, **UNCOMPILED},
        ),
        spark_jars,
        spark_properties(CatalogSettings(**in_settings(rest_uri)), S3Settings(), rest_uri),
        find_java(),
        scratch,
    ) as started:
        yield started


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Spark as a run has it, where the question is what becomes of values."""
    before = {option: spark.conf.get(option) for option in UNCOMPILED}
    for option, value in AS_IN_A_RUN.items():
        spark.conf.set(option, value)
    yield
    for option, old in before.items():
        spark.conf.set(option, old or "")


@pytest.fixture(scope="session")
def bench(spark: SparkSession, broker: str, rest_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(spark, broker, rest_uri, tmp_path_factory.mktemp("pipelines"))
