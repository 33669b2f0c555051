"""A pipeline in this process, on the session's Spark: what a test needs to run it and to read back the result."""

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

from lakehouse_ingest.observing import Watch
from lakehouse_ingest.pipeline import Pipeline
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Connection
from telemetry import OFF, Telemetry
from tests.services.pipelines import STARTING


class Bench:
    """One broker, one catalog, one Spark; each test takes a topic and a namespace of its own."""

    def __init__(self, spark: SparkSession, broker: str, uri: str, scratch: Path) -> None:
        self.spark, self.broker, self.uri, self._scratch = spark, broker, uri, scratch
        self.lake = load_catalog("tests", type="rest", uri=uri)
        self._starts = 0

    def settings(self, topic: str, **changes: Any) -> Settings:
        """Settings of one topic; `table` and `stream` are merged into the only ones."""
        table, stream = changes.pop("table", {}), changes.pop("stream", {})
        plain: Mapping[str, Any] = {
            "name": topic.lower(),
            "catalog": {"uri": self.uri, "namespace": f"ns_{topic}"},
            "source": {"brokers": self.broker},
            "streams": [{"topics": [topic], "every": 0, **stream, "tables": [table]}],
            "retry": {"first": 0.2, "limit": 20},
        }
        return Settings.model_validate({**plain, **changes})

    def pipeline(self, settings: Settings, *, telemetry: Telemetry = OFF, **changes: Any) -> Pipeline:
        self._starts += 1
        scratch = self._scratch / f"start-{self._starts}"
        scratch.mkdir()
        structlog.reset_defaults()
        return Pipeline(
            settings,
            self.spark,
            Connection(self.uri),
            Watch(settings.name, telemetry),
            scratch,
            **{"drain": True, **changes},
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
        """How often each (topic, partition, offset) stands in these tables together."""
        return Counter(
            (source["topic"], source["partition"], source["offset"])
            for name in names
            for source in (row["_source"] for row in self.rows(name))
        )

    def published(self, name: str) -> list[Any]:
        """Main's snapshots, newest first."""
        table = self.table(name)
        snapshot, found = table.current_snapshot(), []
        while snapshot is not None:
            found.append(snapshot)
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        return found


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
