"""Where a stream without a history begins, which topics it reads, and when it ends, on a real broker."""

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import duckdb
import pytest
from structlog.testing import capture_logs

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.pipeline import one_start
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.settings import Settings, SourceSettings
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.ingesting import Bench, running
from tests.services.kafka import create_topic, delete_topic, open_transaction, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
LANDING_S = 90.0


def events(numbers: Iterable[int], partition: int = 0) -> Iterator[tuple[Any, ...]]:
    """One a minute; the first at noon."""
    for n in numbers:
        yield None, json.dumps({"n": n}).encode(), None, int(NOON.timestamp() + 60 * n) * 1000, partition


def seen(bench: Bench, namespace: str, *tables: str) -> dict[tuple[str, int], list[int]]:
    """The offsets in these tables by topic and partition; one that is there twice is twice in the list."""
    found: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in sorted(bench.places(*(f"{namespace}.{table}" for table in tables)).elements()):
        found.setdefault((topic, partition), []).append(offset)
    return found


@pytest.fixture
def filled(bench: Bench, topic: str) -> str:
    """Ten records in partition 0, three in partition 1."""
    create_topic(bench.broker, topic, 2)
    produce(bench.broker, topic, [*events(range(10)), *events(range(3), 1)])
    return topic


CHOICES: list[tuple[dict[str, Any], int, int]] = [
    ({"start": NOON + dt.timedelta(minutes=3, seconds=1)}, 4, 3),
    ({"start": {"": {0: 7}}}, 7, 0),
    ({"start": "latest", "seek": {"": {1: 0}}}, 10, 1),
    ({"start": {"": {0: 7, 1: 2}}, "seek": {"": {0: 8}}}, 9, 2),
]


def has_looked(pipeline: Pipeline) -> bool:
    """Whether its query has asked the broker for records."""
    return any(stream.current and stream.current.looks for stream in pipeline.running)


