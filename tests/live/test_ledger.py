"""The ledger, point by point, on a real broker, a real catalog and Spark. Kills are in tests/faults."""

import json
import os
from collections.abc import Iterable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from catalog import FileLayout
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import LedgerUnclear, SettingsRefused, SourceChanged, Superseded, TableChanged, TryAgain
from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import SourceIdentity, Token
from lakehouse_ingest.schema.layout import FileOptions
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Column, PipelineTables, Position, TableSpec, TableState
from lakehouse_ingest.tables.expiry import expire
from lakehouse_ingest.tables.publishing import BatchFiles, OnBranch
from lakehouse_ingest.tables.retention import Retention, is_due
from tests.services.doors import connection_to, in_settings
from tests.services.flow import Heard
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, delete_topic, produce

pytestmark = pytest.mark.live

DAY_MS = 86_400_000
MADE = 1_750_000_000_000
LANDINGS = int(os.environ.get("LAKEHOUSE_TEST_LANDINGS", "130"))


def events(numbers: Iterable[int], partitions: int = 2) -> Iterator[tuple[Any, ...]]:
    for n in numbers:
        value = json.dumps({"n": n, "ts_ms": MADE + n * 1000, "place": f"p{n % 3}"}).encode()
        yield f"k{n}".encode(), value, None, None, n % partitions


def offsets(topic: str, *counts: int) -> dict[tuple[str, int, int], int]:
    """Every offset of these partitions, once."""
    return {(topic, partition, offset): 1 for partition, count in enumerate(counts) for offset in range(count)}


def mark_of(bench: Bench, table: str, pipeline: str) -> Mark:
    found = marks.newest((dict(each.summary.additional_properties) for each in bench.published(table)), pipeline)
    assert found is not None
    return found


def test_a_start_begins_where_the_tables_are(bench: Bench, topic: str) -> None:
    """Each start has a new checkpoint; what landed before is neither read again nor skipped."""
    create_topic(bench.broker, topic, 2)
    settings = bench.settings(topic)
    for first in (0, 100, 200):
        produce(bench.broker, topic, events(range(first, first + 100)))
        bench.ingest(settings)
    assert bench.places(f"ns_{topic}.{topic}") == offsets(topic, 150, 150)
    assert mark_of(bench, f"ns_{topic}.{topic}", topic).token.epoch == 3


def test_a_batch_knows_its_range(bench: Bench, topic: str) -> None:
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
        before = table.scan(snapshot_id=snapshot.parent_snapshot_id).to_arrow().num_rows if following[topic, 0] else 0
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["_source"].to_pylist()
        assert len(rows) - before == sum(mark.next[at] - mark.start[at] for at in mark.next)
        assert {(row["topic"], row["partition"]): row["offset"] for row in sorted(rows, key=lambda r: r["offset"])} == {
            at: offset - 1 for at, offset in mark.next.items()
        }
        following = dict(mark.next)


def test_a_table_trims_by_row_what_it_holds(bench: Bench, topic: str) -> None:
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


def test_what_is_held_needs_no_commit(bench: Bench, topic: str) -> None:
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


def test_a_first_batch_that_told_nothing_is_not_landed_twice(bench: Bench, topic: str) -> None:
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


def test_an_older_start_that_comes_late_shuts_nobody_out(bench: Bench, topic: str) -> None:
    """It claimed its epoch first, and opens a table after the newer one did. It ends; the newer one's branch stays."""
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


def test_two_pipelines_feed_one_table(bench: Bench, topic: str) -> None:
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


def test_another_log_of_the_same_name_is_told_apart(bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pipeline wrote rows with the same offsets, from an earlier topic of the same name. They are not ours when
    a batch that was committed in part is repeated."""

    def typed(kinds: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(
            bench.broker, topic, [(None, json.dumps({"n": n, "type": kind}).encode()) for n, kind in enumerate(kinds)]
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
def test_a_busy_neighbour_loses_nothing(bench: Bench, topic: str, way: str) -> None:
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


def test_compaction_and_expiry_do_not_cut_the_ledger(bench: Bench, topic: str) -> None:
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


def test_questions_stop_the_start(bench: Bench, topic: str) -> None:
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


def test_a_table_made_anew_stops_the_start(bench: Bench, topic: str) -> None:
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


def test_retention_that_passed_us_is_named(bench: Bench, topic: str) -> None:
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


@pytest.mark.timeout(300 + LANDINGS)
def test_metadata_stays_small(bench: Bench, topic: str) -> None:
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
        mark = Mark(token, SourceIdentity("c" * 22, {"wide": "t" * 22}), start, following, start, "h" * 12, "f" * 32)
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


def test_what_a_query_may_still_read_is_not_expired(bench: Bench, topic: str) -> None:
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


def test_a_batch_record_of_many_streams_and_tables_stays_small(bench: Bench, topic: str) -> None:
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


def test_a_dropped_source_column_stops_the_start(bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_replica_that_has_not_heard_of_the_claim(bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_our_branches_outlive_the_age_that_others_set(bench: Bench, topic: str) -> None:
    """With `history.expire.max-ref-age-ms` an expiry would drop a branch by the age of its snapshot, and so let in the
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


def scanned_files(bench: Bench, frame: DataFrame) -> int:
    """How many data files Spark's own plan opened."""
    frame.collect()
    java = bench.spark._jvm
    assert java is not None
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(index) for index in range(leaves.size())]
    (metric,) = [scan.metrics().get("resultDataFiles") for scan in scans if "BatchScan" in scan.nodeName()]
    return int(metric.get().value())


def test_day_partitions_are_pruned(bench: Bench, topic: str) -> None:
    """The data lies in hidden day partitions; a query for one day scans exactly that day's files."""
    create_topic(bench.broker, topic, 2)
    days = 4
    rows = [
        (None, json.dumps({"ts_ms": MADE + (n % days) * DAY_MS, "n": n}).encode(), None, None, n % 2)
        for n in range(400)
    ]
    produce(bench.broker, topic, rows)
    bench.ingest(bench.settings(topic, stream={"max_records": 200}))
    name = f"ns_{topic}.{topic}"
    table = bench.table(name)
    files = {task.file.file_path: task.file.partition[0] for task in table.scan().plan_files()}
    assert len(set(files.values())) == days
    one = "event_time >= '2025-06-16T00:00:00+00:00' and event_time < '2025-06-17T00:00:00+00:00'"
    wanted = {path for path in files if "event_time_day=2025-06-16" in path}
    assert wanted
    assert {task.file.file_path for task in table.scan(row_filter=one).plan_files()} == wanted
    frame = bench.spark.table(f"{LAKE}.{name}").where(
        (F.col("event_time") >= F.lit("2025-06-16").cast("timestamp"))
        & (F.col("event_time") < F.lit("2025-06-17").cast("timestamp"))
    )
    assert {row["_file"].removeprefix("file://") for row in frame.select("_file").distinct().collect()} == {
        path.removeprefix("file://") for path in wanted
    }
    assert frame.count() == 100
    assert scanned_files(bench, frame) == len(wanted)
