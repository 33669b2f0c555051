"""Taking over from another writer: every record is in the table exactly once, no matter who wrote it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from lakehouse_ingest.api import verify
from lakehouse_ingest.cli.repair import UNANSWERED
from lakehouse_ingest.cli.verbs import verify as command_verify
from lakehouse_ingest.cli.verbs.adopt import adopt
from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, SourceChanged, TableChanged
from lakehouse_ingest.operations.adopt.groups import COORDINATOR, DATA_WRITTEN
from lakehouse_ingest.operations.adopt.summaries import CONTROL, FLINK
from lakehouse_ingest.operations.adopt.takeover import OriginOption
from lakehouse_ingest.operations.verify.findings import PROVEN
from lakehouse_ingest.settings import Settings
from tests.services.ingesting import Bench
from tests.services.kafka import PATIENCE, create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

PARTITIONS = 2


class Former:
    """A topic and a table, which has one column and is another writer's."""

    def __init__(self, bench: Bench, topic: str, folder: Path, **changes: Any) -> None:
        self.bench, self.topic, self.folder = bench, topic, folder
        self.namespace = f"ns_{topic}"
        self.table = f"{self.namespace}.{topic}"
        self.settings: Settings = bench.settings(
            topic, table={"partition_by": []}, ledger={"batch_every": 0}, **changes
        )
        create_topic(bench.broker, topic, PARTITIONS)
        bench.lake.create_namespace(self.namespace)

    def produce(self, *numbers: int) -> None:
        records = ((None, json.dumps({"n": n}).encode(), None, None, n % PARTITIONS) for n in range(*numbers))
        produce(self.bench.broker, self.topic, records)

    def land(self, *numbers: int, **summary: str) -> None:
        """As that writer has landed them."""
        rows = pa.table({"n": pa.array(range(*numbers), pa.int64())})
        self.bench.lake.create_table_if_not_exists(self.table, rows.schema).append(rows, snapshot_properties=summary)

    def file(self, *offsets: int) -> OriginOption:
        """Of each partition the next offset."""
        said = {self.topic: {str(number): offset for number, offset in enumerate(offsets)}}
        file = self.folder / f"{uuid4()}.json"
        file.write_text(json.dumps(said))
        return OriginOption(file=file)

    def take_over(self, origin: OriginOption) -> None:
        assert adopt(self.settings, origin, yes=True) == 0

    def offers(self, origin: OriginOption, *offsets: int, capsys: pytest.CaptureFixture[str]) -> Any:
        """What would be done, which is not done."""
        capsys.readouterr()
        assert adopt(self.settings, origin, as_json=True) == UNANSWERED
        (said,) = json.loads(capsys.readouterr().out)
        assert [part["offset"] for part in said["partitions"]] == [*offsets]
        assert not said["done"]
        assert f"{self.namespace}.lakehouse_batches" not in self.tables()
        return said

    def refuses(self, origin: OriginOption, kind: type[LakehouseError], says: str) -> None:
        with pytest.raises(kind, match=says):
            adopt(self.settings, origin, yes=True)
        assert f"{self.namespace}.lakehouse_batches" not in self.tables()

    def tables(self) -> set[str]:
        return {".".join(name) for name in self.bench.lake.list_tables(self.namespace)}

    def holds(self, *numbers: int) -> None:
        assert Counter(row["n"] for row in self.bench.rows(self.table)) == Counter(range(*numbers))

    def proves(self, offsets: int, *, discarded: int = 0) -> None:
        (told,) = verify(self.settings)
        assert told.verdict
        assert (told.code, told.verdict.offsets, told.verdict.discarded) == (PROVEN, offsets, discarded), told.verdict


@pytest.fixture
def former(bench: Bench, topic: str, folder: Path) -> Former:
    return Former(bench, topic, folder)


# -- from a Spark query's checkpoint ------------------------------------------------------------------------


def by_spark(former: Former, checkpoint: Path) -> str:
    """A query as people write them, until it has read all that is there; its id."""
    rows = (
        former.bench.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", former.bench.broker)
        .option("subscribe", former.topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value AS string), 'n long').n AS n")
    )
    stream = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = stream.toTable(f"{LAKE}.{former.table}")
    assert query.awaitTermination(120)
    return str(query.id)


def forget(checkpoint: Path, kind: str, number: int) -> None:
    """As if the query had been killed before it noted that."""
    for name in (str(number), f".{number}.crc"):
        (checkpoint / kind / name).unlink(missing_ok=True)


def consumer(broker: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker, "group.id": group, "enable.auto.commit": False, "log_level": 0})


def commit(broker: str, group: str, *offsets: tuple[str, int, int]) -> None:
    committed = consumer(broker, group)
    committed.commit(offsets=[TopicPartition(*each) for each in offsets], asynchronous=False)
    committed.close()


