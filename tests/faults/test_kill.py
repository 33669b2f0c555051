"""SIGKILL at any moment, with five tables, a new column and dead letters: every offset ends in exactly one place."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakehouse_ingest.ledger import PREFIX
from lakehouse_ingest.records import Reason
from tests.services.feeding import BROKEN_EVERY, Feeder
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, until
from tests.services.readers import Reader
from tests.services.records import check_batch_record
from tests.services.surroundings import Surroundings, unlocked

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(900)]

PARTITIONS = 3
AT_MOST = 16
TYPES = ("login", "order", "payment", "refund", "alarm")
PLACES = (*TYPES, "dead_letters")
TUESDAY = 6_000  # from this event on all but alarms have a field more
STARTING, ELSEWHERE = "while starting", "between landings"
# The two that lie between the first data file of a batch and its publication; and the one in the middle of it.
WRITING, STAGED = "while a file was written", "after staging, before publication"
PARTLY = "after publication of some tables, before others"


def event(number: int) -> bytes:
    """Those that are not sound are dead letters: in turn they can't be read, or do not fit their table."""
    if not is_sound(number):
        return b'{"n": ' if number // BROKEN_EVERY % 2 else json.dumps({"n": "?", "type": type_of(number)}).encode()
    new = {"tuesday": tuesday} if (tuesday := tuesday_of(number)) else {}
    return json.dumps({"n": number, "type": type_of(number), "text": f"event {number}", **new}).encode()


def is_sound(number: int) -> bool:
    return number % BROKEN_EVERY != BROKEN_EVERY // 2


def type_of(number: int) -> str:
    return TYPES[number % 7 % len(TYPES)]


def tuesday_of(number: int) -> str | None:
    return f"new in {number}" if number >= TUESDAY and type_of(number) != "alarm" else None


@dataclass(frozen=True)
class Extent:
    """How many events, and how many kills: by what they wait for, and how many of them have to fall between."""

    events: int
    after_file: int
    after_start: int
    blind: int
    between: int  # the first data file of a batch and its publication

    @property
    def kills(self) -> int:
        return self.after_file + self.after_start + self.blind


WHOLE = Extent(200_000, after_file=6, after_start=3, blind=2, between=3)


@dataclass(frozen=True)
class Moment:
    """When to kill: so long after the process began, after it stands, or after it began its n-th data file."""

    since: str  # process, stands, file
    seconds: float
    files: int = 0

    def __str__(self) -> str:
        return f"{self.since} {self.files or ''} + {self.seconds:.2f} s"


def moments(dice: random.Random, extent: Extent, fell: list[str]) -> Iterator[Moment]:
    """Half of them wait for a data file, the others fall where they fall; more when too few hit a landing."""
    after_file = [Moment("file", dice.uniform(0.0, 0.15), dice.randint(1, 8)) for _ in range(extent.after_file)]
    after_start = [Moment("stands", dice.uniform(0.0, 10.0)) for _ in range(extent.after_start)]
    blind = [Moment("process", dice.uniform(0.5, 12.0)) for _ in range(extent.blind)]
    chosen = [*after_file, *after_start, *blind]
    dice.shuffle(chosen)
    yield from chosen
    while _between(fell) < extent.between and len(fell) < AT_MOST:
        yield Moment("file", dice.uniform(0.0, 0.03), 1)


def test_every_offset_is_in_exactly_one_place_after_kills_at_any_moment(
    broker: str, rest_uri: str, warehouse: Path, pipelines: Pipelines, dice: random.Random
) -> None:
    kill_and_count(unlocked(broker, rest_uri, warehouse), pipelines, dice, WHOLE)


