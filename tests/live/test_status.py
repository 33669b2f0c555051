"""`lakehouse-ingest status` shows what the tables, their metadata and the broker say."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse_ingest.operations.status import look
from tests.services.command import Command
from tests.services.doors import as_flags
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events

pytestmark = pytest.mark.live


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def words(bench: Bench, topic: str) -> list[str]:
    flags = {"--name": topic.lower(), "--topics": topic, "--brokers": bench.broker, "--namespace": f"ns_{topic}"}
    return [*(word for pair in flags.items() for word in pair), *as_flags(bench.uri)]


class TestStatus:
    def test_says_what_has_landed_and_what_waits(self, bench: Bench, topic: str, command: Command) -> None:
        create_topic(bench.broker, topic, 2)
        produce(bench.broker, topic, [*events(range(20), 2), (None, b"{")])
        bench.ingest(bench.settings(topic))
        produce(bench.broker, topic, events(range(20, 27), 2))
        before = [bench.table(f"ns_{topic}.{name}").metadata_location for name in (topic, "lakehouse_batches")]
        said = command("status", *words(bench, topic), "--json")
        assert said.code == 0, said.err
        (stream,) = json.loads(said.out)
        assert sum(part["landed"] for part in stream["partitions"]) == 21
        assert sum(part["end"] for part in stream["partitions"]) == 28
        assert (stream["lag"], stream["epoch"]) == (7, 1)
        tables: dict[str, Any] = {each["name"]: each for each in stream["tables"]}
        assert tables[f"ns_{topic}.{topic}"]["rows"] == len(bench.rows(f"ns_{topic}.{topic}")) == 20
        assert tables[f"ns_{topic}.dead_letters"]["rows"] == 1
        assert tables[f"ns_{topic}.{topic}"]["files"] == len(bench.table(f"ns_{topic}.{topic}").inspect.files())
        batch = stream["last_batch"]
        assert (batch["counts"]["received"], batch["counts"]["landed"], batch["counts"]["dead"]) == (21, 20, 1)
        assert batch["reasons"] == {"broken_json": 1}
        after = [bench.table(f"ns_{topic}.{name}").metadata_location for name in (topic, "lakehouse_batches")]
        assert before == after, "it changes nothing"
        for_people = command("status", *words(bench, topic))
        assert "21 received = 20 landed + 1 dead [1 broken_json]" in " ".join(for_people.out.split())

    @pytest.mark.parametrize("keep", [100, 2])
    def test_finds_the_last_batch_behind_starts_that_committed_none(self, bench: Bench, topic: str, keep: int) -> None:
        """Also if the batch log no longer keeps the snapshot of that batch."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(3), 1))
        for _ in range(3):
            bench.ingest(bench.settings(topic, ledger={"keep_snapshots": keep}))
        (found,) = look(bench.settings(topic))
        assert found.standing
        assert found.standing.last_batch
        assert found.standing.last_batch.counts["landed"] == 3
        assert found.standing.epoch == 3
        assert found.standing.lag == 0

    def test_leaves_the_lag_open_while_the_broker_is_away(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakehouse_ingest.stages.sources.kafka.source.ASK_S", 1.0)
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(3), 1))
        bench.ingest(bench.settings(topic))
        (found,) = look(bench.settings(topic, source={"brokers": "127.0.0.1:1"}))
        assert found.standing
        assert found.standing.lag is None
        assert [part.landed for part in found.standing.partitions] == [3]
        assert "127.0.0.1:1" in found.silent

    def test_of_a_pipeline_without_a_commit_is_no_error(self, bench: Bench, topic: str, command: Command) -> None:
        create_topic(bench.broker, topic, 1)
        said = command("status", *words(bench, topic))
        assert said.code == 0
        assert "has not committed anything yet" in said.out

    def test_without_a_warehouse_is_one_sentence(self, topic: str, command: Command, tmp_path: Any) -> None:
        said = command("status", "--topics", topic, "--warehouse", tmp_path / "gone")
        assert said.code == 2
        assert said.sentence.startswith("`catalog.path` (--warehouse) is ")

    def test_names_a_dropped_table_until_a_person_accepts_it(self, bench: Bench, topic: str, command: Command) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(3), 1))
        bench.ingest(bench.settings(topic))
        bench.lake.drop_table(f"ns_{topic}.{topic}")
        (stream,) = json.loads(command("status", *words(bench, topic), "--json").out)
        assert stream["gone"] == [f"ns_{topic}.{topic}"]
        assert "not there any more; `lakehouse-ingest recover` says" in command("status", *words(bench, topic)).out
        assert command("recover", *words(bench, topic), "--choose", "accept").code == 0
        assert "any more" not in command("status", *words(bench, topic)).out


class TestCommand:
    def test_files_lists_the_others_if_one_table_cannot_be_listed(
        self, bench: Bench, topic: str, command: Command
    ) -> None:
        """Another program's table with a dot in its name comes first, and looks like a namespace."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events(range(3), 1))
        bench.ingest(bench.settings(topic))
        bench.lake.create_table((f"ns_{topic}", "A.b"), Schema(NestedField(1, "n", LongType())))
        flags = (*as_flags(bench.uri), "--namespace", f"ns_{topic}")
        said = command("files", *flags)
        assert said.code == 2
        assert said.sentence.endswith("; not listed, or not all of it: 1 of 4 tables")
        assert {Path(line).parents[2].name for line in said.out.splitlines()} == {topic, "lakehouse_batches"}
        assert command("files", topic, *flags).code == 0
        assert command("files", f"ns_{topic}.A.b", *flags).code == 2
        nowhere = command("files", *as_flags(bench.uri), "--namespace", "nowhere").sentence
        assert nowhere == "there is no namespace nowhere: see `catalog.namespace` (--namespace)"

    def test_answers_with_the_flags_that_a_person_gave(self, bench: Bench, topic: str, command: Command) -> None:
        """Not a setting that was never set, and no namespace where a table's name is enough."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, [(None, b'{"n": 1, "color": "red"}')])
        columns = [{"name": "n", "type": "long"}]
        bench.ingest(bench.settings(topic, table={"contract": "freeze", "rescue": True, "columns": columns}))
        promoted = command("promote", *words(bench, topic), "--table", topic, "--field", "color", "--type", "colour")
        assert promoted.sentence.startswith("--type gives color the type 'colour', which is not known")
        assert command("promote", *words(bench, topic), "--table", topic, "--field", "").sentence == (
            "--table and --field each need a name"
        )
        other = ["--name", "other", *words(bench, topic)[2:]]
        assert command("adopt", *other, "--from-table", "").sentence == "--from-table is empty: give the name"
        adopted = command("adopt", *other, "--from-table", topic)
        assert f"no snapshot of ns_{topic}.{topic} says how far its writer had come" in adopted.sentence

    @pytest.mark.parametrize("verb", ["status", "verify", "recover", "acknowledge", "adopt", "files"])
    def test_does_not_turn_a_folder_into_a_warehouse(self, tmp_path: Path, command: Command, verb: str) -> None:
        topics = () if verb == "files" else ("--topics", "t")
        said = command(verb, *topics, "--warehouse", tmp_path)
        assert (said.code, [*tmp_path.iterdir()]) == (2, [])
        assert "where no warehouse is" in said.sentence
