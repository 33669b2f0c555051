"""Settings that no other test needs do what they say."""

import pytest
from confluent_kafka import Producer
from pyiceberg.table.sorting import SortDirection

from tests.live.test_ledger import events
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live


def test_a_sort_order_is_that_of_the_rows_in_each_file(bench: Bench, topic: str) -> None:
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, reversed([*events(range(200), 1)]))
    bench.ingest(bench.settings(topic, table={"sort_by": ["n desc"]}))
    table = bench.table(f"ns_{topic}.{topic}")
    assert table.sort_order().fields[0].direction is SortDirection.DESC
    for task in table.scan().plan_files():
        numbers = [row["n"] for row in bench.spark.read.parquet(task.file.file_path).select("n").collect()]
        assert numbers == sorted(numbers, reverse=True)


def test_the_batch_record_may_be_called_otherwise(bench: Bench, topic: str) -> None:
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, events(range(5), 1))
    bench.ingest(bench.settings(topic, ledger={"batch_table": "what_came"}))
    assert {"start", "batch", "landing"} == {row["kind"] for row in bench.rows(f"ns_{topic}.what_came")}
    assert not bench.lake.table_exists(f"ns_{topic}.lakehouse_batches")


@pytest.mark.parametrize(("isolation", "count"), [("read_committed", 3), ("read_uncommitted", 7)])
def test_what_was_aborted_is_left_out_unless_it_is_asked_for(
    bench: Bench, topic: str, isolation: str, count: int
) -> None:
    create_topic(bench.broker, topic, 1)
    producer = Producer({"bootstrap.servers": bench.broker, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(30)
    for numbers, end in ((range(4), producer.abort_transaction), (range(4, 7), producer.commit_transaction)):
        producer.begin_transaction()
        for _, value, *_ in events(numbers, 1):
            producer.produce(topic, value)
        producer.flush(30)
        end(30)
    bench.ingest(bench.settings(topic, source={"brokers": bench.broker, "isolation": isolation}))
    assert sum(bench.places(f"ns_{topic}.{topic}").values()) == count
