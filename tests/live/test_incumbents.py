"""Ways in which other sinks for Iceberg lose or duplicate records, by public reports.

Each is reproduced twice: with their design, if it runs here or fits in a line, so that the test is seen to be able to
fail; and with ours, where every offset has to be in exactly one place.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import Superseded, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.pipeline import one_start
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from lakehouse_ingest.tables import Column, Connection, PipelineTables, Position, TableSpec
from lakehouse_ingest.tables.batch_log import BatchLog, LandedBatch
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.doors import connection_to
from tests.services.faulty import NOTHING, Faulty
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce

pytestmark = pytest.mark.live


def send(bench: Bench, topic: str, numbers: Iterable[int]) -> None:
    produce(bench.broker, topic, [(None, b'{"n": %d}' % number, None, None, 0) for number in numbers])


def numbers(bench: Bench, table: str) -> list[int]:
    return sorted(row["n"] for row in bench.rows(table))


class Native:
    """Spark's own way: where it stands is in its checkpoint, and in the last commits under the query's id."""

    def __init__(self, bench: Bench, topic: str, checkpoint: Path) -> None:
        self._bench, self._topic, self.checkpoint, self.table = bench, topic, checkpoint, f"ns_{topic}.native"
        bench.lake.create_namespace_if_not_exists(f"ns_{topic}")
        bench.spark.sql(f"CREATE TABLE {LAKE}.{self.table} (n BIGINT) USING iceberg")

    @property
    def _frame(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._bench.broker, "subscribe": self._topic}
        read = self._bench.spark.readStream.format("kafka").options(startingOffsets="earliest", **options).load()
        return read.selectExpr("get_json_object(CAST(value AS STRING), '$.n') + 0L AS n")

    def ingest(self) -> None:
        """All that is there, by Iceberg's sink."""
        query = self._frame.writeStream.format("iceberg").option("checkpointLocation", str(self.checkpoint))
        assert query.trigger(availableNow=True).toTable(f"{LAKE}.{self.table}").awaitTermination(120)

    def ingest_by_batch(self, then: Callable[[], None]) -> None:
        """Likewise, by `foreachBatch`, as it is written by hand."""

        def batch(rows: DataFrame, _number: int) -> None:
            rows.writeTo(f"{LAKE}.{self.table}").append()
            then()

        query = self._frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(120)


