"""`lakehouse-ingest check`: whether `run` would work, found out by doing what it does; nothing of it stays.

A line for each thing that has to be in order. What is not says what to do; what depends on it is left out.
"""

import os
from collections.abc import Callable
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
from rich.text import Text

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.jars import ensure
from lakehouse_ingest.environment.java import find_java, version
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.environment.spark_errors import sentence
from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.environment.spark_session import session
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.errors import LONGEST, LakehouseError, NeedsOperator, SettingsRefused, TryAgain, fitted
from lakehouse_ingest.pipeline.assembly import refuse_early
from lakehouse_ingest.settings import CatalogSettings, Loaded, Settings, StreamSettings
from lakehouse_ingest.settings.secret_words import without_login
from lakehouse_ingest.stages import sources
from lakehouse_ingest.tables import Lake
from lakehouse_ingest.tables.catalog_address import address_or_empty
from lakehouse_ingest.tables.clients import connection_of, spark_properties
from lakehouse_ingest.tables.stream_tables import foretold

OURS = "lakehouse-ingest"
T = TypeVar("T")


class Lines:
    """What is printed, and the exit code: that of the first thing that is not in order."""

    def __init__(self, loaded: Loaded | None) -> None:
        self.code = 0
        self._loaded = loaded
        self._console = Terminal(soft_wrap=True)

    def line(self, name: str, do: Callable[[], tuple[str, T]]) -> T | None:
        """What `do` gives, beside the sentence that is printed; None when it could not be done."""
        try:
            said, found = do()
        except LakehouseError as failure:
            self.failed(name, failure)
            return None
        self._print("ok", "green", name, said)
        return found

    def failed(self, name: str, failure: LakehouseError) -> None:
        self.code = self.code or failure.exit_code
        self._print("no", "red", name, self._explained(str(failure)))

    def _explained(self, sentence: str) -> str:
        return fitted(self._loaded.explained(sentence) if self._loaded else sentence, LONGEST - 14)

    def _print(self, mark: str, style: str, name: str, said: str) -> None:
        self._console.print(Text.assemble((mark, style), "  ", (f"{name:<10}", "bold"), said))


@dataclass(frozen=True)
class Reached:
    catalog: CatalogSettings
    lake: Lake


def check(
    settings: Settings, loaded: Loaded | None = None, *, jars: Path | None = None, allow_code: bool = False
) -> int:
    """The exit code."""
    lines = Lines(loaded)
    lines.line("settings", lambda: _settings(settings, allow_code=allow_code))
    java = lines.line("java", _java)
    lines.line("packages", _packages)
    spark_jars = lines.line("jars", lambda: _jars(jars)) if java else None
    for stream in settings.streams:
        lines.line("topics", partial(_topics, settings, stream))
    try:
        with ExitStack() as stack:
            found = lines.line("catalog", lambda: _catalog(settings, jars, stack))
            # A probe is a table, too.
            makes = found is not None and found.lake.creates
            table = lines.line("table", lambda: _table(settings, found.lake, stack)) if found and makes else None
            if found and table:
                lines.line("pyiceberg", lambda: _pyiceberg(found.lake, table))
                lines.line("publish", lambda: _publish(settings, found.lake, table))
            if found and (table or not makes):
                lines.line("tables", lambda: _tables(settings, found.lake))
            if found and table and java and spark_jars:
                lines.line("spark", lambda: _spark(settings, found.catalog, table, java, spark_jars))
    except LakehouseError as failure:  # the probe could not be taken away
        lines.failed("tidying", failure)
    return lines.code


def _settings(settings: Settings, *, allow_code: bool) -> tuple[str, None]:
    refuse_early(settings, allow_code=allow_code)
    return f"pipeline {settings.name}, {len(settings.streams)} streams", None


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
    return "no other distribution has packages of the names of ours", None


def _jars(folder: Path | None) -> tuple[str, list[Path]]:
    found = ensure("spark", folder=folder)
    return f"{len(found)} for Spark in {found[0].parent}", found


def _topics(settings: Settings, stream: StreamSettings) -> tuple[str, None]:
    return sources.of_stream(settings.source, stream).probe(settings.identity_of(stream)), None


def _catalog(settings: Settings, jars: Path | None, stack: ExitStack) -> tuple[str, Reached]:
    told = settings.catalog
    if not told.uri:
        _refuse_where_nothing_can_be_made(told.path)
    told = stack.enter_context(address_or_empty(settings, jars))
    uri = told.uri or ""
    lake = Lake(connection_of(told, settings.s3, uri), settings.name, told.publish, create=told.create)
    namespace = told.namespace
    if not lake.creates:
        lake.ensure_namespace(namespace)
    there = "is there" if lake.has_namespace(namespace) else "will be made"
    return f"{without_login(uri)} answers; namespace {namespace} {there}", Reached(told, lake)


def _refuse_where_nothing_can_be_made(folder: Path) -> None:
    """By looking: what was made to try it might be somebody else's warehouse by the time that it is taken away."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.exists(each))  # noqa: PTH110 - where none may look, too
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise SettingsRefused(f"`catalog.path` is {folder}, and {there} can't be written: choose another place")


def _table(settings: Settings, lake: Lake, stack: ExitStack) -> tuple[str, str]:
    name, location = stack.enter_context(lake.probe(settings.catalog.namespace))
    if storage.known(location):
        storage.at(location, settings.catalog, settings.s3).try_to_write(location)
    return f"a probe, made at {location}", name


def _pyiceberg(lake: Lake, name: str) -> tuple[str, None]:
    lake.write_and_read(name)
    return "has written to the probe and read it", None


def _publish(settings: Settings, lake: Lake, name: str) -> tuple[str, None]:
    lake.open(name, 1)
    where = "on a branch of ours" if settings.catalog.publish == "branch" else "without a branch"
    return f"rows that are not to be seen yet can wait {where}", None


def _tables(settings: Settings, lake: Lake) -> tuple[str, None]:
    """Those whose names are known before any record is."""
    entries = [name for stream in settings.streams for name in foretold(stream, stream.topics)]
    wanted = dict.fromkeys([*entries, settings.dead_letters.table, settings.ledger.batch_table])
    found = [lake.look(f"{settings.catalog.namespace}.{name}") for name in wanted]
    if refused := next((each for each in found if each.refusal), None):
        raise NeedsOperator(refused.refusal)
    lake.need(*(each.name for each in found))
    left = "the others will be made" if lake.creates else "and none was made to try it: `catalog.create` is off"
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
    return f"{pyspark.__version__} has added to the probe and read it: {rows} rows", None
