"""Whether `run` would work, found out by doing what it does. Nothing that was done stays.

Each check gives one line. A check that depends on one that failed is left out.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.jars import ensure
from lakehouse_ingest.environment.java import find_java, version
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.environment.spark_session import session
from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, TryAgain
from lakehouse_ingest.printable import many
from lakehouse_ingest.settings import CatalogSettings, Settings, StreamSettings
from lakehouse_ingest.settings.secret_words import without_login
from lakehouse_ingest.stages import sources
from lakehouse_ingest.tables import PipelineTables
from lakehouse_ingest.tables.catalog_address import address_or_empty
from lakehouse_ingest.tables.clients import spark_properties
from lakehouse_ingest.tables.pipeline_tables import tables_of
from lakehouse_ingest.tables.stream_tables import foretold

OURS = "lakehouse-ingest"
T = TypeVar("T")


@dataclass(frozen=True)
class CheckLine:
    """One thing that has to be in order, and what was found."""

    name: str
    says: str = ""
    failure: LakehouseError | None = None


@dataclass(frozen=True)
class ReachedCatalog:
    catalog: CatalogSettings
    lake: PipelineTables


Step = Generator[CheckLine, None, T | None]


def check(settings: Settings, refuse_early: Callable[[], object], jars: Path | None = None) -> Iterator[CheckLine]:
    """Each line as soon as it is known, because some take seconds.

    `refuse_early` refuses settings that no pipeline can be made of. It is given, as no operation imports the pipeline.
    """
    yield from _step("settings", lambda: _settings(settings, refuse_early))
    java = yield from _step("java", _java)
    yield from _step("packages", _packages)
    spark_jars = (yield from _step("jars", lambda: _jars(jars))) if java else None
    for stream in settings.streams:
        yield from _step("topics", partial(_topics, settings, stream))
    try:
        with ExitStack() as stack:
            yield from _of_catalog(settings, jars, java, spark_jars, stack)
    except LakehouseError as failure:  # the probe could not be removed
        yield CheckLine("tidying", failure=failure)


def _of_catalog(
    settings: Settings, jars: Path | None, java: Path | None, spark_jars: list[Path] | None, stack: ExitStack
) -> Iterator[CheckLine]:
    found = yield from _step("catalog", lambda: _catalog(settings, jars, stack))
    if not found:
        return
    lake = found.lake
    # The probe is a table too, so it is left out if no table may be created.
    table = (yield from _step("table", lambda: _table(settings, lake, stack))) if lake.creates else None
    if table:
        yield from _step("pyiceberg", lambda: _pyiceberg(lake, table))
        yield from _step("publish", lambda: _publish(settings, lake, table))
    if table or not lake.creates:
        yield from _step("tables", lambda: _tables(settings, lake))
    if table and java and spark_jars:
        yield from _step("spark", lambda: _spark(settings, found.catalog, table, java, spark_jars))


def _step(name: str, do: Callable[[], tuple[str, T]]) -> Step[T]:
    """Gives the line of a step, and returns what the step has found beside its sentence; None if it failed."""
    try:
        says, found = do()
    except LakehouseError as failure:
        yield CheckLine(name, failure=failure)
        return None
    yield CheckLine(name, says)
    return found


def _settings(settings: Settings, refuse_early: Callable[[], object]) -> tuple[str, None]:
    refuse_early()
    return f"pipeline {settings.name}, {many(len(settings.streams), 'stream')}", None


def _java() -> tuple[str, Path]:
    found = find_java()
    return f"Java {version(found)} at {found}", found


def _packages() -> tuple[str, None]:
    owners = packages_distributions()
    for package in ("catalog", "telemetry"):
        if others := [owner for owner in owners.get(package, ()) if owner != OURS]:
            raise SettingsRefused(
                f"the package {package} also comes with {others[0]}, and one of them hides the other: install"
                f" {OURS} in a virtual environment of its own"
            )
    return "no other distribution has packages of our names", None


def _jars(folder: Path | None) -> tuple[str, list[Path]]:
    found = ensure("spark", folder=folder)
    return f"{len(found)} for Spark in {found[0].parent}", found


def _topics(settings: Settings, stream: StreamSettings) -> tuple[str, None]:
    return sources.of_stream(settings.source, stream).probe(settings.identity_of(stream)), None


def _catalog(settings: Settings, jars: Path | None, stack: ExitStack) -> tuple[str, ReachedCatalog]:
    if not settings.catalog.uri:
        _refuse_where_nothing_can_be_made(settings.catalog.path)
    catalog = stack.enter_context(address_or_empty(settings, jars))
    uri, namespace = catalog.uri or "", catalog.namespace
    lake = tables_of(settings.model_copy(update={"catalog": catalog}), uri)
    if not lake.creates:
        lake.ensure_namespace(namespace)
    there = "is there" if lake.has_namespace(namespace) else "will be created"
    return f"{without_login(uri)} answers; namespace {namespace} {there}", ReachedCatalog(catalog, lake)


def _refuse_where_nothing_can_be_made(folder: Path) -> None:
    """Looks only. A folder made as a try may become another program's warehouse before it is removed."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.exists(each))  # noqa: PTH110 - where none may look, too
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise SettingsRefused(f"`catalog.path` is {folder}, and {there} can't be written: choose another place")