class TestPipeline:
    def test_does_not_go_back_to_an_older_mark_as_in_iceberg_17340(self, bench: Bench, topic: str) -> None:
        """A sink took its position from what it read last. After a restart it went back, and doubled 111,927 rows."""
        create_topic(bench.broker, topic, 1)
        name = f"ns_{topic}.{topic}"
        for first in (0, 10, 20):
            send(bench, topic, range(first, first + 10))
            bench.ingest(bench.settings(topic))
        said = [dict(each.summary.additional_properties) for each in bench.published(name)]
        seen = next(each for each in reversed(said) if f"{MARK}{topic}" in each)
        table = bench.table(name)
        nobody = pa.Table.from_pylist([], schema=table.schema().as_arrow())
        table.append(nobody, snapshot_properties=seen)  # somebody who had seen no more than the first carries it on
        newest = marks.from_summary(dict(bench.published(name)[0].summary.additional_properties), topic)
        assert newest
        assert newest.next == {(topic, 0): 10}, "where a reader of the newest mark alone would begin again"
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")  # or it would know better
        send(bench, topic, range(30, 40))
        bench.ingest(bench.settings(topic))
        assert numbers(bench, name) == [*range(40)]

    def test_does_not_skip_what_only_the_group_has_read_as_in_iceberg_18006(self, bench: Bench, topic: str) -> None:
        """The group's offsets moved on, but the files behind them were never committed. The successor skipped them."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic)
        send(bench, topic, range(10))
        bench.ingest(settings)
        send(bench, topic, range(10, 30))
        Kafka(settings.source, [topic]).publish({(topic, 0): 30}, topic)
        group = Consumer({"bootstrap.servers": bench.broker, "group.id": topic})
        try:
            (committed,) = group.committed([TopicPartition(topic, 0)], timeout=30)
        finally:
            group.close()
        assert committed.offset == 30, "where a reader of the group's offsets would go on"
        bench.ingest(settings)
        assert numbers(bench, f"ns_{topic}.{topic}") == [*range(30)]

    def test_is_not_held_up_by_empty_partitions_as_in_iceberg_17811(self, bench: Bench, topic: str) -> None:
        """A task without records never answered its coordinator. Each commit waited for it, and the position of all was
        never written. Here no task is asked: a batch's range covers all partitions."""
        create_topic(bench.broker, topic, 8)
        settings = bench.settings(topic)
        for first in (0, 10):
            send(bench, topic, range(first, first + 10))
            bench.ingest(settings)
        assert numbers(bench, f"ns_{topic}.{topic}") == [*range(20)]
        record = PipelineTables(connection_to(bench.uri), topic).find(f"ns_{topic}.lakehouse_batches")
        assert record
        newest = marks.newest((each.summary for each in record.ancestors()), topic)
        assert newest
        assert newest.complete == {(topic, 0): 20, **{(topic, number): 0 for number in range(1, 8)}}

    def test_does_not_write_a_repeated_batch_twice_as_in_iceberg_8809(
        self, bench: Bench, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A step after the write fails, so the batch is repeated. A plain append in `foreachBatch` doubles it."""
        create_topic(bench.broker, topic, 1)
        send(bench, topic, range(10))
        failed: list[str] = []

        def once(who: str) -> None:
            if who not in failed:
                failed.append(who)
                raise TryAgain("what comes after the write")

        native = Native(bench, topic, tmp_path)
        with pytest.raises(StreamingQueryException):
            native.ingest_by_batch(lambda: once("theirs"))
        native.ingest_by_batch(lambda: once("theirs"))
        assert numbers(bench, native.table) == sorted([*range(10), *range(10)])

        add = BatchLog.add

        def fails_once(record: BatchLog, landed: LandedBatch) -> None:
            once("ours")
            add(record, landed)

        monkeypatch.setattr(BatchLog, "add", fails_once)
        bench.ingest(bench.settings(topic))
        assert failed == ["theirs", "ours"]
        assert numbers(bench, f"ns_{topic}.{topic}") == [*range(10)]

    def test_does_not_let_a_late_commit_in_as_in_iceberg_14425(self, bench: Bench, topic: str) -> None:
        """It was under way when its writer was replaced. The successor looked, did not find it, and committed the same
        rows. Then it arrived, and where a writer only looks, both were there."""
        namespace, name, theirs = f"ns_{topic}", f"ns_{topic}.late", f"ns_{topic}.theirs"
        with Faulty(bench.uri) as proxy:
            slow = load_catalog("slow", type="rest", uri=proxy.uri)
            bench.lake.create_namespace(namespace)
            bench.lake.create_table(theirs, pa.schema({"n": pa.int64()}))

            def look_and_land(lake: Catalog) -> None:
                table = lake.load_table(theirs)
                if not any(each.summary and each.summary["job"] == "1" for each in table.snapshots()):
                    table.append(pa.table({"n": range(10)}), snapshot_properties={"job": "1"})

            late = proxy.fail(
                NOTHING, path="/tables/theirs$", body='"add-snapshot"', meanwhile=lambda: look_and_land(bench.lake)
            )
            look_and_land(slow)
            assert late.is_over
            assert numbers(bench, theirs) == sorted([*range(10), *range(10)])

            old, new = PipelineTables(Connection(proxy.uri), topic), PipelineTables(connection_to(bench.uri), topic)
            new.create(TableSpec(name, (Column("n", "long"),)))
            rows = [{"n": number} for number in range(10)]

            def land(lake: PipelineTables, place: Position) -> None:
                landed = {(topic, 0): 10}
                mark = Mark(Token(topic, 1, place.epoch, 0), SourceIdentity(), {(topic, 0): 0}, landed, landed)
                lake.publication.append(place, rows, mark, {})

            def successor() -> None:
                place, _ = new.claim(name, ())
                assert not place.held, "it has not arrived yet"
                land(new, place)

            place, _ = old.claim(name, ())
            late = proxy.fail(NOTHING, path="/tables/late$", body='"ref-name":"main"', meanwhile=successor)
            with pytest.raises(Superseded):
                land(old, place)
            assert late.is_over
        assert numbers(bench, name) == [*range(10)]

    def test_does_not_repeat_a_commit_without_an_answer_as_in_iceberg_16008(
        self, bench: Bench, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The commit was there, its answer was lost, and the job began again with a new id. It looked for its own
        commits only, and found none. With Spark's sink a new checkpoint does the same."""
        create_topic(bench.broker, topic, 1)
        send(bench, topic, range(10))
        native = Native(bench, topic, tmp_path / "one")
        native.ingest()
        native.checkpoint = tmp_path / "two"
        native.ingest()
        assert numbers(bench, native.table) == sorted([*range(10), *range(10)])

        land, lost = OnBranch.land, list[str]()

        def unanswered(way: OnBranch, place: Position, *rest: Any) -> Position:
            found = land(way, place, *rest)
            if place.table.endswith(topic) and not lost:
                lost.append(place.table)
                raise TryAgain("no answer")
            return found

        monkeypatch.setattr(OnBranch, "land", unanswered)
        bench.ingest(bench.settings(topic))
        assert lost
        assert numbers(bench, f"ns_{topic}.{topic}") == [*range(10)]

    def test_does_not_lose_records_to_an_older_checkpoint_as_in_iceberg_10892(
        self, bench: Bench, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job went on from an older state. The table said that batches with these numbers were done, so their new
        content was skipped silently. Spark's sink does the same."""
        monkeypatch.setattr(one_start, "rmtree", lambda *_, **__: None)  # of ours none stays that could be put back
        create_topic(bench.broker, topic, 1)
        native, older = Native(bench, topic, tmp_path / "now"), tmp_path / "older"
        scratch: list[Path] = []

        def ours() -> None:
            pipeline = bench.pipeline(bench.settings(topic))
            following = pipeline.scratch / f"checkpoint-{topic}-{len(scratch) + 1}"
            if scratch:
                shutil.copytree(scratch[0], following)
            pipeline.run()
            scratch.append(following)

        for first in (0, 10):
            send(bench, topic, range(first, first + 10))
            native.ingest()
            if not first:
                shutil.copytree(native.checkpoint, older)
            ours()
        shutil.rmtree(native.checkpoint)
        shutil.copytree(older, native.checkpoint)
        send(bench, topic, range(20, 30))
        native.ingest()
        assert numbers(bench, native.table) == [*range(20)], "ten are lost"
        ours()
        assert numbers(bench, f"ns_{topic}.{topic}") == [*range(30)]
