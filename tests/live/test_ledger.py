"""The ledger, point by point, on a real broker, a real catalog and Spark. Kills are in tests/faults."""

import json
from threading import Event, Thread
from typing import Any

import pytest

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import LedgerUnclear, Superseded, TryAgain
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Column, PipelineTables, Position, TableSpec, TableState
from lakehouse_ingest.tables.publishing import OnBranch
from tests.services.doors import connection_to, in_settings
from tests.services.flow import Heard
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, delete_topic, produce
from tests.services.numbered_events import events, offsets

pytestmark = pytest.mark.live


def mark_of(bench: Bench, table: str, pipeline: str) -> Mark:
    found = marks.newest((dict(each.summary.additional_properties) for each in bench.published(table)), pipeline)
    assert found is not None
    return found


class TestStart:
    def test_begins_where_the_tables_are(self, bench: Bench, topic: str) -> None:
        """Each start has a new checkpoint; what landed before is neither read again nor skipped."""
        create_topic(bench.broker, topic, 2)
        settings = bench.settings(topic)
        for first in (0, 100, 200):
            produce(bench.broker, topic, events(range(first, first + 100)))
            bench.ingest(settings)
        assert bench.places(f"ns_{topic}.{topic}") == offsets(topic, 150, 150)
        assert mark_of(bench, f"ns_{topic}.{topic}", topic).token.epoch == 3

    def test_that_is_older_does_not_fence_a_newer_one(self, bench: Bench, topic: str) -> None:
        """It claimed its epoch first, and opens a table after the newer one did. It ends; the newer one's branch
        stays."""
        old, new = PipelineTables(connection_to(bench.uri), topic), PipelineTables(connection_to(bench.uri), topic)
        old.ensure_namespace(f"ns_{topic}")
        first, second = f"ns_{topic}.first", f"ns_{topic}.second"
        for name in (first, second):
            old.create(TableSpec(name, (Column("n", "long"),)))
        before, _ = old.claim(first, (second,))
        after, _ = new.claim(first, (second,))
        place = new.open(second, after.epoch)
        with pytest.raises(Superseded):
            old.open(second, before.epoch)
        assert place.branch in bench.table(second).metadata.refs

    def test_is_not_misled_by_a_replica_that_has_not_seen_its_claim(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Which tables there are, and what landed in them last, is taken from the claim's own answer."""
        create_topic(bench.broker, topic, 1)
        routed: dict[str, Any] = {"stream": {"type_from": "field:type"}, "table": {"table": "{type}"}}
        settings, record = bench.settings(topic, **routed), f"ns_{topic}.lakehouse_batches"

        def typed(kinds: str) -> None:
            values = [json.dumps({"n": n, "type": kind}).encode() for n, kind in enumerate(kinds)]
            produce(bench.broker, topic, [(None, value) for value in values])

        typed("a")
        bench.ingest(settings)
        old = PipelineTables(connection_to(bench.uri), topic.lower()).find(record)
        typed("ab")
        bench.ingest(settings)
        find, open_, claimed = PipelineTables.find, OnBranch.open, list[str]()

        def opened(way: OnBranch, table: str, epoch: int, *, claiming: bool) -> TableState:
            state = open_(way, table, epoch, claiming=claiming)
            claimed.append(table)
            return state

        def behind(lake: PipelineTables, table: str) -> TableState | None:
            return old if table == record and claimed else find(lake, table)

        monkeypatch.setattr(OnBranch, "open", opened)
        monkeypatch.setattr(PipelineTables, "find", behind)
        typed("ab")
        pipeline = bench.pipeline(settings)
        heard = Heard.of(pipeline)
        pipeline.run()
        assert claimed[0] == record
        assert heard.retries == []
        assert bench.places(f"ns_{topic}.a", f"ns_{topic}.b") == offsets(topic, 5)


class TestLedger:
    def test_marks_each_commit_with_the_range_of_its_rows(self, bench: Bench, topic: str) -> None:
        """The range in each commit's mark is that of the rows which the commit added; batches follow without a gap."""
        create_topic(bench.broker, topic, 2)
        produce(bench.broker, topic, events(range(1000)))
        bench.ingest(bench.settings(topic, stream={"max_records": 150}))
        table = bench.table(f"ns_{topic}.{topic}")
        snapshots = bench.published(table.name()[0] + "." + topic)
        assert len(snapshots) >= 6
        following: dict[tuple[str, int], int] = {(topic, 0): 0, (topic, 1): 0}
        for snapshot in reversed(snapshots):
            mark = marks.from_summary(dict(snapshot.summary.additional_properties), topic)
            if snapshot.summary["total-records"] == "0":
                continue  # the empty one that a branch of an empty table begins with
            assert mark is not None
            assert dict(mark.start) == following
            assert mark.complete == mark.start
            before = (
                table.scan(snapshot_id=snapshot.parent_snapshot_id).to_arrow().num_rows if following[topic, 0] else 0
            )
            rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["_source"].to_pylist()
            assert len(rows) - before == sum(mark.next[at] - mark.start[at] for at in mark.next)
            assert {
                (row["topic"], row["partition"]): row["offset"] for row in sorted(rows, key=lambda r: r["offset"])
            } == {at: offset - 1 for at, offset in mark.next.items()}
            following = dict(mark.next)

    def test_trims_the_rows_that_a_table_already_holds(self, bench: Bench, topic: str) -> None:
        """The batch record is gone, so the start lies behind the table; other batch boundaries change nothing."""
        create_topic(bench.broker, topic, 2)
        produce(bench.broker, topic, events(range(500)))
        bench.ingest(bench.settings(topic, stream={"max_records": 200}))
        head = bench.published(f"ns_{topic}.{topic}")[0]
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
        produce(bench.broker, topic, [*events(range(500, 600)), (b"k", b"broken", None, None, 0)])
        bench.ingest(bench.settings(topic, stream={"max_records": 10_000}))
        assert bench.places(f"ns_{topic}.{topic}", f"ns_{topic}.dead_letters") == offsets(topic, 301, 300)
        newest = bench.published(f"ns_{topic}.{topic}")[0]
        assert newest.parent_snapshot_id == head.snapshot_id
        assert newest.summary["added-records"] == "100"
        (row,) = [row for row in bench.rows(f"ns_{topic}.lakehouse_batches") if row["kind"] == "batch"]
        assert sum(part["trimmed"] for part in row["partitions"]) > 0
        for part in row["partitions"]:
            assert part["received"] == part["landed"] + part["dead"] + part["trimmed"]
            assert part["end"] - part["start"] == part["received"] + part["absent"]

    def test_commits_only_to_tables_that_get_rows(self, bench: Bench, topic: str) -> None:
        """No faults: no snapshot of the dead letters. Only faults: the batch advances through the batch record."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic)
        produce(bench.broker, topic, events(range(10), 1))
        bench.ingest(settings)
        assert bench.published(f"ns_{topic}.dead_letters") == []
        head = bench.published(f"ns_{topic}.{topic}")[0]
        produce(bench.broker, topic, [(None, b"[]"), (None, b"{"), (None, None)])
        bench.ingest(settings)
        assert bench.published(f"ns_{topic}.{topic}")[0] == head
        assert mark_of(bench, f"ns_{topic}.lakehouse_batches", topic).complete == {(topic, 0): 13}
        assert sorted(row["reason"] for row in bench.rows(f"ns_{topic}.dead_letters")) == [
            "broken_json",
            "empty_value",
            "not_an_object",
        ]
        bench.ingest(settings)  # nothing new: nothing is read, nothing added
        assert bench.places(f"ns_{topic}.{topic}", f"ns_{topic}.dead_letters") == offsets(topic, 13)

    def test_does_not_write_a_dead_lettered_record_again(self, bench: Bench, topic: str) -> None:
        """It went to the dead letters whole; a crash before the batch record must not let the table have it as well."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic)
        produce(bench.broker, topic, [(None, b"{}"), (None, b"{}")])
        bench.ingest(settings)
        assert bench.places(f"ns_{topic}.dead_letters") == offsets(topic, 2)
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
        produce(bench.broker, topic, [(None, b'{"n": 1}'), (None, b"{}")])
        bench.ingest(settings)
        assert bench.places(f"ns_{topic}.{topic}", f"ns_{topic}.dead_letters") == offsets(topic, 4)
        assert len(bench.rows(f"ns_{topic}.{topic}")) == 2

    def test_keeps_the_marks_of_two_pipelines_in_one_table(self, bench: Bench, topic: str) -> None:
        """Each commit carries the other's mark on, and each start finds its own."""
        one, two = f"{topic}_1", f"{topic}_2"
        shared = {"catalog": {**in_settings(bench.uri), "namespace": f"ns_{topic}"}, "table": {"table": "shared"}}
        for name in (one, two):
            create_topic(bench.broker, name, 1)
        for first in (0, 10, 20):
            for name in (one, two):
                produce(bench.broker, name, events(range(first, first + 10), 1))
                bench.ingest(bench.settings(name, **{key: dict(value) for key, value in shared.items()}))
        summary = dict(bench.published(f"ns_{topic}.shared")[0].summary.additional_properties)
        assert {key for key in summary if key.startswith(MARK)} == {f"{MARK}{one}", f"{MARK}{two}"}
        assert bench.places(f"ns_{topic}.shared") == {**offsets(one, 30), **offsets(two, 30)}

    def test_distinguishes_two_logs_of_the_same_name(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another pipeline wrote rows with the same offsets, from an earlier topic of the same name. They are not ours
        when
        a batch that was committed in part is repeated."""

        def typed(kinds: str) -> None:
            create_topic(bench.broker, topic, 1)
            produce(
                bench.broker,
                topic,
                [(None, json.dumps({"n": n, "type": kind}).encode()) for n, kind in enumerate(kinds)],
            )

        def settings(name: str) -> Settings:
            routed: dict[str, Any] = {"stream": {"type_from": "field:type"}, "table": {"table": "{type}"}}
            return bench.settings(topic, name=f"{topic.lower()}_{name}", **routed)

        typed("aaaaaaaa")
        bench.ingest(settings("one"))
        delete_topic(bench.broker, topic)
        typed("babababa")
        land, refused = OnBranch.land, list[str]()

        def once_not(way: OnBranch, place: Position, *rest: Any) -> Position:
            if place.table.endswith(".b") and not refused:
                refused.append(place.table)
                raise TryAgain("not now")
            return land(way, place, *rest)

        monkeypatch.setattr(OnBranch, "land", once_not)
        bench.ingest(settings("two"))
        assert refused
        assert sorted(row["n"] for row in bench.rows(f"ns_{topic}.b")) == [0, 2, 4, 6]
        assert sorted(row["n"] for row in bench.rows(f"ns_{topic}.a")) == sorted([*range(8), 1, 3, 5, 7])

    @pytest.mark.parametrize("way", ["branch", pytest.param("direct", marks=pytest.mark.long)])
    def test_loses_no_commit_of_a_busy_neighbour(self, bench: Bench, topic: str, way: str) -> None:
        """Foreign commits in between are kept, and our refused landings are tried again with the same files."""
        catalog = {**in_settings(bench.uri), "namespace": f"ns_{topic}", "publish": way}
        create_topic(bench.broker, topic, 2)
        produce(bench.broker, topic, events(range(10)))
        name = f"ns_{topic}.{topic}"
        bench.ingest(bench.settings(topic, catalog=catalog))
        produce(bench.broker, topic, events(range(10, 3000)))
        stop, foreign = Event(), []

        def neighbour() -> None:
            row = bench.table(name).scan(limit=1).to_arrow().slice(0, 1)
            while not stop.wait(0.05):
                bench.table(name).append(row)
                foreign.append(1)

        thread = Thread(target=neighbour)
        thread.start()
        try:
            pipeline = bench.ingest(bench.settings(topic, catalog=catalog, stream={"max_records": 300}))
        finally:
            stop.set()
            thread.join()
        assert pipeline.landed >= 9
        assert len(foreign) >= 5
        places = bench.places(name)
        (copied,) = [at for at, count in places.items() if count > 1]
        places[copied] -= len(foreign)
        assert places == offsets(topic, 1500, 1500)

    def test_survives_compaction_and_expiry_by_others(self, bench: Bench, topic: str) -> None:
        """After another's compaction and expiry to one snapshot the batch record decides; without it, nobody: stop."""
        create_topic(bench.broker, topic, 1)
        settings, name = bench.settings(topic), f"ns_{topic}.{topic}"
        for first in (0, 10):
            produce(bench.broker, topic, events(range(first, first + 10), 1))
            bench.ingest(settings)
        bench.compact_and_expire(name)
        produce(bench.broker, topic, events(range(20, 30), 1))
        bench.ingest(settings)
        assert bench.places(name) == offsets(topic, 30)
        bench.compact_and_expire(name)
        bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
        with pytest.raises(LedgerUnclear, match="nothing else holds one"):
            bench.ingest(settings)


class TestExpiry:
    def test_by_others_spares_our_branches(self, bench: Bench, topic: str) -> None:
        """With `history.expire.max-ref-age-ms` an expiry would drop a branch by the age of its snapshot, and so let in
        the
        writers that it fences."""
        create_topic(bench.broker, topic, 1)
        name, settings = f"ns_{topic}.{topic}", bench.settings(topic)
        for first in (0, 10):
            produce(bench.broker, topic, events(range(first, first + 10), 1))
            bench.ingest(settings)
            refs = {ref for ref in bench.table(name).metadata.refs if ref.startswith("ingest_")}
            assert refs
            with bench.table(name).transaction() as change:
                change.set_properties({"history.expire.max-ref-age-ms": "1"})
            bench.spark.sql(f"CALL {LAKE}.system.expire_snapshots(table => '{name}', older_than => now())").collect()
            assert refs <= {*bench.table(name).metadata.refs}
        assert bench.places(name) == offsets(topic, 20)
