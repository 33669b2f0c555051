"""Everything at once, for a given time: `make soak MINUTES=60`.

In the first half the pipeline is killed, ended and replaced as well; in the second half one start has to live through
all the rest, and is measured meanwhile: what it takes of the machine must not grow.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import CommitFailedException
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.embedded.broker import EmbeddedBroker
from lakehouse_ingest.environment.embedded.claim import any_free_port
from lakehouse_ingest.environment.spark_names import LAKE
from tests.services.dice import Dice
from tests.services.doors import in_settings
from tests.services.faulty import AFTER, BEFORE, NOTHING, RESET, Faulty, When
from tests.services.feeding import BROKEN_EVERY, Feeder
from tests.services.gauge import Trend, sample, trends
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, settings_text, until
from tests.services.readers import Coordinates, Reader, local

MINUTES = float(os.environ.get("LAKEHOUSE_TEST_SOAK_MINUTES") or 6)
REPORT = os.environ.get("LAKEHOUSE_TEST_SOAK_REPORT")
pytestmark = [
    pytest.mark.live,
    pytest.mark.faults,
    pytest.mark.long,
    pytest.mark.timeout(60 * MINUTES + 1800),
]

RATE = 600.0
PARTITIONS = 3
TYPES = ("reading", "alarm")
TABLES = (*TYPES, "dead_letters")
PAUSE = (2.0, 12.0)  # seconds between two troubles
SAMPLE = 5.0
# Within this time a start takes what it needs, as the threads of Spark's pools up to their limits; the rest is growth.
WARM = 300.0
LARGEST = 2 * 2**20  # of a table's metadata
FOREIGN = "of somebody else"


def event(number: int) -> bytes:
    if number % BROKEN_EVERY == BROKEN_EVERY // 2:
        return b'{"n": '
    return json.dumps({"n": number, "type": TYPES[number % len(TYPES)], "text": f"event {number}"}).encode()


@dataclass
class Soak:
    """The pipeline that runs just now, and who may do something to it."""

    pipelines: Pipelines
    settings: str
    kafka: EmbeddedBroker
    catalog: Faulty
    reader: Reader
    spark: SparkSession
    dice: Dice
    done: Counter[str] = field(default_factory=Counter)
    running: Running = field(init=False)
    _columns: int = 0

    def start(self) -> None:
        self.running = self.pipelines.start(self.settings)

    def trouble(self, *, deadly: bool) -> None:
        """One of all that there are; `deadly`: or an end of the pipeline itself."""
        chosen = self.dice.choice([*self._survivable, *(self._deadly if deadly else ())])
        print(f"{time.strftime('%H:%M:%S')} {chosen.__name__.strip('_')}")
        chosen()
        self.done[chosen.__name__.strip("_")] += 1

    @property
    def _survivable(self) -> tuple[Callable[[], None], ...]:
        catalog = (self._catalog_refuses, self._catalog_is_slow)
        company = (self._compaction, self._expiry, self._foreign_rows, self._a_column_more)
        # Less often: what takes them longest.
        often = (*catalog, *company)
        return (*often, *often, self._broker_restarts, self._broker_is_killed)

    @property
    def _deadly(self) -> tuple[Callable[[], None], ...]:
        return (self._killed, self._killed, self._killed, self._ended, self._replaced_while_it_slept)

    # -- ends of the pipeline -----------------------------------------------------------------------------

    def _killed(self) -> None:
        self.running.kill()
        self.start()

    def _ended(self) -> None:
        self.running.send(SIGTERM)
        assert self.running.wait(120) in {0, -SIGTERM}, self.running.tail()  # so early that it has no say yet
        self.start()

    def _replaced_while_it_slept(self) -> None:
        if not self.running.events("started"):
            return
        sleeper = self.running
        sleeper.freeze()
        self.start()
        self.running.wait_for("batch_landed", seconds=240)
        sleeper.thaw()
        assert until(lambda: sleeper.ended, 120), sleeper.tail()

    # -- of those whom it depends on ----------------------------------------------------------------------

    def _catalog_refuses(self) -> None:
        status = self.dice.choice([500, 502, 503, 504, 429, 409, RESET])
        when: When = BEFORE if status == HTTPStatus.CONFLICT else self.dice.choice((BEFORE, AFTER))
        path = self.dice.choice(["", *(f"/tables/{name}$" for name in (*TABLES, "lakehouse_batches"))])
        method = self.dice.choice(["POST", "GET", "POST|GET"])
        self.catalog.heal()
        self.catalog.fail(status, when=when, method=method, path=path, times=self.dice.randint(1, 4))

    def _catalog_is_slow(self) -> None:
        self.catalog.heal()
        self.catalog.fail(NOTHING, method="POST|GET", times=self.dice.randint(1, 6), delay=self.dice.uniform(0.2, 3))

    def _broker_restarts(self) -> None:
        self.kafka.stop()
        self.kafka.start()

    def _broker_is_killed(self) -> None:
        assert self.kafka.java
        os.kill(self.kafka.java, SIGKILL)
        assert until(lambda: not self.kafka.running, 30)
        self.kafka.stop()
        self.kafka.start()

    # -- company ------------------------------------------------------------------------------------------

    def _compaction(self) -> None:
        self._called("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def _expiry(self) -> None:
        self._called("expire_snapshots", "retain_last => 1, older_than => now()")

    def _called(self, procedure: str, words: str) -> None:
        if not self.reader.exists(name := self.dice.choice(TABLES)):
            return
        try:
            self.spark.sql(f"CALL {LAKE}.system.{procedure}(table => '{self.reader.namespace}.{name}', {words})")
        # We came first: that is their trouble. So it is if we have expired what they were about to expire: Iceberg
        # lets both commit, and each deletes the files of snapshots that are gone while the other lists them.
        except (PySparkException, Py4JJavaError) as refused:
            if isinstance(refused, Py4JJavaError) and "NotFoundException" not in str(refused):
                raise
            print(f"  refused: {str(refused).splitlines()[0][:160]}")

    def _foreign_rows(self) -> None:
        name = self.dice.choice(TYPES)
        if not self.reader.exists(name):
            return
        table = self.reader.table(name)
        source = {"topic": FOREIGN, "partition": 0, "offset": self.done.total(), "index": 0, "log": FOREIGN}
        shape = table.schema().as_arrow()
        row = {"n": -1, "_source": {key: source.get(key) for key in _names(shape.field("_source").type)}}
        rows = pa.Table.from_pylist([{field: row.get(field) for field in shape.names}], schema=shape)
        self._committed(lambda: table.append(rows))

    def _a_column_more(self) -> None:
        if self._columns >= len(TYPES) * 3 or not self.reader.exists(name := self.dice.choice(TYPES)):
            return
        self._columns += 1
        from pyiceberg.types import StringType  # noqa: PLC0415

        change = self.reader.table(name).update_schema()
        self._committed(lambda: change.add_column(f"theirs_{self._columns}", StringType()).commit())

    def _committed(self, commit: Callable[[], Any]) -> None:
        try:
            commit()
        except CommitFailedException as refused:
            print(f"  refused: {str(refused)[:160]}")


class TestSoak:
    def test_loses_and_doubles_nothing_and_nothing_grows(
        self,
        spark: SparkSession,
        rest_uri: str,
        own_broker: EmbeddedBroker,
        pipelines: Pipelines,
        dice: Dice,
    ) -> None:
        topic = f"soak_{dice.randrange(10**9)}"
        brokers = own_broker.start()
        create_topic(brokers, topic, PARTITIONS)
        reader = Reader(rest_uri, topic)
        feeder = Feeder(brokers, topic, PARTITIONS, None, event, RATE, transactions=False)
        with Faulty(rest_uri) as catalog:
            settings = settings_text(
                topic,
                brokers,
                catalog.uri,
                topic,
                batch_every="2s",
                keep_snapshots=30,
                retry="300s",
                type_from="field:type",
                table='table = "{type}"\nhints = { n = "long" }',
            )
            soak = Soak(pipelines, settings, own_broker, catalog, reader, spark, dice)
            feeder.start()
            soak.start()
            began, half = time.monotonic(), 30 * MINUTES
            for _ in _until(began + half, dice):
                _alive(soak, feeder)
                soak.trouble(deadly=True)
            soak.running.wait_for("started", seconds=300)
            samples: list[tuple[float, dict[str, float]]] = []
            largest, deaths = 0, len(pipelines.started)
            for _ in _until(began + 2 * half, dice):
                _alive(soak, feeder)
                soak.trouble(deadly=False)
                if taken := sample(soak.running):
                    samples.append((time.monotonic(), taken))
                largest = max(largest, _metadata(reader))
            catalog.heal()
            feeder.finish()
            took = time.monotonic() - began
            assert len(pipelines.started) == deaths
            soak.running.send(SIGTERM)
            assert soak.running.wait(120) == 0, soak.running.tail()
            pipelines.drain(settings, 600)
        found = _ours(reader.by_pyiceberg(*TABLES))
        warm = [each for each in samples if each[0] - samples[0][0] >= min(WARM, half / 2)]
        grown = trends(warm)
        _report(feeder, found, soak, grown, largest, took)
        assert found == feeder.landing
        assert _ours(reader.by_duckdb(*TABLES)) == feeder.landing
        directly = "\n".join(f'{key} = "{text}"' for key, text in in_settings(rest_uri).items())
        assert _verified(pipelines, settings.replace(f'uri = "{catalog.uri}"', directly)) == 0
        assert largest < LARGEST
        assert not [name for name, trend in grown.items() if not trend.is_flat(name)], grown


@pytest.fixture
def own_broker(tmp_path: Path, jars_folder: Path | None) -> Iterator[EmbeddedBroker]:
    """It has to be stopped, and killed; at a port that nobody else takes meanwhile for being the usual one."""
    kafka = EmbeddedBroker(tmp_path / "broker", any_free_port(), jars=jars_folder)
    try:
        yield kafka
    finally:
        kafka.stop()


def _until(deadline: float, dice: Dice) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
        time.sleep(dice.uniform(*PAUSE))


def _alive(soak: Soak, feeder: Feeder) -> None:
    assert not soak.running.ended, soak.running.tail()
    assert feeder.producing


def _ours(found: Coordinates) -> Coordinates:
    return Counter({at: count for at, count in found.items() if at[0] != FOREIGN})


def _names(struct: pa.DataType) -> list[str]:
    return [struct.field(number).name for number in range(struct.num_fields)]


def _metadata(reader: Reader) -> int:
    """The size of the largest metadata file that a table has now."""
    there = [name for name in (*TABLES, "lakehouse_batches") if reader.exists(name)]
    return max((local(reader.table(name).metadata_location).stat().st_size for name in there), default=0)


def _verified(pipelines: Pipelines, settings: str) -> int:
    running = pipelines.start(settings, verb="verify")
    code = running.wait(300)
    print(running.tail())
    return code


def _report(feeder: Feeder, found: Coordinates, soak: Soak, grown: dict[str, Trend], largest: int, took: float) -> None:
    report = {
        "seed": soak.dice.drawn,
        "minutes": round(took / 60, 1),
        "events": feeder.sent,
        "troubles": dict(sorted(soak.done.items())),
        "lost": (feeder.landing - found).total(),
        "doubled": (found - feeder.landing).total(),
        "largest_metadata_bytes": largest,
        "in_the_second_half": {
            name: {"usual": trend.usual, "growth": trend.growth} for name, trend in sorted(grown.items())
        },
    }
    print(json.dumps(report, indent=2))
    if REPORT:
        file = Path(REPORT)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(report, indent=2) + "\n")
