"""`plan` says what `run` would do to the catalog, and changes nothing itself."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import SystemRandom
from signal import SIGINT
from time import sleep
from typing import Any

import pytest

import catalog
from lakehouse_ingest.cli.verbs.plan import WOULD_CHANGE, code_of
from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.errors import TableChanged
from lakehouse_ingest.pipeline.dry_run import Foresight, foresee, is_changed
from lakehouse_ingest.settings import Settings, SourceSettings
from lakehouse_ingest.stages.sources.kafka.source import Kafka
from tests.services.doors import connection_to
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import JAVA_OPTIONS, STARTING, Pipelines, is_spark, settings_text, until
from tests.services.random_topics import RandomTopic, drawn

pytestmark = pytest.mark.live

TOPICS = int(os.environ.get("LAKEHOUSE_TEST_TOPICS", "4"))
SEED = int(os.environ.get("LAKEHOUSE_TEST_SEED") or SystemRandom().randrange(10**6))
MANY = 40  # random topics, of which some are of each kind
KINDS = ("made", "changed", "left", "refused")
States = Mapping[str, catalog.TableState]
# What the landing itself notes in a table's properties.
BOOKKEEPING = ("lakehouse.table.", "lakehouse.epoch.", "lakehouse.enforces.", "published.")


@pytest.fixture(scope="module")
def kinds(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What the random topics came to: said at the end, lest all of them be of one kind."""
    found: Counter[str] = Counter()
    yield found
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture
    with capture.global_and_fixture_disabled():
        print(f"\nof {found.total()} random topics: {', '.join(f'{n} {kind}' for kind, n in found.most_common())}")
    # Of a few they may all be of one kind.
    assert found.total() < MANY or 2 * found["refused"] < found.total()
    assert found.total() < MANY or all(found[kind] for kind in KINDS)


def namespaces(bench: Bench) -> set[str]:
    return {".".join(each) for each in bench.lake.list_namespaces()}


def states(bench: Bench, topic: str) -> States:
    lake = catalog.connect(connection_to(bench.uri))
    if not catalog.has_namespace(lake, f"ns_{topic}"):
        return {}
    return {name: catalog.load(lake, name) for name in catalog.names_in(lake, f"ns_{topic}")}


def shape(state: catalog.TableState) -> dict[str, Any]:
    """What plan speaks of."""
    told = {key: text for key, text in state.properties.items() if not key.startswith(BOOKKEEPING)}
    return {
        "columns": state.columns,
        "partitions": state.partitions,
        "sort": state.sort,
        "properties": told,
        "version": state.format_version,
        "identifier": state.identifier,
    }


def planned(bench: Bench, topic: str, settings: Settings, sample: int | None = None) -> Foresight:
    """Nothing at all is another afterwards."""
    before = states(bench, topic)
    found = foresee(bench.pipeline(settings), sample)
    after = states(bench, topic)
    assert {name: each.metadata_location for name, each in after.items()} == {
        name: each.metadata_location for name, each in before.items()
    }
    assert bench.lake.namespace_exists(f"ns_{topic}") == bool(before)
    return found


def is_as_foreseen(found: Foresight, before: States, after: States) -> None:
    """What was made or changed, and nothing else: what nobody foresaw is as it was, or not there."""
    foreseen = {**before, **{each.after.name: each.after for each in found.tables}}
    assert {name: shape(each) for name, each in foreseen.items()} == {name: shape(each) for name, each in after.items()}
    others = {name for name, each in after.items() if name not in before or shape(before[name]) != shape(each)}
    assert {each.after.name for each in found.tables if is_changed(each)} == others


def settings_of(bench: Bench, topic: str, drawn: RandomTopic) -> Settings:
    plain = bench.settings(topic, stream=drawn.stream).model_dump(exclude_unset=True)
    plain["streams"][0]["tables"] = drawn.tables
    return Settings.model_validate(plain)


def kind_of(found: Foresight) -> str:
    if found.streams[0].refusal:
        return "refused"
    return "made" if all(each.before is None for each in found.tables) else "changed" if found.changed else "left"


def outcomes(bench: Bench, topic: str) -> Counter[str]:
    """What the batch record says of all batches so far."""
    found: Counter[str] = Counter()
    for row in bench.rows(f"ns_{topic}.lakehouse_batches"):
        found.update(dict(row["reasons"] or ()))
        for part in row["partitions"] or ():
            found.update({outcome: part[outcome] for outcome in ("landed", "filtered")})
    return +found


