"""A start that cannot know where to go on stops, and says what was recreated, removed or given another meaning."""

import json
from typing import Any

import pytest

from lakehouse_ingest.errors import SettingsRefused, SourceChanged, TableChanged
from lakehouse_ingest.tables import Position
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, delete_topic, produce
from tests.services.numbered_events import events

pytestmark = pytest.mark.live


class TestStart:
    def test_is_stopped_by_a_recreated_topic_and_by_changed_settings(self, bench: Bench, topic: str) -> None:
        """A recreated topic, another layout or a setting that changes the meaning of records: the error names it."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(10), 1))
        settings = bench.settings(topic)
        bench.ingest(settings)
        with pytest.raises(SettingsRefused, match=r"`tables.{topic}.event_time` was null .* now \"n\""):
            bench.ingest(bench.settings(topic, table={"event_time": "n"}))
        with pytest.raises(TableChanged, match=r"partitioned by \[day\(event_time\)\].*\[place\]"):
            bench.ingest(bench.settings(topic, table={"partition_by": ["place"]}))
        delete_topic(bench.broker, topic)
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(20), 1))
        with pytest.raises(SourceChanged, match="deleted and recreated"):
            bench.ingest(settings)

    def test_is_stopped_by_a_dropped_or_recreated_table(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(10), 1))
        settings, name = bench.settings(topic), f"ns_{topic}.{topic}"
        bench.ingest(settings)
        made = bench.table(name)
        bench.lake.purge_table(name)
        with pytest.raises(TableChanged, match="dropped"):
            bench.ingest(settings)
        bench.lake.create_table(name, made.schema(), partition_spec=made.spec(), properties=made.properties)
        with pytest.raises(TableChanged, match="replaced"):
            bench.ingest(settings)

    def test_names_the_offsets_that_retention_took(self, bench: Bench, topic: str) -> None:
        """The stop names the missing range."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(10), 1))
        bench.ingest(bench.settings(topic))
        produce(bench.broker, topic, events(range(10, 30), 1))
        admin = AdminClient({"bootstrap.servers": bench.broker})
        for future in admin.delete_records([TopicPartition(topic, 0, 25)]).values():
            future.result()
        with pytest.raises(SourceChanged, match="partition 0 has lost the offsets 10 to 24"):
            bench.ingest(bench.settings(topic))

    def test_is_stopped_by_a_dropped_source_column(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A batch has landed in part, and nothing tells any more which of its rows are there."""
        create_topic(bench.broker, topic, 1)
        routed: dict[str, Any] = {"stream": {"type_from": "field:type"}, "table": {"table": "{type}"}}
        settings = bench.settings(topic, **routed)
        produce(bench.broker, topic, [(None, json.dumps({"n": n, "type": "ab"[n % 2]}).encode()) for n in range(8)])
        land = OnBranch.land

        def stopped(way: OnBranch, place: Position, *rest: Any) -> Position:
            if place.table.endswith(".b"):
                raise TableChanged("the process ends here")
            return land(way, place, *rest)

        monkeypatch.setattr(OnBranch, "land", stopped)
        with pytest.raises(TableChanged, match="ends here"):
            bench.ingest(settings)
        monkeypatch.undo()
        table = bench.table(f"ns_{topic}.a")
        assert table.scan().to_arrow().num_rows == 4
        with table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("_source")
        table.overwrite(table.scan().to_arrow())
        for _ in range(2):
            with pytest.raises(
                TableChanged, match=r"dropped the column _source of ns_\w+\.a while .*; roll the table back"
            ):
                bench.ingest(settings)
        assert bench.table(f"ns_{topic}.a").scan().to_arrow().num_rows == 4
