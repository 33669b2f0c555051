"""`lakehouse-ingest run`: settings to a running pipeline, until a signal or, when draining, until all has landed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from lakehouse_ingest.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.jars import ensure
from lakehouse_ingest.java import find_java
from lakehouse_ingest.observing import Watch, watch
from lakehouse_ingest.pipeline import Pipeline
from lakehouse_ingest.session import session
from lakehouse_ingest.settings import CatalogSettings, Settings
from lakehouse_ingest.signals import stopping
from lakehouse_ingest.tables import Connection


@dataclass
class Running:
    """A pipeline and what it stands on, ready to `run`."""

    pipeline: Pipeline
    spark: SparkSession
    watch: Watch
    catalog_uri: str
    stop: Event = field(default_factory=Event)


@contextmanager
def opened(
    settings: Settings, *, jars: Path | None = None, drain: bool = False, accept_changes: bool = False
) -> Iterator[Running]:
    """Everything that a run needs, started in order and ended in the reverse one."""
    with ExitStack() as stack:
        watching = watch(settings)
        stack.callback(watching.close)
        java, spark_jars = find_java(), ensure("spark", folder=jars)
        uri = settings.catalog.uri or _embedded(settings.catalog, jars, stack, watching)
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="lakehouse-ingest-", ignore_cleanup_errors=True))
        )
        connection = connection_of(settings.catalog, uri)
        spark = stack.enter_context(
            session(
                settings.name,
                settings.spark,
                spark_jars,
                spark_properties(connection),
                java,
                scratch,
                lambda line: watching.log.warning("spark", line=line),
            )
        )
        stop = Event()
        pipeline = Pipeline(
            settings,
            spark,
            connection,
            watching,
            scratch,
            drain=drain,
            accept_changes=accept_changes,
            stop=stop,
        )
        yield Running(pipeline, spark, watching, uri, stop)


def run(settings: Settings, *, jars: Path | None = None, drain: bool = False, accept_changes: bool = False) -> None:
    with (
        opened(settings, jars=jars, drain=drain, accept_changes=accept_changes) as running,
        stopping(running.stop),
    ):
        # Handlers are set after the session: pyspark replaces that of SIGINT.
        running.pipeline.run()
        running.watch.log.info("stopped", batches=running.pipeline.landed)


def connection_of(settings: CatalogSettings, uri: str) -> Connection:
    token = settings.token.get_secret_value() if settings.token else None
    return Connection(uri, settings.warehouse, token, settings.properties)


def spark_properties(connection: Connection) -> dict[str, str]:
    found = {"uri": connection.uri, "warehouse": connection.warehouse, "token": connection.token}
    return {**{key: value for key, value in found.items() if value}, **connection.properties}


def _embedded(settings: CatalogSettings, jars: Path | None, stack: ExitStack, watching: Watch) -> str:
    catalog = EmbeddedCatalog(settings.path, jars=jars)
    uri = catalog.start()
    stack.callback(catalog.stop)
    watching.log.info("catalog_serves", uri=uri, warehouse=str(catalog.warehouse), pid=os.getpid())
    return uri
