"""SIGKILL at the named moments of a batch, and at any other: every offset ends in exactly one place.

Two tables, dead letters for two reasons, aborted transactions; new types and new fields, that come when a kill needs
them. `make test` takes seven of the moments and one other; `make faults KILLS=200` every one, goes on for as long as
it is told, and writes what it did into build/faults.json.
"""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.fail_points import VARIABLE, FailPoint
from lakehouse_ingest.records import Reason
from tests.services.crashes import STAGED, WRITING, where
from tests.services.dice import Dice
from tests.services.feeding import BROKEN_EVERY, Feeder
from tests.services.ingesting import Bench, drained
from tests.services.kafka import create_topic
from tests.services.pipelines import Pipelines, Running, until
from tests.services.readers import Reader
from tests.services.records import check_batch_record
from tests.services.surroundings import Surroundings, unlocked

BLIND = "any moment"
POINTS = tuple(map(str, FailPoint))
OTHERS = 3
EACH = len(POINTS) + OTHERS
FEW = 8  # with one at any moment; the long form has three of these
KILLS = int(os.environ.get("LAKEHOUSE_TEST_KILLS") or (10 if "LAKEHOUSE_TEST_LONG" in os.environ else FEW))
REPORT = os.environ.get("LAKEHOUSE_TEST_REPORT")
pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(900 + 60 * KILLS)]

EVENTS = 200_000
FEWER = 40_000  # the moments are the same ones
RATE = 600.0  # events a second where there is no end to them
PARTITIONS = 3
TYPES = ("reading", "alarm")
BETWEEN = 3  # kills at least between the first data file of a batch and its publication
# Few as the kills may be, these fall there.
SURE = (FailPoint.STAGED, FailPoint.PUBLISHING, FailPoint.WRITING_LETTERS)
ALWAYS = (FailPoint.LANDED, FailPoint.WRITING, *SURE)
# What lies within a call to Spark or to the catalog: so many seconds after it began, at most.
WITHIN: dict[str, float] = {
    FailPoint.WRITING: 0.6,
    FailPoint.IN_TASK: 0.3,
    FailPoint.WRITING_LETTERS: 0.6,
    FailPoint.PUBLISHING: 0.05,
    FailPoint.EXPIRING: 0.3,
    BLIND: 15.0,
}
# Each start comes here once; and so does it to what needs an event of its own. And the first kill has no time to lose.
ONCE = {
    FailPoint.CLAIMED,
    FailPoint.OPENED,
    FailPoint.REGISTERED,
    FailPoint.EVOLVING,
    FailPoint.EVOLVED,
    FailPoint.LANDED,
}
OFTEN = 3  # of the others, which time it is
PATIENCE = 180.0
LOOK = 0.1  # to look for the children of a JVM takes milliseconds


@dataclass(frozen=True)
class Kill:
    """The time-th time that a point is reached, and so many seconds later; or so many after the process began."""

    point: str
    time: int
    seconds: float
    hit: bool = False
    fell: str = ""

    def __str__(self) -> str:
        return f"{self.point} {self.time} + {self.seconds} s: {'' if self.hit else 'missed, '}{self.fell}"


class Events:
    """Of two types; of those that are not sound half can't be read, and half do not fit. And those that a kill needs,
    each once: of a type, or with a field, that nobody knows."""

    def __init__(self) -> None:
        self._special: deque[dict[str, Any]] = deque()
        self._kinds = list(TYPES)
        self.made: dict[int, bytes] = {}

    def __call__(self, number: int) -> bytes:
        if number % BROKEN_EVERY == BROKEN_EVERY // 2:
            return b'{"n": ' if number // BROKEN_EVERY % 2 else json.dumps({"n": "?", "type": TYPES[0]}).encode()
        plain = {"n": number, "type": TYPES[number % len(TYPES)], "text": f"event {number}"}
        special = self._special.popleft() if self._special else {}
        self.made[number] = json.dumps({**plain, **special}).encode()
        return self.made[number]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    def bring_about(self, point: str, number: int) -> None:
        if point == FailPoint.REGISTERED:
            self._kinds.append(f"kind_{number}")
            self._special.append({"type": f"kind_{number}"})
        elif point in (FailPoint.EVOLVING, FailPoint.EVOLVED):
            self._special.append({f"field_{number}": number})


def kills(dice: Dice, count: int) -> Iterator[Kill]:
    """Every fail point once, and other moments, as far as there are kills; then any of them. In any order, but for
    `LANDED`: what grows has to be there before."""
    others = [point for point in POINTS if point not in ALWAYS]
    anywhere = [BLIND] * (OTHERS if count > FEW else 1)
    chosen = [*map(str, ALWAYS), *anywhere, *dice.sample(others, len(others))][:count]
    dice.shuffle(chosen)
    chosen.sort(key=lambda point: point != FailPoint.LANDED)
    chosen += [dice.choice([*POINTS, *[BLIND] * OTHERS]) for _ in range(count - len(chosen))]
    sure = set(SURE)
    for point in chosen:
        if point in sure:  # the first of each: at once, when files are there and none is published
            sure.remove(FailPoint(point))
            yield Kill(point, 1, 0.0)
            continue
        times = 1 if point in ONCE or point == BLIND else dice.randint(1, OFTEN)
        yield Kill(point, times, round(dice.uniform(0.0, WITHIN.get(point, 0.0)), 3))