class TestPlan:
    @pytest.mark.parametrize("number", range(TOPICS))
    def test_of_all_records_is_what_a_run_then_does(self, bench: Bench, number: int, kinds: Counter[str]) -> None:
        """Of any topic: the tables as they would be are the tables as they are afterwards, and so are the dead.

        All tables, those of the dead letters and of the batch record too; and where the run is refused they stay.
        """
        seed = SEED + number
        print(f"LAKEHOUSE_TEST_SEED={seed}")
        topic, random = f"random_{seed}", drawn(seed)
        create_topic(bench.broker, topic, 1 + seed % 2)
        settings = settings_of(bench, topic, random)
        if random.others:
            bench.spark.sql(f"CREATE NAMESPACE {LAKE}.ns_{topic}")
            bench.spark.sql(
                f"CREATE TABLE {LAKE}.ns_{topic}.events ({random.others}) PARTITIONED BY (days(event_time))"
            )
        if random.earlier:
            produce(bench.broker, topic, [(None, value) for value in random.earlier])
            bench.ingest(settings)
        produce(bench.broker, topic, [(None, value) for value in random.values])
        counted = outcomes(bench, topic) if random.earlier else Counter[str]()

        found, before, there = planned(bench, topic, settings), states(bench, topic), namespaces(bench)
        (stream,) = found.streams
        kinds[kind_of(found)] += 1
        if stream.refusal:
            with pytest.raises(type(stream.refusal)) as refusal:
                bench.ingest(settings)
            assert str(refusal.value) == str(stream.refusal)
        else:
            bench.ingest(settings)
        after = states(bench, topic)
        is_as_foreseen(found, before, after)
        assert {*found.namespaces} == namespaces(bench) - there
        if stream.refusal:
            assert {name: shape(after[name]) for name in before} == {name: shape(each) for name, each in before.items()}
            return
        assert stream.whole
        tally = stream.seen.tally
        told = Counter(tally.dead) + Counter({each: tally.total(each) for each in ("landed", "filtered")})
        assert +told == outcomes(bench, topic) - counted
        if seed % 3 == 0:
            again = planned(bench, topic, settings)
            assert not again.changed
            assert again.streams[0].there == 0

    def test_of_a_sample_says_how_much_it_saw_and_shows_a_refusal(self, bench: Bench, topic: str) -> None:
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, [(None, b'{"n": %d, "ts_ms": 1750000000000}' % n) for n in range(100)])
        (stream,) = planned(bench, topic, bench.settings(topic), sample=30).streams
        assert (stream.seen.offsets, stream.there, stream.whole) == (30, 100, False)
        bench.ingest(bench.settings(topic))
        moved = bench.settings(topic, table={"partition_by": ["hour(event_time)"]})
        found = planned(bench, topic, moved)
        assert code_of(found) == TableChanged.exit_code
        assert "is partitioned by [day(event_time)]" in str(found.streams[0].refusal)

    def test_by_the_command_creates_not_even_the_warehouse_folder(
        self, bench: Bench, topic: str, tmp_path: Path
    ) -> None:
        """From an empty folder, for machines; nothing but JSON is said, no group has offsets."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, [(None, b'{"n": 1, "ts_ms": 1750000000000}'), (None, b"{")])
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "lakehouse_ingest",
                "plan",
                "--topics",
                topic,
                "--brokers",
                bench.broker,
                "--json",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
        )
        assert ended.returncode == WOULD_CHANGE, ended.stderr
        told = json.loads(ended.stdout)
        assert told["namespaces"] == ["ingest"]
        assert {each["table"]: each["change"] for each in told["tables"]} == dict.fromkeys(
            (f"ingest.{name}" for name in (topic, "dead_letters", "lakehouse_batches")), "make"
        )
        (stream,) = told["streams"]
        assert (stream["records_seen"], stream["landed"], stream["dead"]) == (2, 1, {"broken_json": 1})
        assert stream["first_dead"]["broken_json"]["offset"] == 1
        assert list(tmp_path.iterdir()) == []
        reader = Kafka(SourceSettings(brokers=bench.broker), [topic])
        assert reader.committed(topic) == {}

    @pytest.mark.parametrize("seconds", [0.0, 3.0, 8.0])
    def test_that_is_interrupted_prints_nothing_and_leaves_no_process(
        self, bench: Bench, topic: str, tmp_path: Path, jars_folder: Path | None, seconds: float
    ) -> None:
        """Ctrl-C while Spark starts, while the start offsets are looked up, or in a batch. Only Spark's log lines are
        printed, and nothing about the catalog."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, ((None, b'{"n": 1}') for _ in range(100_000)))
        with Pipelines(tmp_path, jars_folder) as pipelines:
            text = settings_text("plan", bench.broker, bench.uri, f"ns_{topic}", topic=topic, max_records=500)
            running = pipelines.start(text, "--all", verb="plan")
            assert until(lambda: running.ended or any(map(is_spark, running.family())), STARTING)
            sleep(seconds)
            running.send_to_group(SIGINT)
            assert running.wait() == 130
            assert running.last_words() == []
            assert "Traceback" not in running.tail()
            assert until(lambda: not running.family(), STARTING), "its JVM outlives it"
