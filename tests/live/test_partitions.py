"""Several pipelines feed one table, each from its own partitions of one topic: every record once, each proven."""

import pytest

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events, offsets
from tests.services.pipelines import until

pytestmark = pytest.mark.live

PATIENCE_S = 60.0


class TestTwoPipelines:
    def test_share_a_topic_and_a_table(self, bench: Bench, topic: str) -> None:
        """At once, and each started again; then a partition goes from one to the other."""
        create_topic(bench.broker, topic, 4)
        table = f"ns_{topic}.{topic}"

        def share(name: str, *numbers: int) -> Settings:
            source = {"brokers": bench.broker, "partitions": {topic: list(numbers)} if numbers else {}}
            return bench.settings(topic, name=name, source=source, stream={"every": 0.2})

        def proven(*shares: Settings) -> None:
            for each in shares:
                (found,) = prove(each)
                assert found.code == PROVEN, found

        def more(first: int, last: int) -> None:
            produce(bench.broker, topic, events(range(first, last), 4))

        one, two = share("one", 0, 1), share("two", 2, 3)
        assert "(partitions 0, 1 of 4)" in Kafka(one.source, [topic]).probe("one")
        more(0, 40)
        bench.ingest(one)
        with running(bench.pipeline(two, drain=False)):
            more(40, 80)
            bench.ingest(one)
            assert until(lambda: len(bench.rows(table)) == 80, PATIENCE_S, 0.1)
        bench.ingest(two)
        more(80, 100)
        bench.ingest(two)
        bench.ingest(one)
        assert bench.places(table) == offsets(topic, 25, 25, 25, 25)
        proven(one, two)
        (found,) = prove(two)
        assert found.verdict
        assert (found.verdict.partitions, found.verdict.offsets) == (2, 50)

        for changed in (share("one"), share("one", 0), share("one", 0, 1, 2)):
            with pytest.raises(SettingsRefused, match=r"`source.partitions` was .*0, 1.* and is now"):
                bench.ingest(changed)
        with pytest.raises(SettingsRefused, match=r"names partition 4 of topic .*, whose partitions are 0 to 3"):
            bench.ingest(share("three", 4))
        with pytest.raises(SettingsRefused, match="the pipeline two reads partition 2 of"):
            bench.ingest(share("one", 0, 1, 2), accept_changes=True)

        one, two = share("one", 0, 1, 2), share("two", 3)
        more(100, 120)
        bench.ingest(two, accept_changes=True)
        bench.ingest(one, accept_changes=True)
        more(120, 140)
        bench.ingest(one)
        bench.ingest(two)
        assert bench.places(table) == offsets(topic, 35, 35, 35, 35)
        proven(one, two)
