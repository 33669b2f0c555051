"""Snapshots and metadata stay small, and our own expiry leaves what a query may still read."""

import os
from typing import Any

import pytest

from catalog import FileLayout
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.tables import Column, PipelineTables, TableSpec
from lakehouse_ingest.tables.expiry import expire
from lakehouse_ingest.tables.publishing import BatchFiles
from lakehouse_ingest.tables.retention import Retention, is_due
from tests.services.doors import connection_to
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events, offsets

pytestmark = pytest.mark.live

LANDINGS = int(os.environ.get("LAKEHOUSE_TEST_LANDINGS", "130"))


class TestExpiry:
    @pytest.mark.timeout(300 + LANDINGS)
    def test_keeps_the_metadata_of_a_table_small(self, bench: Bench, topic: str) -> None:
        """Commits with 600 partitions: metadata.json stays under 2 MB, with no more snapshots than the setting says.

        The size depends on the snapshots that are kept, so 130 commits with two expiries show as much as 2,000, which
        `make test-long` does.
        Batches are real except for their rows: marks, publishing and expiry are the pipeline's own, without data files.
        """
        name, keep, partitions = f"ns_{topic}.wide", 100, 600
        lake = PipelineTables(connection_to(bench.uri), topic)
        lake.ensure_namespace(f"ns_{topic}")
        # Others keep the table by age: what is older goes when they say so, not with what we expire.
        by_age = {"history.expire.max-snapshot-age-ms": "1"}
        lake.create(TableSpec(name, (Column("n", "long"),), properties={**FileOptions().properties(), **by_age}))
        place, _ = lake.claim(name, ())
        following = {("wide", number): 10**9 + number * 7919 for number in range(partitions)}
        most = expired = 0
        for batch in range(LANDINGS):
            start = following
            following = {at: offset + 83 + at[1] % 17 for at, offset in start.items()}
            token = Token(topic, 1, 1, batch)
            mark = Mark(
                token, SourceIdentity("c" * 22, {"wide": "t" * 22}), start, following, start, "h" * 12, "f" * 32
            )
            place = lake.publication.land(place, BatchFiles([], FileLayout(place.schema, place.spec)), mark, {})
            if batch == 5:  # somebody keeps this one, and expiry has to leave it
                bench.spark.sql(f"ALTER TABLE {LAKE}.{name} CREATE TAG kept AS OF VERSION {place.main}")
            most = max(most, place.snapshots)
            if place.snapshots >= keep:
                assert expire(bench.spark, name, topic, place.epoch, Retention(keep)) > 0
                place = lake.again(place)
                assert place.snapshots >= keep * 0.8
                expired += 1
        assert most == keep
        assert expired > 1
        assert place.held == following
        assert bench.table(name).snapshot_by_name("kept") is not None
        newcomer, _ = PipelineTables(connection_to(bench.uri), f"{topic}_2").claim(name, ())
        assert newcomer.known, "a pipeline that was never here is not shut out by history that is gone"
        file = bench.table(name).metadata_location
        size = bench.table(name).io.new_input(file).open().seek(0, 2)
        print(f"metadata.json after {LANDINGS} landings: {size / 2**20:.2f} MiB, {place.snapshots} snapshots")
        assert size < 2 * 2**20

    def test_keeps_what_a_query_may_still_read(self, bench: Bench, topic: str) -> None:
        """By our own expiry, however many landings come in between; of the batch record the number alone counts."""
        create_topic(bench.broker, topic, 1)
        table, record = f"ns_{topic}.{topic}", f"ns_{topic}.lakehouse_batches"

        def land(first: int, **ledger: Any) -> None:
            produce(bench.broker, topic, events(range(first, first + 60), 1))
            keep = {"keep_snapshots": 2, "batch_every": 0, **ledger}
            bench.ingest(bench.settings(topic, stream={"max_records": 10}, ledger=keep))

        land(0)
        assert len(bench.published(table)) >= 6
        assert len(bench.published(record)) <= 2
        land(60, keep_for=0)
        assert len(bench.published(table)) <= 2
        assert bench.places(table) == offsets(topic, 120)

    def test_keeps_a_batch_log_of_many_streams_and_tables_small(self, bench: Bench, topic: str) -> None:
        """Each of its summaries carries the marks of all streams, so fewer are kept than the setting allows."""
        name, heads = f"ns_{topic}.record", {f"lake.table_{number}": (7, number * 31) for number in range(584)}
        retention = Retention(100)
        extra = {f"{keys.HEADS}s{number}": marks.heads_text(heads) for number in range(20)}
        lake = PipelineTables(connection_to(bench.uri), topic, retention=lambda _: retention)
        lake.ensure_namespace(f"ns_{topic}")
        lake.create(TableSpec(name, (Column("n", "long"),)))
        place, _ = lake.claim(name, ())
        epoch = place.epoch
        for batch in range(20):
            done = {("t", 0): batch}
            mark = Mark(Token(topic, 1, epoch, batch), SourceIdentity(), {}, done, done)
            place = lake.publication.append(place, [{"n": batch}], mark, extra)
            if is_due(place.snapshots, place.expirable):
                assert expire(bench.spark, name, topic, epoch, retention) > 0
                place = lake.again(place)
            assert place.held == done
        state = lake.find(name)
        assert state
        assert lake.heads_in(state) == {}
        assert marks.heads((each.summary for each in state.ancestors()), "s7") == heads
        assert len(state.snapshots) < 20
        summary = sum(map(len, extra.values()))
        assert lake.metadata_size(name) < 1.5 * max(10 * summary, 2**20 + summary)
