"""`lakehouse-ingest acknowledge`: rows that were removed on purpose no longer count as lost, but any others do."""

import json
from functools import partial

import pytest

from lakehouse_ingest.cli.repair import UNANSWERED
from lakehouse_ingest.cli.verbs.acknowledge import acknowledge
from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.operations.verify.findings import PROVEN, WRONG, FindingKind
from lakehouse_ingest.records import Choice
from tests.live.test_recover import Street, street
from tests.live.test_status import command, words
from tests.services.command import Command
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, delete_topic, produce
from tests.services.pipelines import until
from tests.services.verdicts import kinds, numbered, only, span, verdict_on

pytestmark = pytest.mark.live

__all__ = ["command", "street"]  # fixtures

PATIENCE_S = 60.0


class TestRemovedRows:
    def test_count_as_lost_until_they_are_acknowledged(self, bench: Bench, topic: str, command: Command) -> None:
        """Rows are acknowledged in two steps, come back and go again. The running pipeline does not notice."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, numbered(range(20)))
        settings = bench.settings(topic, stream={"max_records": 10}, ledger={"batch_every": 0})
        table, record = f"ns_{topic}.{topic}", f"ns_{topic}.lakehouse_batches"

        def noted() -> list[tuple[str, list[tuple[int, int, int]]]]:
            rows = [row for row in bench.rows(record) if row["kind"] == "removed"]
            return sorted(
                (row["note"], [(each["start"], each["end"], each["absent"]) for each in row["partitions"]])
                for row in rows
            )

        bench.ingest(settings)
        with running(bench.pipeline(settings, drain=False)):
            produce(bench.broker, topic, numbered(range(20, 30)))
            assert until(lambda: verdict_on(settings).offsets == 30, PATIENCE_S, 0.1)
            before = bench.published(table)[0].snapshot_id
            bench.spark.sql(f"DELETE FROM {LAKE}.{table} WHERE n BETWEEN 5 AND 7 OR n = 12")
            erased = bench.published(table)[0].snapshot_id
            verdict = verdict_on(settings)
            assert (verdict.code, verdict.lost, kinds(verdict)) == (WRONG, 4, {FindingKind.LOST})
            assert all("lakehouse-ingest acknowledge" in each.says for each in verdict.findings)

            said = command("acknowledge", *words(bench, topic))
            assert said.code == UNANSWERED, said.err
            told = " ".join(said.out.split())
            assert "4 of them would be acknowledged as removed: offsets 5 to 7 of topic" in told
            assert f"snapshot {erased} of " in told
            assert command("acknowledge", *words(bench, topic), "--yes").code == 2
            assert command("acknowledge", *words(bench, topic), "--offsets", "5-7").code == 2
            assert noted() == []

            some = ("--reason", "erasure 17", "--yes", "--offsets", f"{topic}/0/0-6", "--json")
            said = command("acknowledge", *words(bench, topic), *some)
            assert said.code == UNANSWERED, said.err
            (stream,) = json.loads(said.out)
            assert (stream["lost"], stream["acknowledged"], len(stream["ranges"])) == (4, 2, 1)
            verdict = verdict_on(settings)
            assert (verdict.code, verdict.removed, verdict.lost) == (WRONG, 2, 2)
            said = command("acknowledge", *words(bench, topic), "--reason", "erasure 18", "--yes")
            assert said.code == 0, said.err
            assert noted() == [("erasure 17", [(5, 7, 2)]), ("erasure 18", [(7, 8, 1), (12, 13, 1)])]
            said = command("verify", *words(bench, topic))
            assert said.code == PROVEN
            assert "26 in 1 table, 4 removed on purpose; every other one in exactly" in " ".join(said.out.split())

            for head, counts in ((before, (0, 4)), (erased, (4, 0))):
                bench.table(table).manage_snapshots().set_current_snapshot(head).commit()
                verdict = verdict_on(settings)
                assert (verdict.code, verdict.removed, verdict.back) == (PROVEN, *counts)

            produce(bench.broker, topic, numbered(range(30, 40)))
            assert until(lambda: verdict_on(settings).offsets == 40, PATIENCE_S, 0.1)
            assert (verdict_on(settings).code, verdict_on(settings).removed) == (PROVEN, 4)
            bench.spark.sql(f"DELETE FROM {LAKE}.{table} WHERE n = 8")
            verdict = verdict_on(settings)
            assert (verdict.code, verdict.lost, verdict.removed) == (WRONG, 1, 4)
            assert span(only(verdict, FindingKind.LOST)) == (topic, 0, 8, 8)
        bench.ingest(settings)
        assert verdict_on(settings).lost == 1

    def test_of_a_dropped_table_are_acknowledged_for_that_log_only(self, street: Street) -> None:
        """Once a person has accepted that the table is gone, its rows can be acknowledged, but not those of another
        log."""
        name, other = (f"{street.namespace}.{kind}" for kind in ("a", "b"))
        street.bench.lake.drop_table(name)
        assert recover(street.settings, choice=Choice.ACCEPT, only=name) == 0
        street.produce(10, 15)
        street.ingest()
        verdict = verdict_on(street.settings)
        assert (verdict.code, verdict.lost, kinds(verdict)) == (WRONG, 4, {FindingKind.LOST})
        assert "`lakehouse-ingest acknowledge`" in verdict.findings[0].says
        meant = partial(acknowledge, street.settings, reason="not needed any more", yes=True)
        assert meant(only="nowhere") == UNANSWERED
        assert meant(only=name) == 0
        verdict = verdict_on(street.settings)
        assert (verdict.code, verdict.removed, verdict.offsets) == (PROVEN, 4, 15)
        assert meant() == 0, "nothing is lost"

        delete_topic(street.bench.broker, street.topic)
        create_topic(street.bench.broker, street.topic, 1)
        street.produce(15)
        assert recover(street.settings, choice=Choice.ANEW) == 0
        street.ingest()
        assert (verdict_on(street.settings).code, verdict_on(street.settings).removed) == (PROVEN, 0)
        street.bench.table(name).delete("n == 2")
        street.bench.table(other).delete("n == 3")
        verdict = verdict_on(street.settings)
        assert (verdict.code, verdict.lost, verdict.removed) == (WRONG, 2, 0)
