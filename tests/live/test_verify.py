"""`lakehouse-ingest verify` finds what is wrong, and reports nothing that is right.

Another writer does the damage, to tables that a real pipeline has filled from a real broker.
"""

import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.table import Table

from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.operations.verify.findings import PROVEN, UNTOLD, WRONG, Finding, FindingKind, StreamVerdict
from lakehouse_ingest.operations.verify.streams import prove
from lakehouse_ingest.records import Choice, SourceIdentity, Token
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.sources import of_stream
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from lakehouse_ingest.tables import Column, HeadFile, Pinned, PipelineTables, TableSpec
from tests.live.test_many_tables import settings as of_types
from tests.live.test_many_tables import typed
from tests.live.test_status import command, words
from tests.services.command import Command
from tests.services.doors import connection_to
from tests.services.ingesting import Bench, running
from tests.services.kafka import PATIENCE, cleaning_at_once, create_topic, delete_topic, produce
from tests.services.pipelines import until
from tests.services.readers import local

pytestmark = pytest.mark.live

__all__ = ["command"]  # a fixture

MADE = 1_750_000_000_000
COMPACTION_S = 30.0


def verdict_on(settings: Settings) -> StreamVerdict:
    (found,) = prove(settings)
    assert found.verdict
    check_sum(found.verdict)
    assert found.code == found.verdict.code
    return found.verdict


def check_sum(verdict: StreamVerdict) -> None:
    """Each offset is somewhere in the sentence, once."""
    elsewhere = verdict.filtered + verdict.discarded + verdict.removed + verdict.holes + verdict.holes_recorded
    rows = sum(verdict.tables.values()) + verdict.dead - verdict.duplicates
    assert verdict.offsets == rows + elsewhere + verdict.lost + verdict.unknown, verdict


def only(verdict: StreamVerdict, kind: FindingKind) -> Finding:
    (found,) = [each for each in verdict.findings if each.kind is kind]
    assert len(found.says) <= 200
    return found


def kinds(verdict: StreamVerdict) -> set[FindingKind]:
    return {each.kind for each in verdict.findings}


def span(finding: Finding) -> tuple[str | None, int | None, int | None, int | None]:
    return finding.topic, finding.partition, finding.first, finding.last


def numbered(numbers: Iterable[int]) -> Iterator[tuple[None, bytes]]:
    return ((None, json.dumps({"n": n, "ts_ms": MADE + n}).encode()) for n in numbers)


@dataclass(frozen=True)
class Landed:
    """What a pipeline has left in its tables; whatever a test does to these is undone after it."""

    settings: Settings
    topic: str

    def name(self, table: str = "") -> str:
        return f"ns_{self.topic}.{table or self.topic}"


@pytest.fixture(scope="module")
def twenty(bench: Bench) -> Landed:
    """Twenty records in two batches, of one partition, in one table."""
    topic = "verify_twenty"
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, numbered(range(20)))
    settings = bench.settings(topic, stream={"max_records": 10})
    bench.ingest(settings)
    return Landed(settings, topic)


@pytest.fixture(scope="module")
def sorted_out(bench: Bench) -> Landed:
    """Two partitions, three tables, dead letters, and one type in six that is filtered."""
    topic = "verify_sorted_out"
    create_topic(bench.broker, topic, 2)
    settings = of_types(bench, topic, keep_types="^(order|payment|refund)$", max_records=14)
    typed(bench, topic, ["order", "payment", "debug", "order", "refund", None] * 4)
    produce(bench.broker, topic, [(None, b'{"type": "order", ')] * 3)
    bench.ingest(settings)
    return Landed(settings, topic)


@pytest.fixture
def filled(bench: Bench, twenty: Landed) -> Iterator[Landed]:
    with undone(bench, twenty):
        yield twenty


@pytest.fixture
def parted(bench: Bench, sorted_out: Landed) -> Iterator[Landed]:
    with undone(bench, sorted_out):
        yield sorted_out


@contextmanager
def undone(bench: Bench, landed: Landed) -> Iterator[None]:
    names = [".".join(name) for name in bench.lake.list_tables(f"ns_{landed.topic}")]
    heads = {name: table.metadata.current_snapshot_id for name in names if (table := bench.table(name))}
    yield
    for name, head in heads.items():
        if head is not None and bench.table(name).metadata.current_snapshot_id != head:
            bench.table(name).manage_snapshots().set_current_snapshot(head).commit()


