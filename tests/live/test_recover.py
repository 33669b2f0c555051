"""What a person has to decide before a start, and that each choice does what it says: nothing is lost or doubled."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lakehouse_ingest.api import verify
from lakehouse_ingest.cli.repair import UNANSWERED
from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.errors import LedgerUnclear, NeedsOperator, SettingsRefused, SourceChanged, TableChanged
from lakehouse_ingest.records import Choice, SourceIdentity
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, delete_topic, produce

pytestmark = pytest.mark.live

TYPES = ("a", "b")


def events(numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Of two types in turn; each fifth can't be read."""
    for n in numbers:
        yield None, b'{"n": ' if n % 5 == 4 else json.dumps({"n": n, "type": TYPES[n % 2]}).encode()


class Street:
    """One topic, two tables and the dead letters."""

    def __init__(self, bench: Bench, topic: str) -> None:
        self.bench, self.topic, self.namespace = bench, topic, f"ns_{topic}"
        self.settings: Settings = bench.settings(
            topic, stream={"type_from": "field:type"}, table={"table": "{type}"}, ledger={"batch_every": 0}
        )
        create_topic(bench.broker, topic, 1)

    def produce(self, *numbers: int) -> None:
        produce(self.bench.broker, self.topic, events(range(*numbers)))

    def ingest(self) -> None:
        self.bench.ingest(self.settings)

    def stops(self, kind: type[NeedsOperator], says: str) -> None:
        with pytest.raises(kind, match=f"{says}.*`lakehouse-ingest recover`"):
            self.ingest()
        assert recover(self.settings) == UNANSWERED

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for kind in TYPES for row in self.bench.rows(f"{self.namespace}.{kind}"))

    def dead(self) -> list[int]:
        return sorted(row["_source"]["offset"] for row in self.bench.rows(f"{self.namespace}.dead_letters"))

    def holds(self, *numbers: int, dead: Iterable[int]) -> None:
        assert self.numbers() == Counter(n for n in range(*numbers) if n % 5 != 4)
        assert self.dead() == [*dead]


@pytest.fixture
def street(bench: Bench, topic: str) -> Street:
    street = Street(bench, topic)
    street.produce(10)
    street.ingest()
    street.holds(10, dead=(4, 9))
    return street