def _table(settings: Settings, lake: PipelineTables, stack: ExitStack) -> tuple[str, str]:
    name, location = stack.enter_context(lake.probe(settings.catalog.namespace))
    if storage.known(location):
        storage.at(location, settings.catalog, settings.s3).try_to_write(location)
    return f"a probe, created at {location}", name


def _pyiceberg(lake: PipelineTables, name: str) -> tuple[str, None]:
    lake.write_and_read(name)
    return "has written to the probe and read it", None


def _publish(settings: Settings, lake: PipelineTables, name: str) -> tuple[str, None]:
    lake.open(name, 1)
    left = lake.enforcement.refuse(settings.catalog.namespace)
    how = "with a branch of ours" if settings.catalog.publish == "branch" else "without a branch"
    return f"earlier starts can be fenced {how}{left and f'; {left}'}", None


def _tables(settings: Settings, lake: PipelineTables) -> tuple[str, None]:
    """The tables whose names are known before any record is read."""
    entries = [name for stream in settings.streams for name in foretold(stream, stream.topics)]
    wanted = dict.fromkeys([*entries, settings.dead_letters.table, settings.ledger.batch_table])
    found = [lake.look(f"{settings.catalog.namespace}.{name}") for name in wanted]
    if refused := next((each for each in found if each.refusal), None):
        raise NeedsOperator(refused.refusal)
    lake.need(*(each.name for each in found))
    left = "the others will be created" if lake.creates else "and none was created as a try: `catalog.create` is off"
    noted = next((f"; {each.name}: {each.notes[0]}" for each in found if each.notes), "")
    return f"{sum(not each.missing for each in found)} of {len(found)} are there, {left}{noted}", None


def _spark(settings: Settings, catalog: CatalogSettings, name: str, java: Path, jars: list[Path]) -> tuple[str, None]:
    properties = spark_properties(catalog, settings.s3, catalog.uri or "")
    with (
        scratch_folder() as scratch,
        session(settings.name, settings.spark, jars, properties, java, scratch, lambda _: None) as spark,
    ):
        try:
            spark.range(2, 3).select(F.col("id").cast("int").alias("n")).writeTo(spark_name(name)).append()
            rows = spark.table(spark_name(name)).count()
        except (PySparkException, Py4JError) as failure:
            raise TryAgain(f"Spark can't write to the probe: {sentence(failure)[:150]}") from failure
    return f"{pyspark.__version__} has added to the probe and read it: {many(rows, 'row')}", None