# -- what is right ----------------------------------------------------------------------------------------


def test_tables_dead_letters_and_what_was_filtered_are_one_whole(
    bench: Bench, parted: Landed, command: Command
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
    whole = "27 offsets of 2 partitions: 16 in 3 tables, 7 among the dead letters, 4 filtered; every one in exactly one"
    assert whole in " ".join(said.out.split())
    assert {name: bench.table(name).metadata_location for name in names} == before


def test_markers_and_aborted_records_are_holes(bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_compaction_took_is_a_hole(bench: Bench, topic: str) -> None:
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


def test_it_holds_while_the_pipeline_runs(bench: Bench, topic: str) -> None:
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


def test_rows_that_only_look_alike_are_not_too_many(bench: Bench, filled: Landed) -> None:
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


@contextmanager
def without_record(bench: Bench, landed: Landed) -> Iterator[None]:
    bench.lake.create_namespace_if_not_exists("verify_aside")
    record, aside = landed.name("lakehouse_batches"), "verify_aside.lakehouse_batches"
    bench.lake.rename_table(record, aside)
    try:
        yield
    finally:
        bench.lake.rename_table(aside, record)


def test_without_the_batch_record_it_still_counts(bench: Bench, filled: Landed) -> None:
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


# -- what is wrong ----------------------------------------------------------------------------------------


def landings(bench: Bench, name: str) -> list[int]:
    """Main's snapshots that added rows, newest first."""
    return [each.snapshot_id for each in bench.published(name) if each.summary["added-records"] not in (None, "0")]


def test_a_row_that_another_writer_appended_again(bench: Bench, filled: Landed, command: Command) -> None:
    name = filled.name()
    first = landings(bench, name)[-1]
    table = bench.table(name)
    table.append(table.scan("n == 3 or n == 4").to_arrow())
    copied = landings(bench, name)[0]
    verdict = verdict_on(filled.settings)
    found = only(verdict, FindingKind.DUPLICATE)
    assert (verdict.code, verdict.duplicates, found.tables) == (WRONG, 2, (name,))
    assert (span(found), set(found.snapshots)) == ((filled.topic, 0, 3, 4), {first, copied})
    assert kinds(verdict) == {FindingKind.DUPLICATE}
    said = command("verify", *words(bench, filled.topic))
    assert said.code == 5
    assert "offsets 3 to 4" in said.out


def test_a_row_in_two_tables(bench: Bench, parted: Landed) -> None:
    """Each by itself is sound."""
    order, payment = parted.name("order"), parted.name("payment")
    copy = bench.table(order).scan("n == 3").to_arrow()
    at = copy["_source"][0].as_py()
    bench.table(payment).append(copy)
    verdict = verdict_on(parted.settings)
    found = only(verdict, FindingKind.DUPLICATE)
    assert (verdict.duplicates, found.tables) == (1, (order, payment))
    assert span(found) == (at["topic"], at["partition"], at["offset"], at["offset"])


def test_a_data_file_that_is_gone(bench: Bench, filled: Landed) -> None:
    name = filled.name()
    (task,) = bench.table(name).scan("n < 10").plan_files()
    path = local(task.file.file_path)
    aside = path.rename(path.with_suffix(".aside"))
    try:
        verdict = verdict_on(filled.settings)
    finally:
        aside.rename(path)
    found, lost = only(verdict, FindingKind.FILE_MISSING), only(verdict, FindingKind.LOST)
    assert (verdict.code, found.tables, found.files) == (WRONG, (name,), (task.file.file_path,))
    assert (found.count, found.snapshots) == (10, (landings(bench, name)[-1],))
    assert (span(lost), lost.count) == ((filled.topic, 0, 0, 9), 10)
    assert kinds(verdict) == {FindingKind.FILE_MISSING, FindingKind.LOST}


def test_a_data_file_that_is_referred_to_twice(bench: Bench, filled: Landed) -> None:
    name = filled.name()
    add_again(bench.table(name))
    verdict = verdict_on(filled.settings)
    found = only(verdict, FindingKind.FILE_TWICE)
    again, *_, first = landings(bench, name)
    assert (found.count, set(found.snapshots)) == (10, {first, again})
    assert span(only(verdict, FindingKind.DUPLICATE)) == (filled.topic, 0, 0, 9)


def add_again(table: Table) -> None:
    """The file of the first batch, by a commit that adds it once more."""
    (task,) = table.scan("n == 0").plan_files()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(task.file)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_range_that_was_taken_out(bench: Bench, filled: Landed, mode: str) -> None:
    """By rewriting the file, and by a file of deletes beside it."""
    name = filled.name()
    bench.spark.sql(f"ALTER TABLE {LAKE}.{name} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
    bench.spark.sql(f"DELETE FROM {LAKE}.{name} WHERE n BETWEEN 5 AND 7 OR n = 12")
    bench.spark.sql(f"ALTER TABLE {LAKE}.{name} UNSET TBLPROPERTIES ('write.delete.mode')")
    deletes = bench.published(name)[0].summary["total-delete-files"]
    assert (deletes != "0") == (mode == "merge-on-read")
    verdict = verdict_on(filled.settings)
    found = [each for each in verdict.findings if each.kind is FindingKind.LOST]
    assert [span(each)[2:] for each in found] == [(5, 7), (12, 12)]
    assert (verdict.code, verdict.lost, kinds(verdict)) == (WRONG, 4, {FindingKind.LOST})
    removed = bench.published(name)[0].snapshot_id
    assert all(each.snapshots[0] == removed and each.tables == (name,) for each in found)


def test_a_commit_that_was_rolled_back(bench: Bench, filled: Landed) -> None:
    """Also if another writer has committed since."""
    name = filled.name()
    second, *_, first = landings(bench, name)
    bench.table(name).manage_snapshots().rollback_to_snapshot(first).commit()
    for written in (False, True):
        if written:
            row = {"n": 99, "_source": None}
            bench.table(name).append(pa.Table.from_pylist([row], schema=bench.table(name).schema().as_arrow()))
        verdict = verdict_on(filled.settings)
        found, lost = only(verdict, FindingKind.ROLLED_BACK), only(verdict, FindingKind.LOST)
        assert (verdict.code, found.tables, found.snapshots, found.count) == (WRONG, (name,), (second,), 10)
        assert span(found) == span(lost) == (filled.topic, 0, 10, 19)
        assert lost.snapshots[0] == second
        assert verdict.offsets == 20


def test_a_table_that_is_not_there(bench: Bench, parted: Landed) -> None:
    name, aside = parted.name("payment"), f"ns_{parted.topic}.aside"
    bench.lake.rename_table(name, aside)
    try:
        verdict = verdict_on(parted.settings)
    finally:
        bench.lake.rename_table(aside, name)
    assert (verdict.code, only(verdict, FindingKind.TABLE_GONE).tables, verdict.lost) == (WRONG, (name,), 4)


def test_counts_that_do_not_fit(bench: Bench, parted: Landed) -> None:
    """Another writer has put a filtered record into a table."""
    table = bench.table(parted.name("order"))
    places = bench.places(*(parted.name(each) for each in ("order", "payment", "refund", "dead_letters")))
    ends = of_stream(parted.settings.source, parted.settings.streams[0]).ends()
    number, offset = next(
        (n, o) for (_, n), end in ends.items() for o in range(end) if (parted.topic, n, o) not in places
    )
    row = table.scan("n == 0").to_arrow().to_pylist()[0]
    row["_source"] |= {"partition": number, "offset": offset}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    verdict = verdict_on(parted.settings)
    found = only(verdict, FindingKind.COUNT)
    assert (verdict.code, found.count, kinds(verdict)) == (WRONG, 1, {FindingKind.COUNT})
    assert (found.topic, found.partition) == (parted.topic, number)
    assert found.first is not None
    assert found.last is not None
    assert found.first <= offset <= found.last


def test_what_the_broker_holds_no_more_is_told_by_the_record_or_by_nobody(bench: Bench, topic: str) -> None:
    create_topic(bench.broker, topic, 1)
    produce(bench.broker, topic, numbered(range(20)))
    settings = bench.settings(topic, stream={"max_records": 10})
    bench.ingest(settings)
    bench.table(f"ns_{topic}.{topic}").delete("n == 4")
    admin = AdminClient({"bootstrap.servers": bench.broker})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 8)]).values()
    done.result(PATIENCE)
    assert span(only(verdict_on(settings), FindingKind.LOST)) == (topic, 0, 4, 4), "the record has counted it"
    bench.lake.purge_table(f"ns_{topic}.lakehouse_batches")
    verdict = verdict_on(settings)
    assert (verdict.code, span(only(verdict, FindingKind.UNKNOWN))) == (UNTOLD, (topic, 0, 4, 4))
    delete_topic(bench.broker, topic)
    assert verdict_on(settings).code == UNTOLD