class TestStart:
    @pytest.mark.parametrize(("choice", "first", "second"), CHOICES)
    def test_begins_where_the_settings_say_only_the_first_time(
        self, bench: Bench, filled: str, choice: dict[str, Any], first: int, second: int
    ) -> None:
        """A later start begins where the tables are, whatever the settings say then."""
        source = {"brokers": bench.broker}
        bench.ingest(bench.settings(filled, source={**source, **choice}))
        produce(bench.broker, filled, [*events([10]), *events([3], 1)])
        bench.ingest(bench.settings(filled, source={**source, "start": "earliest", "seek": {filled: {0: 10**6}}}))
        wanted = {(filled, 0): [*range(first, 11)], (filled, 1): [*range(second, 4)]}
        assert seen(bench, f"ns_{filled}", filled) == wanted

    def test_at_latest_still_reads_a_transaction_that_is_open(self, bench: Bench, topic: str) -> None:
        """As with every consumer that reads committed records, it begins at the last stable offset. From the high
        watermark nothing could be read until the transaction ends, and its own records never."""
        create_topic(bench.broker, topic)
        produce(bench.broker, topic, events(range(5)))
        settings = bench.settings(topic, source={"brokers": bench.broker, "start": "latest"})
        pipeline = bench.pipeline(settings, drain=False)
        with open_transaction(bench.broker, topic, events(range(5, 55))) as transaction, capture_logs() as logged:
            produce(bench.broker, topic, events([55]))
            with running(pipeline):
                assert until(lambda: has_looked(pipeline), LANDING_S, 0.05), logged
                transaction.commit_transaction()
                assert until(lambda: pipeline.landed > 0, LANDING_S, 0.05), logged
        assert logged
        assert [line for line in logged if line["log_level"] != "info"] == []
        bench.ingest(settings)
        assert seen(bench, f"ns_{topic}", topic) == {(topic, 0): [*range(5, 56)]}

    @pytest.mark.parametrize(
        ("choice", "says"),
        [
            ({"start": {"": {0: 11}}}, "`source.start` names offset 11 of topic .* partition 0, which holds 0 to 9"),
            ({"seek": {"": {2: 1}}}, "`source.seek` names partition 2 of topic .*, whose partitions are 0 to 1"),
            ({"start": {"typo": {0: 1}}}, "`source.start` names the topic typo, which no stream reads"),
        ],
    )
    def test_at_offsets_that_do_not_exist_is_refused(
        self, bench: Bench, filled: str, choice: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(SettingsRefused, match=says):
            bench.ingest(bench.settings(filled, source={"brokers": bench.broker, **choice}))

    def test_without_a_settings_file_writes_into_the_current_folder(
        self, bench: Bench, filled: str, tmp_path: Path, jars_folder: Path | None
    ) -> None:
        """With the embedded catalog in the same folder, and hidden partitions by day."""
        words = ("run", "--topics", filled, "--brokers", bench.broker, "--until-latest", "--event-time", "at")
        produce(bench.broker, filled, [(None, json.dumps({"n": 10, "at": NOON.isoformat()}).encode(), None, None, 0)])
        environment = {**os.environ, **({"LAKEHOUSE_INGEST_JARS": str(jars_folder)} if jars_folder else {})}
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse_ingest", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * LANDING_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert [each.name for each in tmp_path.iterdir()] == ["lakehouse"]
        (landed,) = tmp_path.glob(f"lakehouse/**/{filled}*/**/event_time_day=2026-11-18/*.parquet")
        assert duckdb.sql(f"SELECT n FROM '{landed}'").fetchall() == [(10,)]
        (dead,) = tmp_path.glob("lakehouse/**/dead_letters*/**/*.parquet")
        assert duckdb.sql(f"SELECT reason, count(*) FROM '{dead}' GROUP BY 1").fetchall() == [("wrong_event_time", 13)]


def table_holds(bench: Bench, topic: str, landed: dict[tuple[str, int], list[int]]) -> bool:
    name = f"ns_{topic}.{topic}"
    return bench.lake.table_exists(name) and seen(bench, f"ns_{topic}", topic) == landed


class TestTopic:
    def test_that_was_left_out_goes_on_where_it_stopped(self, bench: Bench, filled: str) -> None:
        """Also if no table holds anything of it: then only the batch log knows where it stopped."""
        other = f"{filled}_other"
        create_topic(bench.broker, other, 1)

        def ingest(*topics: str) -> None:
            settings = bench.settings(
                filled,
                source={"brokers": bench.broker, "start": "latest"},
                stream={"topics": [*topics]},
                table={"table": "all"},
                ledger={"keep_snapshots": 2, "keep_for": 0},
            )
            bench.ingest(settings, accept_changes=True)

        ingest(filled, other)
        for number in range(3):
            produce(bench.broker, filled, events([10 + number]))
            produce(bench.broker, other, events([number]))
            ingest(filled)
        ingest(filled, other)
        assert seen(bench, f"ns_{filled}", "all") == {(filled, 0): [10, 11, 12], (other, 0): [0, 1, 2]}

    def test_that_was_left_out_may_be_deleted(self, bench: Bench, filled: str) -> None:
        """The ledger still has it, but the broker is not asked for it any more."""
        other = f"{filled}_other"
        create_topic(bench.broker, other)
        produce(bench.broker, other, events([0]))
        bench.ingest(bench.settings(filled, stream={"topics": [filled, other]}, table={"table": "all"}))
        delete_topic(bench.broker, other)
        produce(bench.broker, filled, events([10]))
        alone = bench.pipeline(bench.settings(filled, table={"table": "all"}), accept_changes=True)
        with capture_logs() as logged:
            alone.run()
        assert [line for line in logged if line["log_level"] != "info" and line["event"] != "settings_changed"] == []
        assert seen(bench, f"ns_{filled}", "all") == {
            (filled, 0): [*range(11)],
            (filled, 1): [0, 1, 2],
            (other, 0): [0],
        }

    def test_that_is_created_later_is_read_if_the_pattern_matches(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the same run, each record once. A topic whose name only begins alike is not read."""
        monkeypatch.setattr(one_start, "TOPICS_S", 0.5)
        first, second, later, other = (f"{topic}_{name}" for name in ("a", "b", "c", "a_not"))
        pipeline = bench.pipeline(matching(bench, topic, every="1h", idle="1s"), drain=False)
        with running(pipeline):
            for name in (first, second, other):
                create_topic(bench.broker, name)
                produce(bench.broker, name, events(range(5)))
            assert until(lambda: landed(bench, topic) == 10, LANDING_S)
            create_topic(bench.broker, later)
            produce(bench.broker, later, events(range(7)))
            assert until(lambda: landed(bench, topic) == 17, LANDING_S)
        wanted = {(first, 0): [*range(5)], (later, 0): [*range(7)], (second, 0): [*range(5)]}
        assert seen(bench, f"ns_{topic}", first, second, later) == wanted
        bench.ingest(matching(bench, topic))  # another start has nothing to ask, and nothing to add
        assert seen(bench, f"ns_{topic}", first, second, later) == wanted


class TestStream:
    def test_publishes_the_group_offsets_of_its_last_batch(self, bench: Bench, filled: str) -> None:
        """Group offsets are published only now and then, and no batch follows the last one of an idle topic."""
        group = Kafka(SourceSettings(brokers=bench.broker), [filled])
        settings = bench.settings(filled, ledger={"batch_every": 6})
        with running(bench.pipeline(settings, drain=False)):
            for count in (11, 12):
                produce(bench.broker, filled, events([count - 1]))
                ends = {(filled, 0): count, (filled, 1): 3}
                landed = {(filled, 0): [*range(count)], (filled, 1): [*range(3)]}
                assert until(lambda landed=landed: table_holds(bench, filled, landed), LANDING_S, 0.05)  # type: ignore[misc]
            assert until(lambda: group.committed(filled.lower()) == ends, LANDING_S)

    def test_ends_after_the_given_number_of_batches(self, bench: Bench, filled: str) -> None:
        """And the next start goes on after them."""
        settings = bench.settings(filled, stream={"max_records": 4})
        pipeline = bench.ingest(settings, drain=False, max_batches=2)
        assert pipeline.landed == 2
        assert len(bench.rows(f"ns_{filled}.{filled}")) == 8
        bench.ingest(settings)
        assert seen(bench, f"ns_{filled}", filled) == {(filled, 0): [*range(10)], (filled, 1): [0, 1, 2]}

    def test_without_a_matching_topic_has_nothing_to_drain(self, bench: Bench, topic: str) -> None:
        assert bench.ingest(matching(bench, topic)).landed == 0

    def test_without_a_matching_topic_waits_and_says_so_once(
        self, bench: Bench, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(one_start, "TOPICS_S", 0.1)
        with running(bench.pipeline(matching(bench, topic), drain=False)):
            sleep(1)
        assert capsys.readouterr().out.count("no_topic_yet") == 1


def matching(bench: Bench, topic: str, **stream: Any) -> Settings:
    return bench.settings(topic, stream={"topics": [], "topic_pattern": f"{topic}_.", **stream})


def landed(bench: Bench, topic: str) -> int:
    namespace = f"ns_{topic}"
    tables = bench.lake.list_tables(namespace) if bench.lake.namespace_exists(namespace) else []
    return sum(len(bench.rows(f"{namespace}.{name}")) for _, name in tables if name.startswith(topic))
