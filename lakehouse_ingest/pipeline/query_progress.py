"""What Spark says of a query's progress."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.environment.spark_internals import java_query
from lakehouse_ingest.observe.watch import Watch


@dataclass
class QueryProgress:
    """Spark's report on the last trigger of a query. A new report also shows that the query is alive."""

    query: StreamingQuery
    said: Mapping[str, Any] = field(default_factory=dict)
    _at: str = ""

    def has_moved(self) -> bool:
        """True if there was a trigger since the last look, even an idle one."""
        with suppress(Py4JError, OSError):  # the stream itself finds out that its query has ended
            # Read Spark's own object as one JSON text: pyspark asks the JVM for each field.
            last = java_query(self.query).lastProgress()
            if last is not None and (at := str(last.timestamp())) != self._at:
                self._at, self.said = at, json.loads(last.json())
                return True
        return False

    def look(self, watch: Watch, stream: str) -> None:
        for phase, milliseconds in self.said.get("durationMs", {}).items():
            watch.gauge("lakehouse.spark.phase.duration", milliseconds / 1000, stream=stream, phase=phase)