class TestRecover:
    def test_has_nothing_to_decide_where_nothing_is_wrong(
        self, street: Street, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert recover(street.settings) == 0
        assert "nothing keeps it from starting" in capsys.readouterr().out
        assert recover(street.settings, choice=Choice.ANEW) == 0
        street.produce(10, 15)
        street.ingest()
        street.holds(15, dead=(4, 9, 14))

    @pytest.mark.parametrize(("choice", "read"), [(Choice.ANEW, True), (Choice.LATEST, False)])
    def test_begins_a_recreated_topic_where_it_was_chosen(self, street: Street, choice: Choice, *, read: bool) -> None:
        """Its offsets mean other records, so rows with the same offsets in the tables do not matter."""
        delete_topic(street.bench.broker, street.topic)
        create_topic(street.bench.broker, street.topic, 1)
        street.produce(10, 18)
        street.stops(SourceChanged, "was deleted and recreated")
        assert recover(street.settings, choice=choice) == 0
        assert recover(street.settings) == 0
        street.ingest()
        street.produce(18, 20)
        street.ingest()
        if read:
            street.holds(20, dead=(4, 4, 9, 9))
        else:
            assert street.numbers() == Counter([*(n for n in range(10) if n % 5 != 4), 18])
            assert street.dead() == [4, 9, 9]

    def test_accepts_a_log_whose_end_went_back(self, street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
        """As after the election of a broker that lagged behind. The test recreates the topic and reports its old id."""
        before = Kafka(street.settings.source, [street.topic]).identity()
        delete_topic(street.bench.broker, street.topic)
        create_topic(street.bench.broker, street.topic, 1)
        street.produce(6)
        monkeypatch.setattr(
            Kafka, "identity", lambda _: SourceIdentity(before.cluster, {street.topic: before.topics[street.topic]})
        )
        street.stops(SourceChanged, "ends at offset 6, the tables hold it up to 10")
        assert recover(street.settings, choice=Choice.ACCEPT) == 0
        street.produce(10, 16)
        street.ingest()
        street.holds(16, dead=(4, 9, 10))
        street.ingest()
        street.holds(16, dead=(4, 9, 10))

    def test_skips_what_retention_took_and_records_it_as_lost(self, street: Street) -> None:
        street.produce(10, 20)
        admin = AdminClient({"bootstrap.servers": street.bench.broker})
        for future in admin.delete_records([TopicPartition(street.topic, 0, 15)]).values():
            future.result(30)
        street.stops(SourceChanged, "has lost the offsets 10 to 14")
        with pytest.raises(SettingsRefused, match=r"--choose anew does not answer this: .*; choose skip"):
            recover(street.settings, choice=Choice.ANEW)
        assert recover(street.settings, choice=Choice.SKIP) == 0
        street.ingest()
        assert street.numbers() == Counter(n for n in (*range(10), *range(15, 20)) if n % 5 != 4)
        chosen = [row for row in street.bench.rows(f"{street.namespace}.lakehouse_batches") if row["kind"] == "recover"]
        assert [(part["start"], part["end"], part["absent"]) for row in chosen for part in row["partitions"]] == [
            (10, 15, 5)
        ]
        assert "5 offsets are noted as lost" in chosen[0]["note"]
        (told,) = verify(street.settings)
        assert told.verdict
        assert (told.code, told.verdict.discarded, told.verdict.offsets) == (0, 5, 20), told.verdict.findings

    @pytest.mark.parametrize(
        ("what", "choice"),
        [
            ("dropped", Choice.ANEW),
            ("replaced", Choice.ACCEPT),
            ("rolled back", Choice.ANEW),
            ("rolled back", Choice.ACCEPT),
        ],
    )
    def test_accepts_or_refills_a_dropped_replaced_or_rolled_back_table(
        self, street: Street, what: str, choice: Choice
    ) -> None:
        """Records that are read again and are in the other table, or among the dead letters, stay as they are."""
        street.produce(10, 20)
        street.ingest()
        name = f"{street.namespace}.a"
        if what == "rolled back":
            street.bench.table(name).manage_snapshots().set_current_snapshot(
                street.bench.published(name)[1].snapshot_id
            ).commit()
        else:
            before = street.bench.table(name)
            street.bench.lake.drop_table(name)
            if what == "replaced":
                street.bench.lake.create_table(
                    name, before.schema(), partition_spec=before.spec(), properties=before.properties
                )
        street.stops(TableChanged, f"the table {name} ")
        left = {n for n in range(10 if what == "rolled back" else 0) if n % 2 == 0}
        with pytest.raises(SettingsRefused, match=f"--only elsewhere: nothing is asked about that, but about {name}"):
            recover(street.settings, choice=choice, only="elsewhere")
        assert recover(street.settings, choice=choice, only=name.rpartition(".")[2]) == 0
        street.produce(20, 25)
        street.ingest()
        street.ingest()
        if choice is Choice.ANEW:
            street.holds(25, dead=(4, 9, 14, 19, 24))
        else:
            kept = {n for n in range(25) if n % 2 == 1 or n >= 20 or n in left}
            assert street.numbers() == Counter(n for n in kept if n % 5 != 4)
            assert street.dead() == [4, 9, 14, 19, 24]

    @pytest.mark.parametrize("what", ["a hole in another table", "a copy with its rows"])
    def test_may_take_several_starts_to_read_again(self, street: Street, what: str) -> None:
        """The marks of each table are of an older generation, or were never there. The rows still show what is written,
        also to the start after the next."""
        street.produce(10, 40)
        street.ingest()
        bench, name = street.bench, f"{street.namespace}.a"
        before = bench.table(name)
        rows = before.scan().to_arrow()
        bench.lake.drop_table(name)
        if what == "a copy with its rows":
            bench.lake.create_table(
                name, before.schema(), partition_spec=before.spec(), properties=before.properties
            ).append(rows)
        else:
            bench.table(f"{street.namespace}.b").delete("n = 1")
        street.stops(TableChanged, f"the table {name} ")
        assert recover(street.settings, choice=Choice.ANEW) == 0
        few = street.settings.streams[0].model_copy(update={"max_records": 6})
        for _ in range(2):
            bench.ingest(street.settings.model_copy(update={"streams": (few,)}), max_batches=1)
        street.ingest()
        street.holds(40, dead=(4, 9, 14, 19, 24, 29, 34, 39))

    def test_doubles_nothing_after_the_history_was_cut(self, street: Street) -> None:
        """No mark of ours is left anywhere. The rows themselves still show what is written."""
        street.bench.lake.drop_table(f"{street.namespace}.lakehouse_batches")
        for name in (*TYPES, "dead_letters"):
            street.bench.compact_and_expire(f"{street.namespace}.{name}")
        street.produce(10, 15)
        street.stops(LedgerUnclear, "was expired with the mark")
        assert recover(street.settings, choice=Choice.ANEW) == 0
        street.ingest()
        street.holds(15, dead=(4, 9, 14))

    def test_lists_blockers_and_choices_as_json(self, street: Street, capsys: pytest.CaptureFixture[str]) -> None:
        street.bench.lake.drop_table(f"{street.namespace}.a")
        assert recover(street.settings, as_json=True) == UNANSWERED
        (told,) = json.loads(capsys.readouterr().out)
        assert told["pipeline"] == street.settings.name
        (question,) = told["questions"]
        assert (question["about"], question["done"]) == (f"{street.namespace}.a", None)
        assert set(question["choices"]) == {"accept", "anew"}
