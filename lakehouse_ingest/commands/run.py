"""`lakehouse-ingest run`: settings to a running pipeline, until a signal or, when draining, until all has landed."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from lakehouse_ingest import formats, planning, sources, transforms
from lakehouse_ingest.catalog_access import (
    connection_of,
    embedded,
    embedded_token,
    refuse_what_is_no_rest_catalog,
    spark_properties,
)
from lakehouse_ingest.commands.progress import progress
from lakehouse_ingest.jars import ensure, jars_folder_from
from lakehouse_ingest.java import find_java
from lakehouse_ingest.observing import Watch, watch
from lakehouse_ingest.pipeline import Pipeline
from lakehouse_ingest.scratch import scratch_folder
from lakehouse_ingest.session import session
from lakehouse_ingest.settings import Settings, foreign
from lakehouse_ingest.settings.named_code import refuse_code
from lakehouse_ingest.settings.secret_keys import without_login
from lakehouse_ingest.signals import on_hangup, stopping, terminable
from lakehouse_ingest.transforms import Transform


@dataclass
class Running:
    """A pipeline and what it stands on, ready to `run`."""

    pipeline: Pipeline
    spark: SparkSession
    watch: Watch
    catalog_uri: str
    stop: Event = field(default_factory=Event)


def about(settings: Settings) -> Mapping[str, Any]:
    """What the pipeline is, for whoever looks at its page."""
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
def opened(
    settings: Settings,
    *,
    jars: Path | None = None,
    drain: bool = False,
    max_batches: int | None = None,
    accept_changes: bool = False,
    transform: Transform | None = None,
    allow_code: bool = False,
    stop: Event | None = None,
) -> Iterator[Running]:
    """Everything that a run needs, started in order and ended in the reverse one."""
    allow_code = allow_code or os.environ.get("LAKEHOUSE_INGEST_ALLOW_CODE") == "1"
    jars = jars or jars_folder_from(os.environ)
    chosen = [transform or named for named in refuse_early(settings, allow_code=allow_code)]
    with ExitStack() as stack:
        watching = watch(settings)
        stack.callback(watching.close)
        # From the beginning: Spark takes its time, and whoever waits for us sees that we are starting.
        watching.board.expect(stream.known_as for stream in settings.streams)
        stack.enter_context(watching.serving(settings.health, about(settings)))
        java, spark_jars = find_java(), ensure("spark", folder=jars)
        uri = settings.catalog.uri or _embedded(settings, jars, stack, watching)
        watching.hide(embedded_token(settings.catalog, uri))
        scratch = stack.enter_context(scratch_folder())
        spark = stack.enter_context(
            session(
                settings.name,
                settings.spark,
                spark_jars,
                spark_properties(settings.catalog, settings.s3, uri),
                java,
                scratch,
                lambda line: watching.relay(line.level, line.logger, line.text),
            )
        )
        stop = stop or Event()
        pipeline = Pipeline(
            settings,
            spark,
            connection_of(settings.catalog, settings.s3, uri),
            watching,
            scratch,
            drain=drain,
            accept_changes=accept_changes,
            stop=stop,
            max_batches=max_batches,
            transforms=chosen,
        )
        yield Running(pipeline, spark, watching, uri, stop)


def run(
    settings: Settings,
    *,
    jars: Path | None = None,
    drain: bool = False,
    max_batches: int | None = None,
    accept_changes: bool = False,
    allow_code: bool = False,
    reread: Callable[[], Settings] | None = None,
) -> None:
    """`reread`: the same settings, from where they stand; at a SIGHUP the level of the log is taken from there."""
    watches: list[Watch] = []  # before there is one, a SIGHUP does nothing

    def again() -> None:
        for watching in watches:
            watching.again(settings, reread or (lambda: settings))

    with (
        on_hangup(again),
        terminable(),  # until there is a pipeline to stop: Spark alone takes ten seconds to start
        opened(
            settings,
            jars=jars,
            drain=drain,
            max_batches=max_batches,
            accept_changes=accept_changes,
            allow_code=allow_code,
        ) as running,
        progress(running.watch, settings.name),
        stopping(running.stop),
    ):
        watches.append(running.watch)
        for variable, setting in foreign().items():
            running.watch.events.warned("variable_not_read", variable=variable, ours=setting)
        running.pipeline.run()
        running.watch.log.info("stopped", batches=running.pipeline.landed)


def refuse_early(settings: Settings, *, allow_code: bool) -> list[Transform | None]:
    """What is wrong by itself, before anything is started; gives the functions that the settings name."""
    refuse_what_is_no_rest_catalog(settings.catalog)
    refuse_code(settings, allow_code=allow_code)
    source = sources.chosen(settings.source)
    for stream in settings.streams:
        source(settings.source, stream.topics)
        formats.chosen(stream.format)
        for table in stream.tables:
            planning.plan_from_settings(table.table, table)
            planning.partitions_of(table)
    return [transforms.chosen(stream, allow_code=allow_code) for stream in settings.streams]


def _embedded(settings: Settings, jars: Path | None, stack: ExitStack, watching: Watch) -> str:
    catalog = embedded(settings.catalog, settings.s3, jars)
    uri = catalog.start()
    stack.callback(catalog.stop)
    watching.log.info("catalog_serves", uri=uri, warehouse=catalog.place, pid=os.getpid())
    return uri
