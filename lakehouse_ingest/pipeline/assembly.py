"""Assemble a pipeline from settings, with everything that it needs to run."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

from pyspark.sql import SparkSession

from lakehouse_ingest.environment.jars import ensure, jars_folder_from
from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.environment.signals import stopping
from lakehouse_ingest.environment.spark_session import starting
from lakehouse_ingest.observe.events import CatalogServes
from lakehouse_ingest.observe.watch import Watch, watch
from lakehouse_ingest.pipeline.dry_run import Foresight, foresee
from lakehouse_ingest.pipeline.effects import workers_starting
from lakehouse_ingest.pipeline.memory import refuse_too_little
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.pipeline.waiting_tasks import watching_tasks
from lakehouse_ingest.schema import layout, table_plans
from lakehouse_ingest.settings import CatalogSettings, HealthSettings, Settings, TelemetrySettings
from lakehouse_ingest.settings.named_code import refuse_code
from lakehouse_ingest.settings.secret_words import without_login
from lakehouse_ingest.stages import formats, sources, transforms
from lakehouse_ingest.stages.transforms import Transform
from lakehouse_ingest.tables.catalog_address import address_or_empty
from lakehouse_ingest.tables.clients import (
    connection_of,
    embedded,
    embedded_token,
    refuse_what_is_no_rest_catalog,
    spark_properties,
)


@dataclass
class Running:
    """A pipeline that is ready to `run`, with what it needs."""

    pipeline: Pipeline
    spark: SparkSession
    watch: Watch
    catalog_uri: str
    stop: Event = field(default_factory=Event)


def about(settings: Settings) -> Mapping[str, Any]:
    """A description of the pipeline, for its health page."""
    catalog = without_login(settings.catalog.uri) if settings.catalog.uri else "the embedded catalog"
    return {
        "version": version("lakehouse-ingest"),
        "source": f"{settings.source.kind} at {settings.source.brokers}",
        "catalog": f"namespace {settings.catalog.namespace} of {catalog}",
        "streams": {
            stream.known_as: f"{stream.topic_pattern or ', '.join(stream.topics)}, every {stream.every:g} s"
            for stream in settings.streams
        },
    }


@contextmanager
def opened(settings: Settings, options: RunOptions, stop: Event | None = None) -> Iterator[Running]:
    """Start everything that a run needs, and end it in reverse order."""
    allow_code = options.allow_code or os.environ.get("LAKEHOUSE_INGEST_ALLOW_CODE") == "1"
    jars = options.jars or jars_folder_from(os.environ)
    chosen = [options.transform or named for named in refuse_early(settings, allow_code=allow_code)]
    with ExitStack() as stack:
        watching = watch(settings)
        stack.callback(watching.close)
        # Serve the page first, because Spark takes seconds to start. The page shows that the streams are starting.
        watching.board.expect(stream.known_as for stream in settings.streams)
        stack.enter_context(watching.serving(settings.health, about(settings)))
        java, spark_jars = find_java(), ensure("spark", folder=jars)
        scratch = stack.enter_context(scratch_folder())
        # Its Java starts while the embedded catalog does.
        started = stack.enter_context(
            starting(
                settings.name,
                settings.spark,
                spark_jars,
                java,
                scratch,
                lambda line: watching.relay(line.level, line.logger, line.text),
            )
        )
        uri = settings.catalog.uri or _embedded(settings, jars, stack, watching)
        watching.hide(embedded_token(settings.catalog, uri))
        spark = stack.enter_context(started.session(spark_properties(settings.catalog, settings.s3, uri)))
        if settings.spark.master.startswith("local"):
            heap = spark.sparkContext.getConf().get("spark.driver.memory", settings.spark.memory)
            refuse_too_little(watching, heap, spark.sparkContext.defaultParallelism)
        stack.enter_context(watching_tasks(spark, watching))
        stack.enter_context(workers_starting(spark))
        stop = stop or Event()
        pipeline = Pipeline(
            settings,
            spark,
            connection_of(settings.catalog, settings.s3, uri),
            watching,
            scratch,
            options,
            stop,
            chosen,
        )
        yield Running(pipeline, spark, watching, uri, stop)


def refuse_early(settings: Settings, *, allow_code: bool) -> list[Transform | None]:
    """Refuse what is wrong in the settings alone, before anything starts. Returns the transforms that they name."""
    refuse_what_is_no_rest_catalog(settings.catalog)
    refuse_code(settings, allow_code=allow_code)
    source = sources.chosen(settings.source)
    for stream in settings.streams:
        source(settings.source, stream.topics)
        formats.chosen(stream.format)
        for table in stream.tables:
            table_plans.plan_from_settings(table.table, table)
            layout.partitions_of(table)
    return [transforms.chosen(stream, allow_code=allow_code) for stream in settings.streams]


def _embedded(settings: Settings, jars: Path | None, stack: ExitStack, watching: Watch) -> str:
    catalog = embedded(settings.catalog, settings.s3, jars)
    uri = catalog.start()
    stack.callback(catalog.stop)
    watching.emit(CatalogServes(uri=uri, warehouse=catalog.place, pid=os.getpid()))
    return uri


def foreseen(settings: Settings, options: RunOptions) -> Foresight:
    """What a run would change in the catalog. Changes nothing."""
    with (
        address_or_empty(settings, options.jars) as catalog,
        opened(_unheard(settings, catalog), options) as running,
        _interruptible(running.stop),
    ):
        return foresee(running.pipeline, options.sample)


@contextmanager
def _interruptible(stop: Event) -> Iterator[None]:
    """Let Ctrl-C end a dry run in order. It then raises KeyboardInterrupt, because the result is incomplete."""
    if current_thread() is not main_thread():
        yield
        return
    with stopping(stop):
        yield
    if stop.is_set():
        raise KeyboardInterrupt


def _unheard(settings: Settings, catalog: CatalogSettings) -> Settings:
    """The same settings without telemetry and health page, and with only errors in the log.

    A dry run must not report what has not happened.
    """
    return settings.model_copy(
        update={
            "catalog": catalog,
            "telemetry": TelemetrySettings(),
            "health": HealthSettings(),
            "log": settings.log.model_copy(update={"level": "error"}),
        }
    )
