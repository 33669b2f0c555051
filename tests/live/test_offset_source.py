"""Spark runs a query whose batches have the offsets that our process plans."""

import json
import time
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.ledger import offset_log
from lakehouse_ingest.pipeline.offset_server import OffsetServer
from lakehouse_ingest.pipeline.offset_source import offset_frame
from lakehouse_ingest.records import Offsets, Range
from tests.services.pipelines import until

pytestmark = pytest.mark.live

START = {("sensors", 0): 5, ("sensors", 10): 2**40}
BATCHES = 8
PATIENCE = 60.0


class TestQuery:
    def test_runs_the_batches_that_our_process_plans(self, spark: SparkSession, tmp_path: Path) -> None:
        ended, found, begun = Event(), list[Range](), list[float]()

        def next_end(start: Offsets) -> Offsets:
            if start["sensors", 0] >= 5 + 3 * BATCHES:
                ended.wait(PATIENCE)
                return start
            return {at: offset + 3 for at, offset in start.items()}

        def batch(_: DataFrame, number: int) -> None:
            found.append(server.batch(number))
            begun.append(time.monotonic())
            logged = offset_log.entry(tmp_path / "offsets", number).splitlines()[-1]
            ends = {
                (topic, int(part)): end for topic, parts in json.loads(logged).items() for part, end in parts.items()
            }
            assert ends == found[-1].end, "Spark logged other offsets"
            server.finish(number)

        with OffsetServer(START, next_end) as server:
            frame = offset_frame(spark, server)
            query = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path)).start()
            assert until(lambda: len(found) == BATCHES or not query.isActive, PATIENCE)
            time.sleep(1.5)  # it asks again, and there is nothing new
            began = time.monotonic()
            query.stop()
            assert time.monotonic() - began < 10
            ended.set()
            assert query.exception() is None
        assert len(found) == BATCHES, json.dumps(query.recentProgress[-1:], default=str)
        assert found[0].start == START
        assert all(one.end == other.start for one, other in pairwise(found))
        assert all(len(each) == 6 for each in found)
        print("seconds from batch to batch:", [round(b - a, 2) for a, b in pairwise(begun)])

    def test_ends_with_what_keeps_our_process_from_planning(self, spark: SparkSession, tmp_path: Path) -> None:
        def next_end(_: Offsets) -> Offsets:
            raise TryAgain("no answer from `source.brokers`")

        with OffsetServer(START, next_end) as server:
            frame = offset_frame(spark, server)
            query = frame.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", str(tmp_path)).start()
            with pytest.raises(StreamingQueryException, match=r"no answer from `source.brokers`"):
                query.awaitTermination(int(PATIENCE))
            assert isinstance(server.failure, TryAgain)
