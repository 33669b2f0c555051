"""SIGKILL at any moment: every offset ends in exactly one place."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.feeding import Feeder
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, settings_text, until
from tests.services.readers import Reader, data_files
from tests.services.records import check_batch_record

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(600)]

EVENTS, PARTITIONS = 200_000, 3
AT_LEAST_BETWEEN, AT_MOST = 3, 16
PLACES = ("events", "dead_letters")
STARTING, ELSEWHERE = "while starting", "between landings"
# The two that lie between the first data file of a batch and its publication.
WRITING, STAGED = "while a file was written", "after staging, before publication"


@dataclass(frozen=True)
class Moment:
    """When to kill: so long after the process began, after it stands, or after it began its n-th data file."""

    since: str  # process, stands, file
    seconds: float
    files: int = 0

    def __str__(self) -> str:
        return f"{self.since} {self.files or ''} + {self.seconds:.2f} s"


def moments(dice: random.Random, fell: list[str]) -> Iterator[Moment]:
    """Half of them wait for a data file, the others fall where they fall; more when too few hit a landing."""
    after_file = [Moment("file", dice.uniform(0.0, 0.15), dice.randint(1, 6)) for _ in range(6)]
    after_start = [Moment("stands", dice.uniform(0.0, 10.0)) for _ in range(3)]
    blind = [Moment("process", dice.uniform(0.5, 12.0)) for _ in range(2)]
    chosen = [*after_file, *after_start, *blind]
    dice.shuffle(chosen)
    yield from chosen
    while _between(fell) < AT_LEAST_BETWEEN and len(fell) < AT_MOST:
        yield Moment("file", dice.uniform(0.0, 0.03), 1)


def test_every_offset_is_in_exactly_one_place_after_kills_at_any_moment(
    broker: str, rest_uri: str, warehouse: Path, pipelines: Pipelines, dice: random.Random
) -> None:
    topic = f"kill-{dice.randrange(10**9)}"
    namespace = topic.replace("-", "_")
    create_topic(broker, topic, PARTITIONS)
    reader = Reader(rest_uri, namespace)
    settings = settings_text(topic, broker, rest_uri, namespace, max_records=4_000, batch_every="2s", keep_snapshots=10)
    feeder = Feeder(broker, topic, PARTITIONS, EVENTS)
    feeder.start()
    began = time.monotonic()
    data, fell = warehouse / namespace / "events", list[str]()
    for moment in moments(dice, fell):
        running = pipelines.start(settings)
        assert until(lambda: not any(before.family() for before in pipelines.started[:-1]), 10), "a JVM lives on"
        known = data_files(data)
        _wait(running, moment, data, known)
        assert feeder.producing
        begun = data_files(data) - known
        running.kill()
        fell.append(_where(running, reader, begun))
        print(f"kill {len(fell)}: {moment}: {fell[-1]}, {feeder.sent} events sent")
    killing = time.monotonic() - began
    feeder.finish()
    pipelines.drain(settings.replace("max_records = 4000", "max_records = 50000"))
    found = reader.by_pyiceberg(*PLACES)
    rows = {place: sum(reader.by_pyiceberg(place).values()) for place in PLACES}
    batches = sum(len(running.events("batch_landed")) for running in pipelines.started)
    print(f"{len(fell)} kills in {killing:.0f} s: {dict(Counter(fell))}")
    print(f"{rows} in {batches} batches; {feeder.aborted} in aborted transactions")

    assert len(fell) >= 10
    assert _between(fell) >= AT_LEAST_BETWEEN
    assert found == feeder.landing
    assert reader.by_duckdb(*PLACES) == feeder.landing
    assert rows["dead_letters"] == EVENTS // 250
    assert feeder.aborted > 0
    check_batch_record(reader, feeder.landing)


def _between(fell: list[str]) -> int:
    return fell.count(WRITING) + fell.count(STAGED)


def _wait(running: Running, moment: Moment, data: Path, known: set[Path]) -> None:
    if moment.since != "process":
        running.wait_for("started")
    if moment.since == "file":
        assert until(lambda: len(data_files(data) - known) >= moment.files, 90, 0.002), running.tail()
    time.sleep(moment.seconds)


def _where(running: Running, reader: Reader, begun: set[Path]) -> str:
    """By the evidence: files that were there before the kill, and that main does not know after it."""
    assert until(lambda: not running.family(), 10), "the JVM outlived its Python"  # and may have staged meanwhile
    if begun and begun - reader.files_of_main("events"):
        return STAGED if reader.staged("events") else WRITING
    return ELSEWHERE if running.events("started") else STARTING
