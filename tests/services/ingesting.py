"""A pipeline in this process, on the session's Spark: what a test needs to run it and to read back the result."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.environment.spark_session import close_catalog
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.settings import Settings, load_settings
from lakehouse_ingest.tables.clients import connection_of, spark_properties
from telemetry import OFF, Telemetry
from tests.services.doors import client, in_settings
from tests.services.pipelines import STARTING

# For batches of a few records there is nothing to spread, and nothing that is worth being compiled: a start and a batch
# cost a fifth less of the processor. The fixture `compiled` sets a module's Spark back.
UNCOMPILED: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
AS_IN_A_RUN: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


class Bench:
    """One broker, one catalog, one Spark; each test takes a topic and a namespace of its own.

    `files`: Iceberg's properties of a store for the tables' files.
    """

    def __init__(
        self, spark: SparkSession, broker: str, uri: str, scratch: Path, files: Mapping[str, str] | None = None
    ) -> None:
        self.spark, self.broker, self.uri, self.scratch, self.files = spark, broker, uri, scratch, files
        self.lake = load_catalog("tests", **client(uri), **(files or {}))
        self._starts = 0

    def settings(self, topic: str, **changes: Any) -> Settings:
        """Settings of one topic; `table` and `stream` are merged into the only ones."""
        table, stream = changes.pop("table", {}), changes.pop("stream", {})
        plain: Mapping[str, Any] = {
            "name": topic.lower(),
            "catalog": {**in_settings(self.uri), "namespace": f"ns_{topic}"},
            "source": {"brokers": self.broker},
            "streams": [{"topics": [topic], "every": 0, **stream, "tables": [table]}],
            "retry": {"first": 0.2, "limit": 60},
        }
        return Settings.model_validate({**plain, **changes})

    def pipeline(
        self,
        settings: Settings,
        *,
        telemetry: Telemetry = OFF,
        drain: bool = True,
        max_batches: int | None = None,
        accept_changes: bool = False,
        **changes: Any,
    ) -> Pipeline:
        self._starts += 1
        scratch = self.scratch / f"start-{self._starts}"
        scratch.mkdir()
        structlog.reset_defaults()
        return Pipeline(
            settings,
            self.spark,
            connection_of(settings.catalog, settings.s3, settings.catalog.uri or self.uri),
            Watch(settings.name, telemetry),
            scratch,
            RunOptions(drain, max_batches, accept_changes=accept_changes),
            **changes,
        )

    def ingest(self, settings: Settings, **changes: Any) -> Pipeline:
        """Runs until all that is in the topic now has landed."""
        pipeline = self.pipeline(settings, **changes)
        pipeline.run()
        return pipeline

    def table(self, name: str) -> Table:
        return self.lake.load_table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
        return found

    def places(self, *names: str) -> Counter[tuple[str, int, int]]:
        """How often each (topic, partition, offset) stands in these tables together; rows of others have none."""
        read = (self.table(name).scan(selected_fields=("_source",)).to_arrow() for name in names)
        return Counter(
            (source["topic"], source["partition"], source["offset"])
            for rows in read
            for source in rows["_source"].to_pylist()
            if source
        )

    def published(self, name: str) -> list[Any]:
        """Main's snapshots, newest first."""
        table = self.table(name)
        snapshot, found = table.current_snapshot(), []
        while snapshot is not None:
            found.append(snapshot)
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        return found

    def compact_and_expire(self, name: str) -> None:
        """What other maintenance may do: our branch keeps our last snapshot, but main's way back to it is cut."""
        everything = "options => map('rewrite-all','true')"
        for _ in range(2):
            self.spark.sql(f"CALL {LAKE}.system.rewrite_data_files(table => '{name}', {everything})")
        self.spark.sql(f"CALL {LAKE}.system.expire_snapshots(table => '{name}', retain_last => 1, older_than => now())")
        assert not any(MARK in key for each in self.published(name) for key in each.summary.additional_properties)


@contextmanager
def spark_by(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """The session's catalog as these settings have it: whatever stands before the catalog of the tests."""
    properties = spark_properties(settings.catalog, settings.s3, settings.catalog.uri or "")
    # The session's own way in is not that of what stands before the catalog.
    wanted = {"header.Authorization": None, **properties}
    changes = {f"spark.sql.catalog.{LAKE}.{key}": value for key, value in wanted.items()}
    before = {key: spark.conf.get(key, None) for key in changes}
    _set(spark, changes)
    close_catalog(spark)
    try:
        yield
    finally:
        _set(spark, before)
        close_catalog(spark)


def _set(spark: SparkSession, changes: Mapping[str, str | None]) -> None:
    for key, value in changes.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def drained(bench: Bench, text: str, environment: Mapping[str, str] | None = None) -> None:
    """Lands all that is there, by the settings file of a process that was killed or stopped.

    In this process: a drain proves nothing about processes, and a start of one takes nine seconds of the processor.
    """
    settings = load_settings(given=tomllib.loads(text), environment=environment or {})
    with spark_by(bench.spark, settings):
        bench.ingest(settings)


@contextmanager
def running(pipeline: Pipeline) -> Iterator[None]:
    """In a thread, until the end of the block."""
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(pipeline.run)
        try:
            yield
        finally:
            pipeline.stop.set()
            run.result(STARTING)