class TestKilledProcess:
    def test_leaves_every_offset_in_exactly_one_place(
        self, bench: Bench, warehouse: Path, pipelines: Pipelines, dice: Dice
    ) -> None:
        endless = EACH < KILLS
        total = None if endless else EVENTS if KILLS > FEW else FEWER
        done = kill_and_count(
            unlocked(bench.broker, bench.uri, warehouse),
            pipelines,
            dice,
            kills(dice, KILLS),
            total,
            drain=lambda settings: drained(bench, settings),
        )
        assert all(kill.hit for kill in done), [kill for kill in done if not kill.hit]
        if EACH <= KILLS:
            assert set(POINTS) <= {kill.point for kill in done}, "a fail point that no kill fell upon"
        assert sum(kill.fell in (WRITING, STAGED) for kill in done) >= BETWEEN


def kill_and_count(
    surroundings: Surroundings,
    pipelines: Pipelines,
    dice: Dice,
    planned: Iterable[Kill],
    total: int | None,
    title: str = "branch",
    *,
    drain: Callable[[str], object] | None = None,
) -> list[Kill]:
    """`title`: of this run in the report. `drain`: how the rest is landed, if not by a process."""
    topic = f"kill-{dice.randrange(10**9)}"
    namespace = topic.replace("-", "_")
    create_topic(surroundings.brokers, topic, PARTITIONS)
    reader = surroundings.reader(namespace)
    settings = surroundings.settings(
        topic,
        namespace,
        max_records=20_000,
        batch_every="1s",
        keep_snapshots=8,
        type_from="field:type",
        table='table = "{type}"\nhints = { n = "long" }',
    )
    events = Events()
    feeder = Feeder(surroundings.brokers, topic, PARTITIONS, total, events, RATE)
    feeder.start()
    began, done = time.monotonic(), list[Kill]()
    for number, kill in enumerate(planned, 1):
        events.bring_about(kill.point, number)
        places = (*events.kinds, "dead_letters")
        known = _files(surroundings, namespace, places)
        running = _start(pipelines, settings, kill)
        _wait(running, kill)
        assert feeder.producing
        begun = _files(surroundings, namespace, places) - known
        running.kill()
        fell = where(running, reader, places, begun)
        hit = kill.point == BLIND or running.is_struck()
        done.append(Kill(kill.point, kill.time, kill.seconds, hit, fell))
        print(f"kill {number}: {done[-1]}, {feeder.sent} events sent")
    killing = time.monotonic() - began
    feeder.finish()
    drain = drain or (lambda settings: pipelines.drain(settings, 900))
    drain(settings.replace("max_records = 20000", "max_records = 100000"))
    found = reader.by_pyiceberg(*places)
    _report(title, dice.drawn, feeder, found, done, killing)

    assert found == feeder.landing
    assert reader.by_duckdb(*places) == feeder.landing
    assert feeder.aborted > 0
    _check_values(reader, events, feeder)
    check_batch_record(reader, feeder.landing)
    return done


def _start(pipelines: Pipelines, settings: str, kill: Kill) -> Running:
    wanted = {} if kill.point == BLIND else {VARIABLE: f"{kill.point}:{kill.time}+{kill.seconds}"}
    running = pipelines.start(settings, environment=wanted)
    assert until(lambda: not any(before.family() for before in pipelines.started[:-1]), 60), "a process lives on"
    return running


def _wait(running: Running, kill: Kill) -> None:
    """Until it has killed itself, or a worker has; or for the time of one that falls anywhere."""
    deadline = time.monotonic() + (kill.seconds if kill.point == BLIND else PATIENCE)
    while not (running.ended or running.is_struck()) and time.monotonic() < deadline:
        running.family()  # of its children nobody knows any more when it has ended
        time.sleep(LOOK)


def _files(surroundings: Surroundings, namespace: str, kinds: Iterable[str]) -> set[Path]:
    return {file for kind in kinds for file in surroundings.data_files(f"{namespace}/{kind}")}


def _report(
    title: str, seed: int, feeder: Feeder, found: Counter[tuple[str, int, int]], done: list[Kill], killing: float
) -> None:
    report = {
        "seed": seed,
        "events": feeder.sent,
        "events_a_second": round(feeder.sent / killing),
        "kills": len(done),
        "seconds": round(killing),
        "lost": (feeder.landing - found).total(),
        "doubled": (found - feeder.landing).total(),
        "in_aborted_transactions": feeder.aborted,
        "by_fail_point": dict(sorted(Counter(kill.point for kill in done if kill.hit).items())),
        "by_what_was_left": dict(sorted(Counter(kill.fell for kill in done).items())),
    }
    print(json.dumps(report, indent=2))
    if REPORT:
        file = Path(REPORT)
        file.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(file.read_text()) if file.exists() else {}
        whole = {**report, "each": [asdict(kill) for kill in done]}
        file.write_text(json.dumps({**before, title: whole}, indent=2) + "\n")


def _check_values(reader: Reader, events: Events, feeder: Feeder) -> None:
    """Each row, and each dead letter, is of the very record that stands at its coordinates."""

    def digest_at(row: dict[str, Any]) -> bytes:
        source = row["_source"]
        return feeder.digests[source["topic"], source["partition"], source["offset"]]

    for kind in events.kinds:
        for row in reader.table(kind).scan(selected_fields=("n", "_source")).to_arrow().to_pylist():
            assert sha256(events.made[row["n"]]).digest() == digest_at(row), row
    letters = reader.table("dead_letters").scan(selected_fields=("reason", "value", "_source")).to_arrow().to_pylist()
    for row in letters:
        assert sha256(row["value"]).digest() == digest_at(row), row
    assert {row["reason"] for row in letters} == {Reason.BROKEN, Reason.WRONG_TYPE}
