"""A wrong clock is waited for: it corrects itself, or someone other than the pipeline's operator corrects it."""

import json
import re
import time

import pytest

from tests.live.test_many_tables import numbers
from tests.services.flow import LANDING, Heard
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live


class TestClockAhead:
    def test_of_the_catalogs_is_named_and_waited_for(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, [(None, json.dumps({"n": n}).encode()) for n in range(3)])
        settings = bench.settings(topic, retry={"first": 1})
        bench.ingest(settings)
        produce(bench.broker, topic, [(None, json.dumps({"n": n}).encode()) for n in range(3, 6)])
        pipeline, right = bench.pipeline(settings, drain=False), time.time
        heard = Heard.of(pipeline)
        monkeypatch.setattr(time, "time", lambda: right() + 70)
        with running(pipeline):
            assert until(lambda: bool(heard.retries), LANDING)
            monkeypatch.setattr(time, "time", right)
            assert until(lambda: numbers(bench, f"ns_{topic}.{topic}") == [*range(6)], LANDING, 0.2)
        said = r"this machine's clock is 7[01] s ahead of the catalog's, and Iceberg allows 60 s; set the clocks right"
        assert all(re.search(said, each) for each in heard.retries)
