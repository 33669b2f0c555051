"""Batches that became smaller grow again within the same start: nothing is read twice, and nothing is left out."""

import json
from collections.abc import Sequence
from itertools import accumulate, count
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline import one_start
from lakehouse_ingest.pipeline.effects import OnSpark
from lakehouse_ingest.pipeline.query_progress import QueryProgress
from lakehouse_ingest.pipeline.task import Receipt
from tests.services.flow import LANDING, Heard, is_proven
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

RECORDS, FAILING, SIZES = 40, 2, (2, 8, 30)


class TestReducedBatches:
    def test_grow_again_from_where_the_last_one_ended(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also if a batch was committed before the stream's own thread noticed that its query runs."""
        calls, write = count(), OnSpark.write

        def flaky(*args: Any) -> Sequence[Receipt]:
            if next(calls) < FAILING:
                raise TryAgain("the store is away")
            return write(*args)

        def noticed_late(query: StreamingQuery) -> QueryProgress:
            before = pipeline.landed
            until(lambda: pipeline.landed > before or len(heard.retries) < FAILING or pipeline.stop.is_set(), LANDING)
            return QueryProgress(query)

        monkeypatch.setattr(OnSpark, "write", flaky)
        monkeypatch.setattr(one_start, "QueryProgress", noticed_late)
        create_topic(bench.broker, topic)
        produce(bench.broker, topic, [(None, json.dumps({"n": number}).encode()) for number in range(RECORDS)])
        settings = bench.settings(topic, stream={"every": "1h"}, ledger={"batch_every": 0})
        pipeline = bench.pipeline(settings, drain=False)
        heard = Heard.of(pipeline)
        with running(pipeline):
            assert until(lambda: pipeline.landed >= len(SIZES), 2 * LANDING)
        assert len(heard.retries) == FAILING
        rows = [row for row in bench.rows(f"ns_{topic}.lakehouse_batches") if row["kind"] == "batch"]
        found = sorted((row["batch"], part["start"], part["end"]) for row in rows for part in row["partitions"])
        # 40 records and 10 did not land; 2 do, and then four times as many each time.
        ends = [*accumulate(SIZES)]
        assert found == [(number, end - size, end) for number, (size, end) in enumerate(zip(SIZES, ends, strict=True))]
        assert bench.places(f"ns_{topic}.{topic}") == {(topic, 0, offset): 1 for offset in range(RECORDS)}
        is_proven(settings)
