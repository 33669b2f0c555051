"""`lakehouse-ingest verify` takes nothing that is right for a loss, and changes nothing by looking."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.operations.verify.findings import PROVEN, UNTOLD, WRONG, FindingKind
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.records import Choice
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.live.test_many_tables import settings as of_types
from tests.live.test_many_tables import typed
from tests.live.test_status import command, words
from tests.services.command import Command
from tests.services.ingesting import Bench, running
from tests.services.kafka import PATIENCE, cleaning_at_once, create_topic, delete_topic, produce
from tests.services.pipelines import until
from tests.services.verdicts import (
    Landed,
    check_sum,
    numbered,
    only,
    span,
    verdict_on,
)

pytestmark = pytest.mark.live

__all__ = ["command"]  # a fixture

COMPACTION_S = 30.0


@contextmanager
def without_record(bench: Bench, landed: Landed) -> Iterator[None]:
    bench.lake.create_namespace_if_not_exists("verify_aside")
    record, aside = landed.name("lakehouse_batches"), "verify_aside.lakehouse_batches"
    bench.lake.rename_table(record, aside)
    try:
        yield
    finally:
        bench.lake.rename_table(aside, record)


class TestVerify:
    def test_counts_tables_dead_letters_and_filtered_records_together(
        self, bench: Bench, parted: Landed, command: Command
    ) -> None:
        """And `verify` changes nothing."""
        names = [".".join(name) for name in bench.lake.list_tables(f"ns_{parted.topic}")]
        before = {name: bench.table(name).metadata_location for name in names}
        verdict = verdict_on(parted.settings)
        assert (verdict.code, verdict.findings) == (PROVEN, [])
        assert (verdict.offsets, verdict.partitions, verdict.dead, verdict.filtered) == (27, 2, 7, 4)
        tables = {parted.name("order"): 8, parted.name("payment"): 4, parted.name("refund"): 4}
        assert verdict.tables == tables
        said = command("verify", *words(bench, parted.topic), "--json")
        assert said.code == 0, said.err
        (stream,) = json.loads(said.out)
        assert (stream["offsets"], stream["tables"], stream["filtered"], stream["findings"]) == (27, tables, 4, [])
        said = command("verify", *words(bench, parted.topic))
        whole = (
            "27 offsets of 2 partitions: 16 in 3 tables, 7 among the dead letters, 4 filtered; every one in exactly one"
        )
        assert whole in " ".join(said.out.split())
        assert {name: bench.table(name).metadata_location for name in names} == before

    def test_counts_markers_and_aborted_records_as_offset_gaps(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With and without the batch log. If the broker is away, they stay unknown."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic, stream={"max_records": 9})
        producer = Producer({"bootstrap.servers": bench.broker, "transactional.id": topic, "log_level": 0})
        producer.init_transactions(PATIENCE)
        for number in range(6):
            producer.begin_transaction()
            for _, value in numbered(range(5)):
                producer.produce(topic, value)
            producer.flush(PATIENCE)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE)
        produce(bench.broker, topic, numbered([5]))
        bench.ingest(settings)
        verdict = verdict_on(settings)
        assert (verdict.code, verdict.offsets, verdict.holes) == (PROVEN, 37, 21)
        assert sum(verdict.tables.values()) == 16
        monkeypatch.setattr("lakehouse_ingest.stages.sources.kafka.source.ASK_S", 1.0)
        alone = verdict_on(bench.settings(topic, source={"brokers": "127.0.0.1:1"}))
        assert (alone.code, alone.unknown) == (UNTOLD, 21)
        assert "could not be asked" in only(alone, FindingKind.UNKNOWN).says
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
        without = verdict_on(settings)
        assert without.code == PROVEN
        assert 0 < without.holes <= 21
        assert sum(without.tables.values()) + without.beyond == 16

    def test_counts_compacted_records_as_offset_gaps(self, bench: Bench, topic: str) -> None:
        """Before and after the records were read."""
        config = {
            "cleanup.policy": "compact",
            "segment.ms": "50",
            "min.cleanable.dirty.ratio": "0.001",
            "delete.retention.ms": "0",
        }
        create_topic(bench.broker, topic, 1, config)
        settings = bench.settings(topic)

        def held(end: int) -> int:
            with Kafka(settings.source, [topic]).looking_back("tests") as log:
                return len(list(log.between((topic, 0), 0, end - 1)))

        def fill(end: int) -> None:
            """Until there are so many records, of which compaction has left fewer."""
            for first in range(end - 30, end, 10):
                produce(
                    bench.broker, topic, [(b"k%d" % (n % 3), value) for n, (_, value) in enumerate(numbered(range(10)))]
                )
                time.sleep(0.06)  # a segment is closed by the first record that comes too late for it
                assert first < end

        with cleaning_at_once(bench.broker):
            fill(30)
            assert until(lambda: held(30) < 30, COMPACTION_S, 0.1)
            bench.ingest(settings)
            verdict = verdict_on(settings)
            assert verdict.code == PROVEN
            assert verdict.holes > 0
            assert verdict.offsets == 30
            there = held(60)
            fill(60)
            bench.ingest(settings)
            assert until(lambda: held(60) < there + 20, COMPACTION_S, 0.1)
        assert verdict_on(settings).code == PROVEN

    def test_finds_nothing_wrong_while_the_pipeline_runs(self, bench: Bench, topic: str) -> None:
        """A batch in progress is neither a loss nor a duplicate."""
        create_topic(bench.broker, topic, 2)
        settings = of_types(bench, topic, max_records=200, keep_types="^[ab]$")
        typed(bench, topic, "abcd" * 10)
        judged: list[int] = []

        def grows() -> bool:
            typed(bench, topic, "abcd" * 50)
            (found,) = prove(settings)
            if found.verdict:
                check_sum(found.verdict)
                assert found.verdict.findings == []
                judged.append(found.verdict.offsets)
            return len(set(judged)) > 2

        with running(bench.pipeline(settings, drain=False)):
            assert until(grows, 180, 0)
        assert judged == sorted(judged)

    def test_does_not_take_rows_that_look_alike_for_duplicates(self, bench: Bench, filled: Landed) -> None:
        """Rows of another pipeline, in a commit of its own, and rows of an earlier topic with the same name."""
        table = bench.table(filled.name())
        rows = table.scan("n == 3 or n == 4").to_arrow()
        table.append(rows, snapshot_properties={"lakehouse.token": "another-pipeline/1/1/0"})
        older = [{**row, "_source": {**row["_source"], "log": "older"}} for row in rows.to_pylist()]
        bench.table(filled.name()).append(pa.Table.from_pylist(older, schema=rows.schema))
        verdict = verdict_on(filled.settings)
        assert (verdict.code, verdict.duplicates, verdict.older) == (PROVEN, 0, {filled.topic: 2})
        bench.table(filled.name()).append(pa.Table.from_pylist(older[:1], schema=rows.schema))
        assert only(verdict_on(filled.settings), FindingKind.DUPLICATE).first == 3

    def test_still_counts_without_the_batch_log(self, bench: Bench, filled: Landed) -> None:
        """All but the last batch: only the batch log says that it is complete."""
        with without_record(bench, filled):
            verdict = verdict_on(filled.settings)
            assert (verdict.code, verdict.offsets, verdict.beyond) == (PROVEN, 10, 10)
            bench.table(filled.name()).delete("n == 4")
            verdict = verdict_on(filled.settings)
            assert (verdict.code, span(only(verdict, FindingKind.LOST))) == (WRONG, (filled.topic, 0, 4, 4))
            verdict = verdict_on(bench.settings(filled.topic, stream={"on_error": "ignore"}))
            assert (verdict.code, verdict.unknown) == (UNTOLD, 1), "it may have been discarded"
            assert "left out on purpose or lost" in only(verdict, FindingKind.UNKNOWN).says

    def test_respects_what_a_person_decided_about_a_recreated_topic(self, bench: Bench, topic: str) -> None:
        """A recreated topic has the same offsets as the older one, and both are in the table."""
        settings = bench.settings(topic)
        for records in (10, 6):
            create_topic(bench.broker, topic, 1)
            produce(bench.broker, topic, numbered(range(records)))
            assert recover(settings, choice=Choice.ANEW) == 0
            bench.ingest(settings)
            verdict = verdict_on(settings)
            assert (verdict.code, verdict.offsets, verdict.duplicates) == (PROVEN, records, 0)
            delete_topic(bench.broker, topic)
        assert verdict.older == {topic: 10}