def kill_and_count(surroundings: Surroundings, pipelines: Pipelines, dice: random.Random, extent: Extent) -> None:
    topic = f"kill-{dice.randrange(10**9)}"
    namespace = topic.replace("-", "_")
    create_topic(surroundings.brokers, topic, PARTITIONS)
    reader = surroundings.reader(namespace)
    settings = surroundings.settings(
        topic,
        namespace,
        max_records=4_000,
        batch_every="2s",
        keep_snapshots=10,
        type_from="field:type",
        table='table = "{type}"',
    )
    feeder = Feeder(surroundings.brokers, topic, PARTITIONS, extent.events, event)
    feeder.start()
    began = time.monotonic()
    fell, before_tuesday = list[str](), 0

    for moment in moments(dice, extent, fell):
        running = pipelines.start(settings)
        assert until(lambda: not any(before.family() for before in pipelines.started[:-1]), 10), "a JVM lives on"
        known = _files(surroundings, namespace)
        _wait(running, moment, surroundings, namespace, known)
        assert feeder.producing
        begun = _files(surroundings, namespace) - known
        running.kill()
        fell.append(_where(running, reader, begun))
        before_tuesday += not any(_has_tuesday(reader, kind) for kind in TYPES)
        print(f"kill {len(fell)}: {moment}: {fell[-1]}, {feeder.sent} events sent")
    killing = time.monotonic() - began
    feeder.finish()
    pipelines.drain(settings.replace("max_records = 4000", "max_records = 50000"))
    found = reader.by_pyiceberg(*PLACES)
    rows = {place: sum(reader.by_pyiceberg(place).values()) for place in PLACES}
    batches = sum(len(running.events("batch_landed")) for running in pipelines.started)
    print(f"{len(fell)} kills in {killing:.0f} s, {before_tuesday} before Tuesday: {dict(Counter(fell))}")
    print(f"{rows} in {batches} batches; {feeder.aborted} in aborted transactions")

    assert len(fell) >= extent.kills
    assert _between(fell) >= extent.between
    assert before_tuesday < len(fell), "the new column was not in play"
    assert found == feeder.landing
    assert reader.by_duckdb(*PLACES) == feeder.landing
    dead = reader.table("dead_letters").scan(selected_fields=("reason",)).to_arrow()["reason"].to_pylist()
    assert Counter(dead) == dict.fromkeys((Reason.BROKEN, Reason.WRONG_TYPE), extent.events // BROKEN_EVERY // 2)
    assert feeder.aborted > 0
    _check_rows(reader, extent.events)
    check_batch_record(reader, feeder.landing)


def _check_rows(reader: Reader, events: int) -> None:
    """Every sound event is a row of its type's table; from before the new column, it is null there."""
    sound = list(filter(is_sound, range(events)))
    with reader.duckdb() as connection:
        for kind in TYPES:
            columns = ("n", "type", "tuesday") if _has_tuesday(reader, kind) else ("n", "type")
            made = [(n, kind, tuesday_of(n))[: len(columns)] for n in sound if type_of(n) == kind]
            read = reader.table(kind).scan(selected_fields=columns).to_arrow().select(columns)
            assert sorted(zip(*read.to_pydict().values(), strict=True)) == made, kind
            query = f"SELECT {', '.join(columns)} FROM lake.{reader.namespace}.{kind} ORDER BY n"
            assert connection.sql(query).fetchall() == made, kind
    assert [kind for kind in TYPES if not _has_tuesday(reader, kind)] == ["alarm"]


def _has_tuesday(reader: Reader, kind: str) -> bool:
    return reader.exists(kind) and "tuesday" in reader.table(kind).schema().column_names


def _files(surroundings: Surroundings, namespace: str) -> set[Path]:
    return {file for kind in TYPES for file in surroundings.data_files(f"{namespace}/{kind}")}


def _between(fell: list[str]) -> int:
    return fell.count(WRITING) + fell.count(STAGED)


def _wait(running: Running, moment: Moment, surroundings: Surroundings, namespace: str, known: set[Path]) -> None:
    if moment.since != "process":
        running.wait_for("started")
    if moment.since == "file":
        enough = lambda: len(_files(surroundings, namespace) - known) >= moment.files  # noqa: E731
        assert until(enough, 90, surroundings.look), running.tail()
    time.sleep(moment.seconds)


def _where(running: Running, reader: Reader, begun: set[Path]) -> str:
    """By the evidence: files that were there before the kill, and that main does not know after it."""
    assert until(lambda: not running.family(), 10), "the JVM outlived its Python"  # and may have staged meanwhile
    there = [kind for kind in TYPES if reader.exists(kind)]
    if begun.issubset({file for kind in there for file in reader.files_of_main(kind)}):
        return ELSEWHERE if running.events("started") else STARTING
    staged = {_token(reader, kind, snapshot) for kind in there for snapshot in reader.staged(kind)}
    published = {_token(reader, kind, snapshot) for kind in there for snapshot in reader.main(kind)[:1]}
    if staged & published:
        return PARTLY
    return STAGED if staged else WRITING


def _token(reader: Reader, name: str, snapshot: int) -> str | None:
    found = reader.table(name).snapshot_by_id(snapshot)
    assert found
    assert found.summary
    return found.summary[f"{PREFIX}token"]
