"""`lakehouse-ingest verify` finds what another writer has done to tables that a real pipeline has filled."""

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.table import Table

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.operations.verify.findings import UNTOLD, WRONG, FindingKind
from lakehouse_ingest.stages.sources import of_stream
from tests.live.test_status import command, words
from tests.services.command import Command
from tests.services.ingesting import Bench
from tests.services.kafka import PATIENCE, create_topic, delete_topic, produce
from tests.services.readers import local
from tests.services.verdicts import Landed, kinds, landings, numbered, only, span, verdict_on

pytestmark = pytest.mark.live

__all__ = ["command"]  # a fixture


def add_again(table: Table) -> None:
    """The file of the first batch, by a commit that adds it once more."""
    (task,) = table.scan("n == 0").plan_files()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(task.file)


class TestVerify:
    def test_finds_a_row_that_another_writer_appended_again(
        self, bench: Bench, filled: Landed, command: Command
    ) -> None:
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

    def test_finds_a_row_in_two_tables(self, bench: Bench, parted: Landed) -> None:
        """Each by itself is sound."""
        order, payment = parted.name("order"), parted.name("payment")
        copy = bench.table(order).scan("n == 3").to_arrow()
        at = copy["_source"][0].as_py()
        bench.table(payment).append(copy)
        verdict = verdict_on(parted.settings)
        found = only(verdict, FindingKind.DUPLICATE)
        assert (verdict.duplicates, found.tables) == (1, (order, payment))
        assert span(found) == (at["topic"], at["partition"], at["offset"], at["offset"])

    def test_finds_a_missing_data_file(self, bench: Bench, filled: Landed) -> None:
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

    def test_finds_a_data_file_that_is_listed_twice(self, bench: Bench, filled: Landed) -> None:
        name = filled.name()
        add_again(bench.table(name))
        verdict = verdict_on(filled.settings)
        found = only(verdict, FindingKind.FILE_TWICE)
        again, *_, first = landings(bench, name)
        assert (found.count, set(found.snapshots)) == (10, {first, again})
        assert span(only(verdict, FindingKind.DUPLICATE)) == (filled.topic, 0, 0, 9)

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_finds_a_deleted_range(self, bench: Bench, filled: Landed, mode: str) -> None:
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

    def test_finds_a_commit_that_was_rolled_back(self, bench: Bench, filled: Landed) -> None:
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

    def test_finds_a_missing_table(self, bench: Bench, parted: Landed) -> None:
        name, aside = parted.name("payment"), f"ns_{parted.topic}.aside"
        bench.lake.rename_table(name, aside)
        try:
            verdict = verdict_on(parted.settings)
        finally:
            bench.lake.rename_table(aside, name)
        assert (verdict.code, only(verdict, FindingKind.TABLE_GONE).tables, verdict.lost) == (WRONG, (name,), 4)

    def test_finds_a_filtered_record_in_a_table(self, bench: Bench, parted: Landed) -> None:
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

    def test_needs_the_batch_log_for_offsets_that_the_broker_no_longer_holds(self, bench: Bench, topic: str) -> None:
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

    def test_proves_nothing_before_the_first_batch(self, bench: Bench, topic: str, command: Command) -> None:
        create_topic(bench.broker, topic, 1)
        said = command("verify", *words(bench, topic))
        assert said.code == 6
        assert "knows nothing of it" in said.out