def test_where_nothing_landed_nothing_is_proven(bench: Bench, topic: str, command: Command) -> None:
    create_topic(bench.broker, topic, 1)
    said = command("verify", *words(bench, topic))
    assert said.code == 6
    assert "knows nothing of it" in said.out


def test_what_a_person_has_decided_is_not_held_against_it(bench: Bench, topic: str) -> None:
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


# -- how much it takes ------------------------------------------------------------------------------------


def test_each_file_is_read_once(bench: Bench, filled: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files that may hold duplicates are opened again, to say which ones they are."""
    settings, table = filled.settings, bench.table(filled.name())
    table.append(table.scan("n == 3 or n == 17").to_arrow())
    table.delete("n == 9 or n == 10")
    opened: Counter[str] = Counter()
    batches_of = PipelineTables.batches_of

    def counting(
        lake: PipelineTables, pinned: Pinned, file: HeadFile, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        opened[file.path] += 1
        return batches_of(lake, pinned, file, columns)

    monkeypatch.setattr(PipelineTables, "batches_of", counting)
    whole = verdict_on(settings)
    assert (whole.duplicates, whole.lost) == (2, 2)
    assert max(opened.values()) == 2
    opened.clear()
    table.delete("n == 3 or n == 17")
    assert verdict_on(settings).duplicates == 0
    assert set(opened.values()) == {1}


def test_memory_does_not_grow_with_the_rows(bench: Bench, topic: str) -> None:
    """Five times the rows, in five times the files."""
    peaks = {}
    for rows in (200_000, 1_000_000):
        settings = bench.settings(f"{topic}_{rows}")
        directly_filled(bench, settings, rows)
        began = time.perf_counter()
        assert verdict_on(settings).code == PROVEN
        seconds = time.perf_counter() - began
        pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            verdict = verdict_on(settings)
            peaks[rows] = tracemalloc.get_traced_memory()[1] + pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
        assert (verdict.code, verdict.offsets, sum(verdict.tables.values())) == (PROVEN, rows, rows)
        print(f"{rows:,} rows: {seconds:.1f} s, {peaks[rows] / 2**20:.1f} MiB")
    assert peaks[1_000_000] < 1.5 * peaks[200_000]


def directly_filled(bench: Bench, settings: Settings, rows: int) -> None:
    """As a pipeline would have left it, twelve partitions in files of some ten thousand rows."""
    (topic,) = settings.streams[0].topics
    namespace, name, partitions = settings.catalog.namespace, settings.name, 12
    source = "struct<topic: string, partition: int, offset: long, index: int>"
    lake = PipelineTables(connection_to(bench.uri), name)
    lake.ensure_namespace(namespace)
    small = {"write.target-file-size-bytes": str(400_000)}
    lake.create(TableSpec(f"{namespace}.events", (Column("n", "long"), Column("_source", source)), properties=small))
    table = bench.table(f"{namespace}.events")
    places = [
        pa.array([topic] * rows),
        pa.array([n % partitions for n in range(rows)], pa.int32()),
        pa.array([n // partitions for n in range(rows)], pa.int64()),
        pa.array([0] * rows, pa.int32()),
    ]
    coordinates = pa.StructArray.from_arrays(places, ["topic", "partition", "offset", "index"])
    following = {(topic, number): len(range(number, rows, partitions)) for number in range(partitions)}
    begin = dict.fromkeys(following, 0)
    mark = Mark(Token(name, 1, 1, 0), SourceIdentity("", {topic: ""}), begin, following, following)
    table.append(
        pa.table({"n": pa.array(range(rows), pa.int64()), "_source": coordinates}),
        snapshot_properties=marks.to_summary(mark, {}),
    )
    assert len(table.inspect.files()) > rows // 30_000


def test_every_file_is_opened_only_where_its_bounds_say(bench: Bench, filled: Landed) -> None:
    """The manifests have bounds for fields within structs as well."""
    lake = PipelineTables(connection_to(bench.uri), "tests")
    pinned = lake.pin(filled.name())
    assert pinned
    files = lake.files_of(pinned, ("_source.partition", "_source.offset"))
    assert sorted(file.bounds["_source.offset"] for file in files) == [(0, 9), (10, 19)]
    assert all(lake.has_file(pinned, file.path) for file in files)
    assert Path(local(files[0].path)).exists()