def events(spark: SparkSession, *of: tuple[int, str]) -> Iterator[tuple[None, bytes]]:
    """Of a sink's control topic, encoded by the class that the sink itself uses."""
    uuid = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
    payload = {"type": "record", "name": "payload", "fields": []}
    types: Iterable[tuple[str, object]] = (
        ("id", uuid),
        ("type", "int"),
        ("timestamp", "long"),
        ("group_id", "string"),
        ("payload", payload),
    )
    schema = json.dumps({"type": "record", "name": "Event", "fields": [{"name": n, "type": t} for n, t in types]})
    java: Any = spark._jvm
    avro = java.org.apache.iceberg.shaded.org.apache.avro
    parsed = getattr(avro, "Schema$Parser")().parse(schema)
    for kind, group in of:
        record = getattr(avro.generic, "GenericData$Record")(parsed)
        for at, value in enumerate((java.java.util.UUID.randomUUID(), kind, java.System.currentTimeMillis(), group)):
            record.put(at, value)
        record.put(4, getattr(avro.generic, "GenericData$Record")(parsed.getField("payload").schema()))
        yield None, bytes(java.org.apache.iceberg.avro.AvroEncoderUtil.encode(record, parsed))


class TestAdopt:
    def test_takes_over_a_spark_query_whatever_its_last_batch_did(
        self, former: Former, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Also if its last batch was in progress, committed or not, and if only its newest snapshot is left."""
        checkpoint = former.folder / "checkpoint"
        former.bench.lake.create_table(former.table, pa.schema([("n", pa.int64())]))
        for numbers in ((6,), (6, 10)):
            former.produce(*numbers)
            query = by_spark(former, checkpoint)
        former.holds(10)
        former.produce(10, 21)
        origin = OriginOption(checkpoint=checkpoint)

        assert adopt(former.settings, OriginOption()) == UNANSWERED
        assert f"was fed by the Spark query {query} up to its batch 1" in capsys.readouterr().out
        said = former.offers(origin, 5, 5, capsys=capsys)
        assert said["tables"] == [{"table": former.table, "there": True, "adds": ["event_time", "_source"]}]

        forget(checkpoint, "commits", 1)
        former.offers(origin, 5, 5, capsys=capsys)  # the table shows batch 1
        begun = (checkpoint / "offsets" / "1").read_text()
        (checkpoint / "offsets" / "2").write_text(begun.replace('"0":5', '"0":8'))
        former.refuses(origin, NeedsOperator, "batches 2 begun and 0 ended, and none between")
        (checkpoint / "commits" / "1").write_text("v1\n{}")
        former.offers(origin, 5, 5, capsys=capsys)  # batch 2 has not landed
        forget(checkpoint, "offsets", 2)

        former.bench.spark.sql(
            f"CALL {LAKE}.system.expire_snapshots(table => '{former.table}', retain_last => 1, older_than => now())"
        )
        assert len(former.bench.table(former.table).snapshots()) == 1
        former.take_over(origin)
        former.proves(0)
        former.bench.ingest(former.settings)
        former.holds(21)
        former.proves(11)
        assert command_verify.verify(former.settings) == PROVEN
        assert f"the Spark query {query}, up to its batch 1" in " ".join(capsys.readouterr().out.split())
        former.produce(21, 25)
        former.bench.ingest(former.settings)
        former.holds(25)
        assert recover(former.settings) == 0

    def test_checks_offsets_from_a_file_against_the_topic(
        self, former: Former, capsys: pytest.CaptureFixture[str]
    ) -> None:
        former.produce(10)
        former.land(4)
        former.refuses(
            OriginOption(file=former.folder, group="g"), SettingsRefused, "--from-group and --from-file are several"
        )
        former.refuses(former.file(2, 6), SourceChanged, "goes on at 6 of topic .* partition 1, which ends at 5")
        former.refuses(former.file(2, 2, 2), SourceChanged, "names partition 2 of topic")
        other = former.folder / "other.json"
        other.write_text('{"another": {"0": 1}}')
        former.refuses(OriginOption(file=other), SettingsRefused, "says nothing about ")
        unfit = former.settings.model_copy(deep=True, update={"streams": former.bench.settings(former.topic).streams})
        with pytest.raises(TableChanged, match="is partitioned by"):
            adopt(unfit, former.file(2, 2), yes=True)
        said = former.offers(former.file(2), 2, 0, capsys=capsys)
        assert [part["named"] for part in said["partitions"]] == [True, False]

        former.take_over(former.file(2, 2))
        with pytest.raises(NeedsOperator, match=r"has begun already, .*`lakehouse-ingest recover`"):
            adopt(former.settings, former.file(0, 0), yes=True)
        former.bench.ingest(former.settings)
        former.holds(10)
        former.proves(6)
        with pytest.raises(NeedsOperator, match="has begun already"):
            adopt(former.settings, former.file(0, 0), yes=True)
        rows = former.bench.rows(f"{former.namespace}.lakehouse_batches")
        (chosen,) = [row for row in rows if row["kind"] == "adopt"]
        assert [(part["start"], part["end"]) for part in chosen["partitions"]] == [(2, 2), (2, 2)]

    def test_skips_what_retention_took_only_if_the_loss_is_accepted(self, former: Former) -> None:
        former.produce(10)
        former.land(4)
        admin = AdminClient({"bootstrap.servers": former.bench.broker})
        for future in admin.delete_records([TopicPartition(former.topic, 0, 4)]).values():
            future.result(PATIENCE)
        former.refuses(former.file(2, 2), SourceChanged, "has lost the offsets 2 to 3 .*; --accept-loss")
        assert adopt(former.settings, former.file(2, 2), yes=True, accept_loss=True) == 0
        former.bench.ingest(former.settings)
        assert Counter(row["n"] for row in former.bench.rows(former.table)) == Counter({*range(10)} - {4, 6})
        former.proves(6, discarded=2)

    def test_leaves_a_stream_alone_that_the_origin_does_not_name(
        self, bench: Bench, topic: str, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = f"{topic}_2"
        create_topic(bench.broker, other, 1)
        tables: list[dict[str, Any]] = [{"partition_by": []}]
        streams = [
            {"topics": [each], "name": name, "every": 0, "tables": tables}
            for name, each in (("s0", topic), ("s1", other))
        ]
        former = Former(bench, topic, folder, streams=streams, name="two")
        former.produce(6)
        former.land(4)
        former.take_over(former.file(2, 2))
        assert "two-s1: the origin says nothing about its topics. It is left alone" in capsys.readouterr().out
        both = folder / "both.json"
        both.write_text(json.dumps({topic: {"0": 1}, other: {"0": 0}}))
        assert (
            adopt(former.settings, OriginOption(file=both), yes=True) == 0
        )  # as if it had been interrupted before the second one
        assert "two-s0: the pipeline two-s0 has begun already" in capsys.readouterr().out
        produce(bench.broker, other, [(None, b'{"n": 1}')])
        bench.ingest(former.settings)
        former.holds(6)
        assert len(bench.rows(f"{former.namespace}.{other}")) == 1

    def test_takes_over_a_consumer_group_once_it_has_no_members(self, former: Former) -> None:
        former.produce(10)
        former.land(4)
        group = f"reader-{former.topic}"
        former.refuses(OriginOption(group=group), SettingsRefused, "`--from-group` says nothing about ")
        reader = consumer(former.bench.broker, group)
        reader.subscribe([former.topic])
        try:
            assert until(lambda: reader.poll(0.1) is None and bool(reader.assignment()), PATIENCE)
            former.refuses(OriginOption(group=group), NeedsOperator, f"the group {group} has 1 members: stop")
            reader.commit(offsets=[TopicPartition(former.topic, n, 2) for n in range(PARTITIONS)], asynchronous=False)
        finally:
            reader.close()
        former.take_over(OriginOption(group=group))
        former.bench.ingest(former.settings)
        former.holds(10)
        former.proves(6)

    def test_takes_over_a_kafka_connect_sink_once_it_has_nothing_uncommitted(
        self, former: Former, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The test creates what the sink leaves behind: offsets of its group, events of its control topic, a
        summary."""
        broker, group, control = former.bench.broker, f"connect-{former.topic}", f"control.{former.topic}"
        create_topic(broker, control, 1)
        start, complete, strange = (0, group), (4, group), (DATA_WRITTEN, "connect-other")
        spark = former.bench.spark
        former.produce(10)
        former.land(2, **{FLINK: "3"})
        assert adopt(former.settings, OriginOption()) == UNANSWERED
        assert "was fed by Flink" in capsys.readouterr().out
        former.refuses(OriginOption(table=former.table), NeedsOperator, "was fed by Flink, which keeps its offsets")
        former.land(2, 4, **{f"{CONTROL}{control}.{group}": '{"0":2}', "kafka.connect.commit-id": str(uuid4())})
        produce(broker, control, events(spark, start, (DATA_WRITTEN, group), complete, strange))
        commit(broker, group, *((former.topic, n, 2) for n in range(PARTITIONS)))
        origin = OriginOption(table=former.table)
        former.refuses(origin, NeedsOperator, "has handed over 1 times what is in no table")
        commit(broker, f"{group}{COORDINATOR}", (control, 0, 2))
        former.offers(origin, 2, 2, capsys=capsys)
        produce(broker, control, events(spark, start, (DATA_WRITTEN, group)))
        for each in (origin, OriginOption(group=group)):
            former.refuses(each, NeedsOperator, "has handed over 1 times")
        commit(broker, f"{group}{COORDINATOR}", (control, 0, 6))
        former.take_over(origin)
        former.bench.ingest(former.settings)
        former.holds(10)
        former.proves(6)
