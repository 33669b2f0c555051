"""Settings that no other test needs do what they say."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from pyiceberg.table.sorting import SortDirection

from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("compiled")]


OTHERWISE = {
    "how rows are written": {
        "spark.sql.iceberg.use-table-distribution-and-ordering": "false",
        "spark.sql.iceberg.distribution-mode": "range",
        "spark.sql.iceberg.merge-schema": "true",
        "spark.sql.iceberg.check-nullability": "false",
        "spark.sql.iceberg.check-ordering": "false",
    },
    "how work is done": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.minBatchesToRetain": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    },
    "how values are read": {
        "spark.sql.jsonGenerator.ignoreNullFields": "false",
        "spark.sql.json.enablePartialResults": "false",
        "spark.sql.json.enableExactStringParsing": "false",
        "spark.sql.columnNameOfCorruptRecord": "n",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.parser.escapedStringLiterals": "true",
    },
}
DAY_MS = 86_400_000


@contextmanager
def set_to(bench: Bench, options: Mapping[str, str]) -> Iterator[None]:
    before = {option: bench.spark.conf.get(option, None) for option in options}
    for option, value in options.items():
        bench.spark.conf.set(option, value)
    try:
        yield
    finally:
        for option, old in before.items():
            bench.spark.conf.unset(option) if old is None else bench.spark.conf.set(option, old)


class TestSetting:
    def test_sort_by_sorts_the_rows_of_each_file(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, reversed([*events(range(200), 1)]))
        bench.ingest(bench.settings(topic, table={"sort_by": ["n desc"]}))
        table = bench.table(f"ns_{topic}.{topic}")
        assert table.sort_order().fields[0].direction is SortDirection.DESC
        for task in table.scan().plan_files():
            numbers = [row["n"] for row in bench.spark.read.parquet(task.file.file_path).select("n").collect()]
            assert numbers == sorted(numbers, reverse=True)

    def test_batch_table_names_the_batch_log(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(5), 1))
        bench.ingest(bench.settings(topic, ledger={"batch_table": "what_came"}))
        assert {"start", "batch", "landing"} == {row["kind"] for row in bench.rows(f"ns_{topic}.what_came")}
        assert not bench.lake.table_exists(f"ns_{topic}.lakehouse_batches")

    @pytest.mark.parametrize(("isolation", "count"), [("read_committed", 3), ("read_uncommitted", 7)])
    def test_isolation_decides_whether_aborted_records_are_read(
        self, bench: Bench, topic: str, isolation: str, count: int
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

    @pytest.mark.parametrize("what", OTHERWISE)
    def test_of_spark_changes_no_row(self, bench: Bench, topic: str, what: str) -> None:
        """Days in any order, names that differ by case, lists within objects, values that do not fit; several
        batches."""
        create_topic(bench.broker, topic, 1)
        bodies = [
            {"type": kind, "ts_ms": n % 3 * DAY_MS, "n": n, "a": n, "A": -n, "place": {"x": [n, None]}, "none": None}
            for n in range(20)
            for kind in ("told", "found")
        ]
        bodies += [{"type": "told", "ts_ms": 0, "n": n} for n in ("much", 70_000, None)]
        produce(bench.broker, topic, [(None, json.dumps(body).encode()) for body in bodies])
        types = {"n": "int16", "ts_ms": "long", "place": "struct<x: list<long>>"}
        columns = [{"name": name, "type": kind, "required": name == "n"} for name, kind in types.items()]
        told = {"table": "told", "types": ["told"], "columns": columns, "event_time": "ts_ms", "event_time_unit": "ms"}
        found = {"table": "found", "event_time": "ts_ms", "event_time_unit": "ms"}
        stream = {"topics": [topic], "every": 0, "max_records": 15, "type_from": "field:type", "tables": [told, found]}
        with set_to(bench, OTHERWISE[what]):
            bench.ingest(bench.settings(topic, streams=[stream]))
        for name in ("told", "found"):
            rows = sorted(bench.rows(f"ns_{topic}.{name}"), key=lambda row: row["n"])
            assert [(row["n"], row["place"]) for row in rows] == [(n, {"x": [n, None]}) for n in range(20)]
            assert {row["event_time"].timestamp() * 1000 for row in rows} == {0, DAY_MS, 2 * DAY_MS}
            both = [value for key, value in rows[1].items() if key.casefold().partition("_")[0] == "a"]
            assert sorted(both) == ([-1, 1] if name == "found" else [])
        letters = Counter(row["reason"] for row in bench.rows(f"ns_{topic}.dead_letters"))
        assert letters == {"wrong_type": 1, "out_of_range": 1, "missing_field": 1}
        assert set(bench.places(f"ns_{topic}.told", f"ns_{topic}.found").values()) == {1}
